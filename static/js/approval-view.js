// What is shown of a question whether a tool may run, wherever it is answered: what, where, with which account, the
// arguments in full; allow once or always, deny.
import { useCallback, useRef, useState } from "preact/hooks";
import { useChat } from "./context.js";
import { holdsSecret } from "./form-drafts.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { Menu, Popover } from "./popover.js";
import { Arguments, visible } from "./values.js";
import { toolWords } from "./words.js";

const CLAIMS = {
  readOnlyHint: ["only reads", "changes things"],
  destructiveHint: ["may delete or overwrite", "does not delete or overwrite"],
  idempotentHint: ["doing it twice is the same as once", null],
  openWorldHint: ["reaches other systems", "stays within its own system"],
};

/** The server's hints in words, which are its claims and nothing more. */
function claimWords(claims) {
  return Object.entries(CLAIMS)
    .map(([name, [yes, no]]) => (claims?.[name] === true ? yes : claims?.[name] === false ? no : null))
    .filter(Boolean);
}

/** "bob", "bob or carol", "bob, carol or dora". */
export function anyOf(names) {
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} or ${names[names.length - 1]}`;
}

export const SCOPES = [
  ["conversation", "In this chat"], ["agent", "With this agent"], ["always", "In all of my chats"],
];

const NOTHING = new Map([["denying", false], ["note", ""], ["editing", false], ["edited", ""]]);

/** What is written into the card of a question and not sent: `[values, enter(fields)]`, kept in this tab. */
function useEntered(question) {
  const { forms } = useChat();
  const [values, setValues] = useState(() => forms.get(question, NOTHING));
  const enter = (fields) => {
    const entered = new Map([...values, ...Object.entries(fields)]);
    setValues(entered);
    const kept = new Map(entered);
    if (holdsSecret(entered.get("edited"))) kept.set("editing", false).set("edited", "");
    if ([...kept].every(([name, value]) => NOTHING.get(name) === value)) forms.drop(question);
    else forms.set(question, kept);
  };
  return [Object.fromEntries(values), enter];
}

/**
 * `question` is its id; `call` names the tool and the server; `details` are of the question; `value` are the arguments, undefined while
 * `loading` says what there is instead. `can`: it is open, and no answer is on the way; `state` says how it stands.
 * `decide(decision, {note, args, scope})`. `facts` are further lines: [[name, value]]; `over` stands in place of the
 * buttons once nobody can answer any more.
 */
export function Approval({ id, question, call, details, value, loading, can, state, error, decide, facts = [], over }) {
  const [{ denying, note, editing, edited }, enter] = useEntered(question);
  const opened = useRef(false);
  // What was asked for is typed into at once; what stands there again after a reload takes no focus. Always the same
  // function, so that it is called once and not again.
  const focus = useCallback((field) => opened.current && field?.focus(), []);
  const open = (fields) => {
    opened.current = true;
    enter(fields);
  };
  const problem = editing ? jsonProblem(edited) : "";
  const server = call.server_title || call.server;
  const title = `approval-${id}`;
  const mine = details.can_decide !== false;
  const ready = can && value !== undefined && !problem;
  const changed = () => (editing ? { args: JSON.parse(edited) } : {});
  const back = () => {
    enter({ denying: false });
    document.getElementById(`ask-${id}`)?.focus(); // the button is gone, and who uses the keyboard stays at the card
  };

  return html`<section class="approval" role="group" aria-labelledby=${title} id=${`ask-${id}`} tabindex="-1">
    <h3 class="approval-title" id=${title}><${Icon} name="shield" size=${20} /><span>${mine ? "Allow " : ""}<strong>${toolWords(call)}</strong> on <strong>${server}</strong>${mine ? "?" : ""}</span></h3>
    <dl class="approval-facts">
      ${facts.map(([name, words]) => html`<div key=${name}><dt>${name}</dt><dd>${words}</dd></div>`)}
      <div><dt>Tool</dt><dd><code>${visible(call.tool || "")}</code></dd></div>
      <div><dt>Account</dt><dd>${details.account || "As this server is set up"}</dd></div>
      ${details.reason && html`<div><dt>Asked because</dt><dd>${details.reason}</dd></div>`}
      <${Claims} claims=${details.claims} server=${server} />
    </dl>
    <h4>Arguments</h4>
    ${value === undefined
      ? html`<p class="muted">${loading || "Loading all of the arguments"}</p>`
      : !editing
        ? html`<${Arguments} value=${value} />`
        : html`<textarea class="approval-edit" rows="8" spellcheck="false" aria-label="Arguments as JSON" value=${edited}
            ref=${focus} aria-invalid=${Boolean(problem)} aria-describedby=${problem ? `problem-${id}` : undefined} onInput=${(event) => enter({ edited: event.target.value })}></textarea>
            ${problem && html`<p class="field-error" id=${`problem-${id}`}>${problem}</p>`}`}
    ${denying && html`<div class="field"><label for=${`note-${id}`}>Tell the agent why (optional)</label>
      <textarea id=${`note-${id}`} ref=${focus} rows="2" maxlength="4000" value=${note} onInput=${(event) => enter({ note: event.target.value })}></textarea></div>`}
    ${over ? html`<div class="approval-actions">${over}</div>` : html`<div class="approval-actions">
      ${!mine
        ? html`<p class="approval-others"><${Icon} name="clock" size=${15} />Waiting for ${anyOf(details.approvers || []) || "somebody else"} to decide</p>`
        : denying
          ? html`<button type="button" class="button danger" disabled=${!can} onClick=${() => decide("deny", { note })}>Deny</button>
              <button type="button" class="button quiet" onClick=${back}>Back</button>`
          : html`<button type="button" class="button primary" disabled=${!ready} onClick=${() => decide("allow_once", changed())}>Allow once</button>
              ${details.can_remember && html`<${Always} disabled=${!ready} choose=${(scope) => decide("allow_always", { ...changed(), scope })} />`}
              <button type="button" class="button danger" disabled=${!can} onClick=${() => decide("deny", {})}>Deny</button>
              <button type="button" class="button quiet" disabled=${!can} onClick=${() => open({ denying: true })}>Deny with a note</button>
              ${details.can_edit && html`<button type="button" class="button quiet" disabled=${!can || value === undefined}
                onClick=${() => open(editing ? { editing: false, edited: "" } : { editing: true, edited: JSON.stringify(value, null, 2) })}>${editing ? "Undo edits" : "Edit arguments"}</button>`}`}
      <span class="approval-state">${state}</span>
    </div>`}
    ${error && html`<p class="field-error" role="alert">${error}</p>`}
  </section>`;
}

const MENU_HEIGHT = 260; // with some room

function Always({ disabled, choose }) {
  const [side, setSide] = useState("up");
  const place = (event) => setSide(event.currentTarget.getBoundingClientRect().top > MENU_HEIGHT ? "up" : "down");
  return html`<${Popover} label="Always allow this tool" side=${side} button=${(props) => html`<button ...${props} class="button" disabled=${disabled}
      aria-haspopup="menu" onClick=${(event) => {
        place(event);
        props.onClick();
      }}>Always allow<${Icon} name="chevron" size=${15} /></button>`}>
    ${(close) => html`<${Menu} label="Always allow this tool" close=${close}
      items=${SCOPES.map(([scope, label]) => ({ label, action: () => choose(scope) }))} />
      <p class="approval-hint">Until the tool changes. You can take it back under Approvals.</p>`}</${Popover}>`;
}

function Claims({ claims, server }) {
  const words = claimWords(claims);
  if (!words.length) return null;
  return html`<div><dt>Claimed by the server</dt><dd><span class="claimed">${words.join("; ")}</span>
    <span class="muted small"> (${visible(server || "the server")} says so; nobody checked it)</span></dd></div>`;
}

function jsonProblem(text) {
  try {
    const value = JSON.parse(text);
    return value && typeof value === "object" && !Array.isArray(value) ? "" : "Arguments are a JSON object.";
  } catch (error) {
    return `This is not JSON: ${error.message}`;
  }
}
