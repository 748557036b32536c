// The card that asks before a tool runs: what, where, with which account, the arguments in full; allow once or deny.
import { useState } from "preact/hooks";
import { useChat, useStore } from "./context.js";
import { decide } from "./deciding.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { useRemaining } from "./remaining.js";
import { Arguments, isShortened, useWholeCall, visible } from "./values.js";
import { toolWords } from "./words.js";

const CLAIMS = {
  readOnlyHint: ["only reads", "changes things"],
  destructiveHint: ["may delete or overwrite", "does not delete or overwrite"],
  idempotentHint: ["doing it twice is the same as once", null],
  openWorldHint: ["reaches other systems", "stays within its own system"],
};

/** The server's hints in words, which are its claims and nothing more. */
export function claimWords(claims) {
  return Object.entries(CLAIMS)
    .map(([name, [yes, no]]) => (claims?.[name] === true ? yes : claims?.[name] === false ? no : null))
    .filter(Boolean);
}

export function ApprovalCard({ call, live }) {
  const chat = useChat();
  const { details = {}, expires_at: expires } = call.question || {};
  const decision = useStore((state) => state.decisions[call.id]);
  const [denying, setDenying] = useState(false);
  const [note, setNote] = useState("");
  const [edited, setEdited] = useState(null);
  const shortened = isShortened(call.arguments);
  const whole = useWholeCall(call, shortened);
  const left = useRemaining(expires);
  const value = shortened ? whole?.call?.arguments : call.arguments;
  const taken = decision?.state === "sending" || (call.question && call.question.state !== "open");
  const problem = edited === null ? "" : jsonProblem(edited);
  const can = live && !taken && left !== "";
  const server = call.server_title || call.server;
  const title = `approval-${call.id}`;
  const allow = () => decide(chat, call.id, "allow_once", edited === null ? {} : { args: JSON.parse(edited) });

  return html`<section class="approval" aria-labelledby=${title} id=${`ask-${call.id}`} tabindex="-1">
    <h3 id=${title}><${Icon} name="shield" size=${20} /><span>Allow <strong>${toolWords(call)}</strong> on <strong>${server}</strong>?</span></h3>
    <dl class="approval-facts">
      <div><dt>Tool</dt><dd><code>${visible(call.tool || "")}</code></dd></div>
      <div><dt>Account</dt><dd>${details.account || "As this server is set up"}</dd></div>
      ${(call.reason || details.reason) && html`<div><dt>Asked because</dt><dd>${call.reason || details.reason}</dd></div>`}
      <${Claims} claims=${details.claims} server=${server} />
    </dl>
    <h4>Arguments</h4>
    ${shortened && !whole?.call
      ? html`<p class="muted">${whole?.error || "Loading all of the arguments"}</p>`
      : edited === null
        ? html`<${Arguments} value=${value} />`
        : html`<textarea class="approval-edit" rows="8" spellcheck="false" aria-label="Arguments as JSON" value=${edited}
            aria-invalid=${Boolean(problem)} onInput=${(event) => setEdited(event.target.value)}></textarea>
            ${problem && html`<p class="field-error">${problem}</p>`}`}
    ${denying && html`<div class="field"><label for=${`note-${call.id}`}>Tell the agent why (optional)</label>
      <textarea id=${`note-${call.id}`} rows="2" maxlength="4000" value=${note} onInput=${(event) => setNote(event.target.value)}></textarea></div>`}
    <div class="approval-actions">
      ${denying
        ? html`<button type="button" class="button danger" disabled=${!can} onClick=${() => decide(chat, call.id, "deny", { note })}>Deny</button>
            <button type="button" class="button quiet" onClick=${() => setDenying(false)}>Back</button>`
        : html`<button type="button" class="button primary" disabled=${!can || value === undefined || Boolean(problem)} onClick=${allow}>Allow once</button>
            <button type="button" class="button danger" disabled=${!can} onClick=${() => decide(chat, call.id, "deny")}>Deny</button>
            <button type="button" class="button quiet" disabled=${!can} onClick=${() => setDenying(true)}>Deny with a note</button>
            ${details.can_edit && html`<button type="button" class="button quiet" disabled=${!can || value === undefined}
              onClick=${() => setEdited(edited === null ? JSON.stringify(value, null, 2) : null)}>${edited === null ? "Edit arguments" : "Undo edits"}</button>`}`}
      <span class="approval-state">${stateWords({ live, taken, decision, left, call })}</span>
    </div>
    ${decision?.state === "failed" && html`<p class="field-error" role="alert">${decision.message}</p>`}
  </section>`;
}

function Claims({ claims, server }) {
  const words = claimWords(claims);
  if (!words.length) return null;
  return html`<div><dt>Claimed by the server</dt><dd><span class="claimed">${words.join("; ")}</span>
    <span class="muted small"> (${visible(server || "the server")} says so; nobody checked it)</span></dd></div>`;
}

function stateWords({ live, taken, decision, left, call }) {
  if (decision?.state === "sending") return decision.decision === "deny" ? "Denying" : "Allowing";
  if (taken) return call.decided_by ? `Decided by ${call.decided_by}` : "Decided";
  if (!live) return "No longer open";
  if (left === "") return "Expired";
  return left ? `Open for ${left}` : "";
}

function jsonProblem(text) {
  try {
    const value = JSON.parse(text);
    return value && typeof value === "object" && !Array.isArray(value) ? "" : "Arguments are a JSON object.";
  } catch (error) {
    return `This is not JSON: ${error.message}`;
  }
}
