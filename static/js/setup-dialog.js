// A person's own values for what a server needs, such as a token. They can be replaced and removed, never read.
import { useState } from "preact/hooks";
import { html } from "./html.js";
import { openDialog } from "./dialog.js";

export async function setUp(chat, server) {
  const stored = await openDialog({ title: `Set up ${server.title}`, body: (close) => html`<${Setup} chat=${chat} server=${server} close=${close} />` });
  if (!stored) return;
  chat.toast(`${server.title} is set up.`);
  await chat.loadAgents({ quiet: true });
}

function Setup({ chat, server, close }) {
  const [values, setValues] = useState({});
  const [state, setState] = useState({ busy: false, error: "" });
  const given = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== ""));
  const missing = server.variables.filter((variable) => !variable.set && !given[variable.name]);
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
    act(() => chat.api.put(`servers/${server.slug}/variables`, given));
  }}>
    <p class="muted">These values are yours alone. They are stored encrypted and used only for ${server.title}.</p>
    ${server.variables.map((variable) => html`<div class="field" key=${variable.name}>
      <label for=${`variable-${variable.name}`}>${variable.title || variable.name}${variable.set ? html` <span class="set-mark">set</span>` : ""}</label>
      <input id=${`variable-${variable.name}`} type=${variable.sensitive === false ? "text" : "password"} autocomplete="new-password" spellcheck="false"
        placeholder=${variable.set ? "Leave empty to keep it" : ""} value=${values[variable.name] || ""}
        onInput=${(event) => setValues({ ...values, [variable.name]: event.target.value })} />
      ${variable.description && html`<p class="help">${variable.description}</p>`}</div>`)}
    ${state.error && html`<p class="field-error" role="alert">${state.error}</p>`}
    <div class="dialog-actions">
      ${anySet && html`<button type="button" class="button danger" disabled=${state.busy} onClick=${() => act(() => chat.api.delete(`servers/${server.slug}/variables`))}>Remove all</button>`}
      <button type="button" class="button" onClick=${() => close(null)}>Cancel</button>
      <button type="submit" class="button primary" disabled=${state.busy || !Object.keys(given).length || missing.length > 0}>${state.busy ? "Storing" : "Store"}</button></div>
  </form>`;
}
