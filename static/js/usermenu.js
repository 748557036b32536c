// The menu at the foot of the sidebar: who is signed in, where, and the settings of this browser.
import { useState } from "preact/hooks";
import { useChat } from "./context.js";
import { openDialog } from "./dialog.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { Menu, Popover } from "./popover.js";
import { setSetting, setting } from "./settings.js";
import { showShortcuts } from "./shortcuts.js";
import { setTheme, theme } from "./theme.js";
import { keys } from "./words.js";

export function UserMenu() {
  const chat = useChat();
  const { user, organization, organizations, admin } = chat.config;
  const icon = (name) => html`<${Icon} name=${name} size=${16} />`;
  const items = () => [
    ...(organizations.length > 1 ? organizations.map((one) => ({
      label: one.name, checked: one.slug === organization.slug, action: () => location.assign(`/o/${one.slug}/`),
    })) : []),
    { label: "Settings", icon: icon("settings"), action: showSettings },
    { label: "Connections", icon: icon("plug"), action: () => location.assign(`/o/${organization.slug}/connections/`) },
    { label: "Usage", icon: icon("chart"), action: () => location.assign(`/o/${organization.slug}/usage/`) },
    { label: "Archived chats", icon: icon("archive"), action: () => chat.list.showArchived(true) },
    { label: "Keyboard shortcuts", icon: icon("info"), action: showShortcuts },
    admin && { label: "Administration", icon: icon("shield"), action: () => location.assign("/admin/") },
    { label: "Sign out", icon: icon("external"), action: signOut },
  ];
  return html`<${Popover} label="Your menu" side="up" edge="start" wide button=${(props) => html`<button class="user-button" ...${props} aria-haspopup="menu">
      <span class="avatar" aria-hidden="true">${[...user.name][0]?.toUpperCase()}</span>
      <span class="user-words"><span class="user-name">${user.name}</span><span class="user-organization">${organization.name}</span></span>
      <${Icon} name="dots" size=${16} /></button>`}>
    ${(close) => html`<${Menu} items=${items()} close=${close} label="Your menu" />`}</${Popover}>`;
}

/** Signing out is a POST to a page of its own, which asks once more. */
function signOut() {
  location.assign("/accounts/logout/");
}

function showSettings() {
  openDialog({ title: "Settings", body: () => html`<${Settings} />` });
}

function Settings() {
  const [chosen, setChosen] = useState(theme());
  const [sendWith, setSendWith] = useState(setting("sendWith"));
  return html`<div class="stack">
    <${Choice} label="Appearance" name="theme" value=${chosen} options=${[["system", "As the system", "system"], ["light", "Light", "sun"], ["dark", "Dark", "moon"]]}
      onChange=${(value) => {
        setTheme(value);
        setChosen(value);
      }} />
    <${Choice} label="Send a message with" name="send" value=${sendWith} options=${[["enter", "Enter"], ["mod-enter", keys("Mod+Enter")]]}
      onChange=${(value) => {
        setSetting("sendWith", value);
        setSendWith(value);
      }} />
    <p class="help">These hold for this browser. <a href="/settings/">Your account</a>: e-mail, password, two factors.</p></div>`;
}

function Choice({ label, name, value, options, onChange }) {
  return html`<fieldset><legend class="label">${label}</legend><div class="choices">${options.map(([key, words, icon]) => html`
    <label key=${key} class="choice"><input type="radio" name=${name} value=${key} checked=${value === key} onChange=${() => onChange(key)} />
      ${icon && html`<${Icon} name=${icon} size=${17} />`}<span>${words}</span></label>`)}</div></fieldset>`;
}
