// The page of approvals: what waits for a person's word, from every chat and of other people too, and what the person has
// allowed for good. It follows what happens elsewhere over the socket.
import { render } from "preact";
import { createApi } from "../api.js";
import { Approval, SCOPES } from "../approval-view.js";
import { PROBLEMS, useLate } from "../connection.js";
import { ChatContext, useStore } from "../context.js";
import { createDesk } from "../desk.js";
import { createFormDrafts } from "../form-drafts.js";
import { html } from "../html.js";
import { Icon } from "../icons.js";
import { useRemaining } from "../remaining.js";
import { ChatSocket, socketAddress } from "../socket.js";
import { storageOf } from "../storage.js";
import { createStore } from "../store.js";
import { isShortened, useWhole, visible } from "../values.js";
import { count, dayAndTime, toolWords } from "../words.js";

const config = JSON.parse(document.getElementById("config").textContent);
const home = `/o/${config.organization.slug}/`;
const store = createStore({ approvals: null, standing: null, error: "", news: "", connection: { state: "connecting", before: false }, busy: {}, failed: {} });
const api = createApi({
  organization: config.organization.slug, csrfCookie: config.csrf_cookie,
  onSignedOut: () => location.assign(`/accounts/login/?next=${encodeURIComponent(location.pathname)}`),
});

const forms = createFormDrafts(`${config.user.id}:${config.organization.slug}`, storageOf("sessionStorage"));
const desk = createDesk({ store, api, forms, focus: (section) => document.getElementById(`${section}-title`)?.focus() });

function Page() {
  const state = useStore((all) => all);
  const problem = PROBLEMS[state.connection.state];
  return html`${problem && html`<div class="note error" role="alert"><p>${problem.text}</p>${problem.action()}</div>`}
    ${state.error && !problem && html`<div class="note error" role="alert"><p>${state.approvals && "What is shown may be out of date. "}${state.error}</p>
      <button type="button" class="button" onClick=${desk.load}>Try again</button></div>`}
    ${state.approvals && !state.error && !problem && html`<${Away} connection=${state.connection} />`}
    ${state.news && html`<div class="note" role="status"><p>${state.news}</p></div>`}
    ${state.approvals ? html`<${Waiting} state=${state} /><${Always} state=${state} />` : !state.error && !problem && html`<p class="muted">Loading</p>`}`;
}

/** Without the socket nothing is heard of what happens elsewhere. */
function Away({ connection }) {
  if (!useLate(connection)) return null;
  return html`<div class="note warning" role="status"><p>${connection.state === "offline" ? "You are offline." : "Reconnecting."} What is shown may be out of date.</p>
    <button type="button" class="button" onClick=${() => socket.retryNow()}>Try now</button></div>`;
}

function Waiting({ state }) {
  const { approvals } = state;
  const own = approvals.filter((one) => one.can_decide !== false).length;
  return html`<section aria-labelledby="waiting-title"><h2 id="waiting-title" tabindex="-1">Waiting${own > 0 && html` <span class="count">${own}</span>`}</h2>
    ${approvals.length
      ? html`<ul class="approvals">${approvals.map((one) => html`<li key=${one.id}>${one.kind === "approval"
          ? html`<${Question} question=${one} busy=${state.busy[one.id]} failed=${state.failed[one.id]} />`
          : html`<${Elsewhere} question=${one} />`}</li>`)}</ul>`
      : html`<div class="nothing"><${Icon} name="check" size=${20} /><p>Nothing waits for you. When an agent wants to use a tool that has to be asked about, it is here and in its chat.</p></div>`}
  </section>`;
}

function Question({ question, busy, failed }) {
  const shortened = isShortened(question.arguments);
  const whole = useWhole(`approvals/${question.id}`, shortened);
  const left = useRemaining(question.expires_at);
  const facts = [];
  const { asked_by: by, agent, conversation } = question;
  if (!question.mine) facts.push(["Asked for", by.name ? `${by.name} (${by.username})` : by.username]);
  if (agent) facts.push(["Agent", agent.name]);
  if (conversation) facts.push(["Chat", html`<a href=${`${home}c/${conversation.id}/`}>${conversation.title || "Untitled chat"}</a>`]);
  const words = busy ? (busy === "deny" ? "Denying" : "Allowing") : `Open for ${left}`;
  const over = left === "" && !busy && html`<p class="approval-others"><${Icon} name="clock" size=${15} />This expired: nobody answered in time, so the tool does not run.${conversation ? " Ask again in its chat." : ""}</p>
    ${conversation && html`<a class="button" href=${`${home}c/${conversation.id}/`}>Open the chat</a>`}`;
  return html`<${Approval} id=${question.id} question=${question.id} call=${question} details=${question} facts=${facts} value=${shortened ? whole?.call?.arguments : question.arguments}
    loading=${whole?.error} can=${!busy && left !== ""} state=${words} over=${over} error=${failed} decide=${(decision, more) => desk.decide(question, decision, more)} />`;
}

const ELSEWHERE = { authorization: "asks you to sign in", elicitation: "asks you something" };

function Elsewhere({ question }) {
  const { conversation } = question;
  return html`<section class="elsewhere"><p><strong>${question.server_title || question.server}</strong> ${ELSEWHERE[question.kind]}${conversation && html`
      <span class="muted small elsewhere-chat" dir="auto">${conversation.title || "Untitled chat"}</span>`}</p>
    ${conversation && html`<a class="button" href=${`${home}c/${conversation.id}/`}>Open the chat<span class="visually-hidden"> ${conversation.title}</span></a>`}</section>`;
}

const STATES = {
  changed: "The tool has changed since, so you are asked again.",
  withdrawn: "The server does not offer this tool any more.",
  off: "The server is switched off.",
};

function Always({ state }) {
  const { standing } = state;
  const active = standing.filter((row) => row.state === "active").length;
  return html`<section aria-labelledby="always-title"><h2 id="always-title" tabindex="-1">Always allowed</h2>
    ${standing.length
      ? html`<p class="muted small">${active > 0 && `${count(active, "tool runs", "tools run")} without asking you, in your own chats alone. `}A tool that changes is asked about again.</p>
          <ul class="standing">${standing.map((row) => html`<${Standing} key=${row.id} row=${row} busy=${state.busy[row.id]} failed=${state.failed[row.id]} />`)}</ul>`
      : html`<div class="nothing"><${Icon} name="shield" size=${20} /><p>You have not allowed any tool for good. “Always allow” is beside “Allow once” where the rules let you.</p></div>`}
  </section>`;
}

function Standing({ row, busy, failed }) {
  const scope = SCOPES.find(([name]) => name === row.scope)[1];
  const where = row.scope === "conversation"
    ? html`In the chat <a href=${`${home}c/${row.conversation?.id}/`}>${row.conversation?.title || "Untitled chat"}</a>`
    : row.scope === "agent" ? `With the agent ${row.agent?.name}` : scope;
  return html`<li><div class="standing-words">
      <p class="standing-name"><strong>${toolWords(row)}</strong> on ${row.server_title}</p>
      <p class="muted small">${where} · since ${dayAndTime(row.created_at)} · <code>${visible(row.tool)}</code></p>
      ${STATES[row.state] && html`<p class="standing-state small">${STATES[row.state]}</p>`}
      ${failed && html`<p class="field-error" role="alert">${failed}</p>`}</div>
    <button type="button" class="button" disabled=${Boolean(busy)} aria-label=${`Revoke: ${toolWords(row)} on ${row.server_title}`} onClick=${() => desk.revoke(row)}>Revoke</button></li>`;
}

const place = document.getElementById("approvals");
place.replaceChildren();
render(html`<${ChatContext.Provider} value=${{ store, api, forms }}><${Page} /></${ChatContext.Provider}>`, place);
desk.load();

const socket = new ChatSocket(socketAddress(config.organization.slug), {
  onFrame: (frame) => (frame.type === "hello" || frame.type === "question.changed") && desk.soon(),
  onState: (state) => (state === "signed_out" ? location.reload() : store.set(({ connection }) => ({ connection: { state, before: connection.before || state !== "connecting" } }))),
});
socket.open();
