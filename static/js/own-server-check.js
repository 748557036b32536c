// Whether a server of one's own can be reached: its tools, or why there are none, and what it changed since.
import { useEffect, useState } from "preact/hooks";
import { openDialog } from "./dialog.js";
import { html } from "./html.js";
import { count, toolWords } from "./words.js";

export function openCheck(page, server) {
  return openDialog({ title: `Check ${server.title}`, wide: true, body: (close) => html`<${Check} page=${page} server=${server} close=${close} />` });
}

function Check({ page, server, close }) {
  const [found, setFound] = useState(null);
  const [error, setError] = useState("");
  const address = `connections/servers/${server.id}`;

  useEffect(() => {
    page.api.post(`${address}/check`, {}).then(setFound, (failure) => setError(failure.message));
  }, []);

  async function decide(what, id) {
    try {
      await page.api.post(`${address}/tools`, { [what]: [id] });
      setFound(await page.api.post(`${address}/check`, {}));
    } catch (failure) {
      setError(failure.message);
    }
  }

  const done = html`<div class="dialog-actions"><button type="button" class="button primary" onClick=${() => close(true)}>Done</button></div>`;
  if (error) return html`<p class="field-error" role="alert">${error}</p>${done}`;
  if (!found) return html`<p class="muted" role="status">Connecting to ${server.title} and listing its tools.</p>${done}`;
  const signIn = found.state === "needs_sign_in";
  const usable = found.tools.filter((tool) => !tool.withheld);
  return html`<div class="stack">
    <p role="status" class=${found.ok ? "check-ok" : "check-bad"}>${found.ok ? `It works: ${count(found.tools.length, "tool")}${
      usable.length < found.tools.length ? `, of which ${usable.length} can be used` : ""}.` : found.error || found.message}</p>
    ${signIn && html`<p><a class="button" href=${`/o/${page.config.organization.slug}/connections/${server.slug}/begin`}>Connect an account</a></p>`}
    ${found.warnings.map((warning) => html`<p class="help" key=${warning}>${warning}</p>`)}
    ${found.waiting.map((version) => html`<${Waiting} key=${version.id} version=${version} decide=${decide} />`)}
    ${found.tools.length > 0 && html`<ul class="tools check-tools" aria-label="Tools">${found.tools.map((tool) => html`<li key=${tool.name}><span class="tool-name">${toolWords({ title: tool.title, tool: tool.name })}</span>
      ${tool.withheld && html`<span class="tool-text">${tool.withheld}</span>`}
      ${tool.description && html`<span class="tool-text">${tool.description}</span>`}</li>`)}</ul>`}
    ${done}</div>`;
}

function Waiting({ version, decide }) {
  const [busy, setBusy] = useState(false);
  const say = (what) => {
    setBusy(true);
    decide(what, version.id);
  };
  return html`<section class="waiting" aria-label=${`${version.name} waits`}>
    <p><strong>${version.name}</strong> ${version.state === "changed" ? "is not what you accepted any more." : "is new."}</p>
    ${version.flags.map((flag) => html`<p class="account-problem" key=${flag}>${flag}</p>`)}
    ${version.fields.map((field) => html`<div key=${field.field}><p class="help">${field.field}</p>
      <p class=${`diff ${field.lines ? "lines" : ""}`}>${field.pieces.map((piece, at) => html`<${Piece} key=${at} piece=${piece} />`)}</p></div>`)}
    <div class="row"><button type="button" class="button" disabled=${busy} onClick=${() => say("accept")}>Accept</button>
      <button type="button" class="button quiet" disabled=${busy} onClick=${() => say("reject")}>Reject</button></div></section>`;
}

function Piece({ piece }) {
  if (piece.op === "added") return html`<ins>${piece.text}</ins>`;
  if (piece.op === "removed") return html`<del>${piece.text}</del>`;
  return piece.op === "gap" ? html`<span class="muted">…</span>` : html`<span>${piece.text}</span>`;
}
