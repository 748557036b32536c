// A person's own values for what a server needs, such as a token. They can be replaced and removed, never read.
import { useState } from "preact/hooks";
import { html } from "./html.js";
import { openDialog } from "./dialog.js";

/** What is stored: the values that were typed, and null for those that are to be cleared. Pure. */
export function changesOf(values, cleared) {
  const typed = Object.fromEntries(Object.entries(values).filter(([, value]) => value.trim() !== ""));
  return { ...typed, ...Object.fromEntries(cleared.map((name) => [name, null])) };
}

/** The names of what would still be missing with `changes`. Pure. */
export function missingWith(variables, changes) {
  return variables.filter(({ name, set }) => !(changes[name] || (set && changes[name] !== null))).map(({ name }) => name);
}

export async function setUp(chat, server) {
  const stored = await openDialog({ title: `Set up ${server.title}`, body: (close) => html`<${Setup} chat=${chat} server=${server} close=${close} />` });
  if (!stored) return;
  chat.toast(`${server.title} is set up.`);
  await chat.loadAgents({ quiet: true });
}

function Setup({ chat, server, close }) {
  const [values, setValues] = useState({});
  const [state, setState] = useState({ busy: false, error: "" });
  const [cleared, setCleared] = useState([]);
  const changes = changesOf(values, cleared);
  const missing = missingWith(server.variables, changes);
  const complete = !missing.length || cleared.length > 0; // who clears knows that something is missing then
  const anySet = server.variables.some((variable) => variable.set);

  async function act(action) {
    setState({ busy: true, error: "" });
    try {
      await action();
      close(true);
    } catch (error) {
      setState({ busy: false, error: error.message });
    }
  }

  return html`<form class="stack" autocomplete="off" onSubmit=${(event) => {
    event.preventDefault();
    act(() => chat.api.put(`servers/${server.slug}/variables`, changes));
  }}>
    <p class="muted">These values are yours alone. They are stored encrypted and used only for ${server.title}.</p>
    ${server.variables.map((variable) => html`<div class="field" key=${variable.name}>
      <label for=${`variable-${variable.name}`}>${variable.title || variable.name}${variable.set ? html` <span class="set-mark">set</span>` : ""}</label>
      <input id=${`variable-${variable.name}`} type=${variable.sensitive === false ? "text" : "password"} autocomplete="new-password" spellcheck="false"
        placeholder=${variable.set ? "Leave empty to keep it, or type to replace it" : ""} disabled=${cleared.includes(variable.name)} value=${values[variable.name] || ""}
        onInput=${(event) => setValues({ ...values, [variable.name]: event.target.value })} />
      ${variable.description && html`<p class="help">${variable.description}</p>`}
      ${variable.set && html`<label class="clear"><input type="checkbox" checked=${cleared.includes(variable.name)} onChange=${(event) =>
        setCleared(event.target.checked ? [...cleared, variable.name] : cleared.filter((name) => name !== variable.name))} /> Clear it</label>`}</div>`)}
    ${state.error && html`<p class="field-error" role="alert">${state.error}</p>`}
    <div class="dialog-actions">
      ${anySet && html`<button type="button" class="button danger" disabled=${state.busy} onClick=${() => act(() => chat.api.delete(`servers/${server.slug}/variables`))}>Remove all</button>`}
      <button type="button" class="button" onClick=${() => close(null)}>Cancel</button>
      <button type="submit" class="button primary" disabled=${state.busy || !Object.keys(changes).length || !complete}>${state.busy ? "Storing" : "Store"}</button></div>
  </form>`;
}
