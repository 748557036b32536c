// The card of a server's question: a form made from its schema, or an address to open; accept, decline or cancel.
import { useEffect, useRef } from "preact/hooks";
import { answer } from "./answering.js";
import { useChat, useStore } from "./context.js";
import { answerOf, fieldsOf, initialValues, safeAddress } from "./elicitation-form.js";
import { Field } from "./elicitation-fields.js";
import { looksSecret } from "./form-drafts.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { useRemaining } from "./remaining.js";
import { answerTo, change } from "./requests.js";
import { visible } from "./values.js";
import { toolWords } from "./words.js";

export function ElicitationCard({ call, live }) {
  const { question } = call;
  const { details = {} } = question;
  const given = useStore((state) => answerTo(state, question.id)) || {};
  const left = useRemaining(question.expires_at);
  const server = visible(details.title || call.server_title || call.server);
  const can = live && question.state === "open" && left !== "" && given.state !== "sending";
  const title = `elicitation-${question.id}`;
  const Body = details.mode === "url" ? Address : Form;
  return html`<section class="approval elicitation" role="group" aria-labelledby=${title} id=${`ask-${call.id}`} tabindex="-1">
    <h3 id=${title}><${Icon} name="info" size=${20} /><span><strong>${server}</strong> ${details.mode === "url" ? "asks you to open an address" : "asks you"}</span></h3>
    <div class="external"><p class="external-label"><${Icon} name="external" size=${14} />From ${server} for ${visible(toolWords(call))}, not checked${details.steps > 1 ? ` · question ${details.step} of ${details.steps}` : ""}</p>
      ${details.message && html`<p class="elicitation-message" dir="auto">${visible(details.message)}</p>`}</div>
    <${Body} question=${question} given=${given} can=${can} server=${server} state=${stateWords({ live, question, given, left })} />
    ${given.state === "failed" && html`<p class="field-error" role="alert">${given.message}</p>`}
  </section>`;
}

function Form({ question, given, can, server, state }) {
  const chat = useChat();
  const element = useRef(null);
  const fields = fieldsOf(question.details);
  const values = given.values || chat.forms.get(question.id, initialValues(fields));
  const errors = given.errors || new Map();
  const first = fields.find((field) => errors.has(field.name));
  useEffect(() => {
    // Who sent an answer with a mistake is led to it; nobody else's focus is taken.
    if (first && element.current?.contains(document.activeElement)) element.current.querySelector("[aria-invalid=true]")?.focus();
  }, [given.errors]);
  const enter = (field, value) => {
    const left = new Map(errors);
    left.delete(field.name);
    const entered = new Map(values).set(field.name, value);
    const secret = new Set(fields.filter(({ name, title, part }) => looksSecret(name, title, part.format)).map(({ name }) => name));
    chat.forms.set(question.id, new Map([...entered].filter(([name]) => !secret.has(name))));
    change(chat, question.id, { values: entered, errors: left, state: "", message: "" });
  };
  const submit = (event) => {
    event.preventDefault();
    if (!can) return;
    const made = answerOf(fields, values);
    if (made.errors.size) change(chat, question.id, { values, errors: made.errors, state: "failed", message: "Some of this is not right yet." });
    else answer(chat, question.id, "accept", made.content);
  };
  return html`<form class="elicitation-form" ref=${element} novalidate autocomplete="off" onSubmit=${submit}>
    ${fields.map((field) => html`<${Field} key=${field.name} field=${field} prefix=${question.id} value=${values.get(field.name)}
      error=${errors.get(field.name) || ""} disabled=${!can} enter=${(value) => enter(field, value)} />`)}
    ${fields.length > 0 && html`<p class="muted small">Your answer goes to ${server}. Never enter a password or another secret here.</p>`}
    <${Actions} question=${question} can=${can} state=${state} accept=${html`<button type="submit" class="button primary" disabled=${!can}>Accept${fields.length ? " and send" : ""}</button>`} />
  </form>`;
}

function Address({ question, given, can, server, state }) {
  const chat = useChat();
  const { url, host } = question.details;
  const address = safeAddress(url);
  return html`<div class="elicitation-form">
    <dl class="approval-facts">
      <div><dt>Leads to</dt><dd><strong class="elicitation-host">${visible(host || "")}</strong></dd></div>
      <div><dt>Address</dt><dd><code>${visible(url || "")}</code></dd></div>
    </dl>
    <p class="muted small">Open it only if you know ${visible(host || "that site")} and expected this. It is a page of another site, in a window of its own; what you do there is between you and it. Then tell ${server} here that you opened it.</p>
    ${can && address && html`<p><a class=${`button ${given.opened ? "" : "primary"}`} href=${address} target="_blank" rel="noopener noreferrer" referrerpolicy="no-referrer"
      onClick=${() => change(chat, question.id, { opened: true })}><${Icon} name="external" size=${16} />Open ${visible(host || "")}<span class="visually-hidden"> (opens a window)</span></a></p>`}
    <${Actions} question=${question} can=${can} state=${state} accept=${html`<button type="button" class=${`button ${given.opened ? "primary" : ""}`} disabled=${!can || !address}
      onClick=${() => answer(chat, question.id, "accept")}>Accept: I opened it</button>`} />
  </div>`;
}

function Actions({ question, can, accept, state }) {
  const chat = useChat();
  const say = (action) => () => answer(chat, question.id, action);
  return html`<div class="approval-actions">${accept}
    <button type="button" class="button" disabled=${!can} title="The server is told that you said no" onClick=${say("decline")}>Decline</button>
    <button type="button" class="button quiet" disabled=${!can} title="The server is told that you did not decide" onClick=${say("cancel")}>Cancel</button>
    <span class="approval-state">${state}</span></div>`;
}

function stateWords({ live, question, given, left }) {
  if (given.state === "sending") return { accept: "Sending", decline: "Declining", cancel: "Cancelling" }[given.action];
  if (question.state === "answered") return "Answered";
  if (!live) return "No longer open";
  if (question.state !== "open") return "Closed";
  if (left === "") return "Expired";
  return left ? `Open for ${left}` : "";
}
