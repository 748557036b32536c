// The dialog in which a person adds or changes an MCP server of their own. Values of headers go in and never come out.
import { useRef, useState } from "preact/hooks";
import { openDialog } from "./dialog.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";

const FIELDS = ["title", "url", "transport", "headers", "variables"];
const TRANSPORTS = { http: "Found out by itself", "streamable-http": "Streamable HTTP", sse: "SSE (the old transport)" };

/** What the form begins with: of a stored header the name alone. Pure. */
export function draftOf(server) {
  return {
    title: server?.title || "",
    url: server?.url || "",
    transport: server?.transport || "http",
    headers: (server?.headers || []).map((name) => ({ name, value: "", stored: true })),
    variables: Object.entries(server?.variables || {}).map(([name, about]) => ({ name, ...about })),
  };
}

/** What is sent: only what differs from `server`; a stored header that is not in the form any more is null. Pure. */
export function bodyOf(draft, server) {
  const headers = {};
  for (const { name, value, stored } of draft.headers) if (name.trim() && (value || !stored)) headers[name.trim()] = value;
  for (const name of server?.headers || []) if (!draft.headers.some((header) => header.stored && header.name === name)) headers[name] ??= null;
  const variables = {};
  for (const { name, title, description, sensitive } of draft.variables) {
    if (name.trim()) variables[name.trim()] = { title: title || "", description: description || "", sensitive: sensitive !== false };
  }
  const body = { title: draft.title.trim(), url: draft.url.trim(), transport: draft.transport, headers, variables };
  if (!server) return body;
  const same = (name) => JSON.stringify(body[name]) === JSON.stringify(name === "headers" ? {} : server[name]);
  return Object.fromEntries(Object.entries(body).filter(([name]) => !same(name)));
}

/** The field that an error names, and its words; a field that the form does not have is "". Pure. */
export function problemOf(message) {
  const [, field, words] = /^(\w+)(?:\.[^:]*)?: (.*)$/s.exec(message) || [];
  return FIELDS.includes(field) ? { field, words } : { field: "", words: message };
}

/** Whether what is stored is left behind by this change: it was meant for another address. Pure. */
export function leavesBehind(draft, server) {
  return Boolean(server) && (draft.url.trim() !== server.url || draft.transport !== server.transport);
}

/** Open the form; the server as it is then (with `dropped`), or null. */
export function openServerForm(page, server = null) {
  const title = server ? `Change ${server.title}` : "Add a server of your own";
  return openDialog({ title, wide: true, body: (close) => html`<${ServerForm} page=${page} server=${server} close=${close} />` });
}

function ServerForm({ page, server, close }) {
  const form = useRef(null);
  const [draft, setDraft] = useState(() => draftOf(server));
  const [state, setState] = useState({ busy: false, field: "", words: "" });
  const set = (changes) => setDraft({ ...draft, ...changes });
  const moved = leavesBehind(draft, server) && (server.headers.length > 0 || Object.keys(server.variables).length > 0);

  async function store(event) {
    event.preventDefault();
    setState({ busy: true, field: "", words: "" });
    try {
      const body = bodyOf(draft, server);
      close(await (server ? page.api.patch(`connections/servers/${server.id}`, body) : page.api.post("connections/servers", body)));
    } catch (error) {
      const problem = problemOf(error.message);
      setState({ busy: false, ...problem });
      form.current?.querySelector(`[data-field="${problem.field}"]`)?.focus();
    }
  }

  const invalid = (field) => (state.field === field ? { "aria-invalid": "true", "aria-describedby": `own-${field}-error` } : {});
  const wrong = (field) => state.field === field && html`<p class="field-error" role="alert" id=${`own-${field}-error`}>${state.words}</p>`;

  return html`<form class="stack" ref=${form} autocomplete="off" onSubmit=${store}>
    <p class="muted">Nobody else sees this server or uses it. Its tools ask you before they run.</p>
    <div class="field"><label for="own-title">Name</label>
      <input id="own-title" type="text" data-field="title" required maxlength="120" value=${draft.title} ...${invalid("title")} onInput=${(event) => set({ title: event.target.value })} />${wrong("title")}</div>
    <div class="field"><label for="own-url">Address</label>
      <input id="own-url" type="url" inputmode="url" data-field="url" required maxlength="2000" spellcheck="false" placeholder="https://example.org/mcp" value=${draft.url} ...${invalid("url")} onInput=${(event) => set({ url: event.target.value })} />
      ${wrong("url")}${moved && html`<p class="help" role="status">What is stored for the address before is not sent to another one: enter it again.</p>`}</div>
    <div class="field"><label for="own-transport">Transport</label>
      <select id="own-transport" data-field="transport" value=${draft.transport} ...${invalid("transport")} onChange=${(event) => set({ transport: event.target.value })}>
        ${Object.entries(TRANSPORTS).map(([value, words]) => html`<option key=${value} value=${value} selected=${value === draft.transport}>${words}</option>`)}</select>${wrong("transport")}</div>
    <${Headers} headers=${draft.headers} set=${(headers) => set({ headers })} error=${wrong("headers")} moved=${leavesBehind(draft, server)} />
    <${Variables} variables=${draft.variables} set=${(variables) => set({ variables })} error=${wrong("variables")} />
    ${state.words && !state.field && html`<p class="field-error" role="alert">${state.words}</p>`}
    <div class="dialog-actions"><button type="button" class="button" onClick=${() => close(null)}>Cancel</button>
      <button type="submit" class="button primary" disabled=${state.busy}>${state.busy ? "Storing" : server ? "Store" : "Add"}</button></div>
  </form>`;
}

const changed = (rows, at, changes) => rows.map((row, place) => (place === at ? { ...row, ...changes } : row));

function Headers({ headers, set, error, moved }) {
  return html`<fieldset class="rows"><legend>Headers</legend>
    <p class="help">Such as Authorization. Stored encrypted, and never shown again.</p>
    ${headers.map((header, at) => html`<div class="own-row" key=${at}>
      <input type="text" data-field=${at === 0 ? "headers" : undefined} aria-label="Name of the header" placeholder="Name" maxlength="100" spellcheck="false" readonly=${header.stored} value=${header.name}
        onInput=${(event) => set(changed(headers, at, { name: event.target.value }))} />
      <input type="password" aria-label=${`Value of ${header.name || "the header"}`} autocomplete="new-password" maxlength="8192" placeholder=${header.stored && !moved ? "Leave empty to keep it" : "Value"} value=${header.value}
        onInput=${(event) => set(changed(headers, at, { value: event.target.value }))} />
      <${Remove} name=${header.name || "the header"} remove=${() => set(headers.filter((_, place) => place !== at))} /></div>`)}
    ${error}
    <${More} words="Add a header" add=${() => set([...headers, { name: "", value: "", stored: false }])} /></fieldset>`;
}

function Variables({ variables, set, error }) {
  return html`<fieldset class="rows"><legend>Values to ask for</legend>
    <p class="help">Used as <code>${"{{NAME}}"}</code> in a header or in the address, and entered apart from it.</p>
    ${variables.map((variable, at) => html`<div class="own-row" key=${at}>
      <input type="text" data-field=${at === 0 ? "variables" : undefined} aria-label="Name of the value" placeholder="NAME" maxlength="64" spellcheck="false" value=${variable.name}
        onInput=${(event) => set(changed(variables, at, { name: event.target.value }))} />
      <input type="text" aria-label=${`What ${variable.name || "the value"} is called`} placeholder="What it is" maxlength="120" value=${variable.title}
        onInput=${(event) => set(changed(variables, at, { title: event.target.value }))} />
      <${Remove} name=${variable.name || "the value"} remove=${() => set(variables.filter((_, place) => place !== at))} />
      <label class="clear"><input type="checkbox" checked=${variable.sensitive !== false} onChange=${(event) =>
        set(changed(variables, at, { sensitive: event.target.checked }))} /> Secret</label></div>`)}
    ${error}
    <${More} words="Add a value" add=${() => set([...variables, { name: "", title: "", description: "", sensitive: true }])} /></fieldset>`;
}

const Remove = ({ name, remove }) => html`<button type="button" class="button quiet icon" aria-label=${`Remove ${name}`} title="Remove" onClick=${remove}><${Icon} name="trash" /></button>`;

// What it adds is to be filled in next.
const More = ({ words, add }) => html`<button type="button" class="button quiet more" onClick=${(event) => {
  const rows = event.currentTarget.closest("fieldset");
  add();
  requestAnimationFrame(() => [...rows.querySelectorAll(".own-row")].at(-1)?.querySelector("input")?.focus());
}}><${Icon} name="plus" /> ${words}</button>`;
