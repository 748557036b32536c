// The page of approvals: what waits for a person's word, from every chat and of other people too, and what the person has
// allowed for good. It follows what happens elsewhere over the socket.
import { render } from "preact";
import { announce, announceNow } from "../announce.js";
import { createApi } from "../api.js";
import { Approval, SCOPES } from "../approval-view.js";
import { PROBLEMS } from "../connection.js";
import { ChatContext, useStore } from "../context.js";
import { html } from "../html.js";
import { Icon } from "../icons.js";
import { useRemaining } from "../remaining.js";
import { ChatSocket, socketAddress } from "../socket.js";
import { createStore } from "../store.js";
import { isShortened, useWhole, visible } from "../values.js";
import { count, dayAndTime, toolWords } from "../words.js";

const config = JSON.parse(document.getElementById("config").textContent);
const home = `/o/${config.organization.slug}/`;
const store = createStore({ approvals: null, standing: null, error: "", connection: "connecting", busy: {}, failed: {} });
const api = createApi({
  organization: config.organization.slug, csrfCookie: config.csrf_cookie,
  onSignedOut: () => location.assign(`/accounts/login/?next=${encodeURIComponent(location.pathname)}`),
});

let timer;

async function load() {
  try {
    const [{ approvals }, { standing }] = await Promise.all([api.get("approvals"), api.get("approvals/standing")]);
    store.set({ approvals, standing, error: "" });
  } catch (error) {
    store.set({ error: error.message });
  }
}

function soon() {
  clearTimeout(timer);
  timer = setTimeout(load, 150);
}

function mark(kind, id, value) {
  store.set((state) => ({ [kind]: { ...state[kind], [id]: value } }));
}

async function decide(question, decision, { note = "", args, scope } = {}) {
  if (store.get().busy[question.id]) return;
  mark("busy", question.id, decision);
  mark("failed", question.id, "");
  const body = { decision, note };
  if (scope) body.scope = scope;
  if (args !== undefined) body.arguments = args;
  try {
    await api.post(`approvals/${question.id}`, body);
    announce(decision === "deny" ? "Denied." : "Allowed.");
  } catch (error) {
    if (error.code !== "already_answered" && error.code !== "not_found") {
      mark("failed", question.id, error.message);
      mark("busy", question.id, "");
      return;
    }
    announceNow("This was decided already.");
  }
  await load();
  mark("busy", question.id, "");
  document.getElementById("waiting-title")?.focus();
}

async function revoke(row) {
  mark("busy", row.id, "revoke");
  try {
    await api.delete(`approvals/standing/${row.id}`);
    announce(`${toolWords(row)} is asked about again.`);
    await load();
    document.getElementById("always-title")?.focus();
  } catch (error) {
    mark("failed", row.id, error.message);
  }
  mark("busy", row.id, "");
}

function Page() {
  const state = useStore((all) => all);
  const problem = PROBLEMS[state.connection];
  return html`${problem && html`<div class="note error" role="alert"><p>${problem.text}</p>${problem.action()}</div>`}
    ${state.error && !problem && html`<div class="note error" role="alert"><p>${state.approvals && "What is shown may be out of date. "}${state.error}</p>
      <button type="button" class="button" onClick=${load}>Try again</button></div>`}
    ${state.approvals ? html`<${Waiting} state=${state} /><${Always} state=${state} />` : !state.error && !problem && html`<p class="muted">Loading</p>`}`;
}

function Waiting({ state }) {
  const { approvals } = state;
  return html`<section aria-labelledby="waiting-title"><h2 id="waiting-title" tabindex="-1">Waiting${approvals.length > 0 && html` <span class="count">${approvals.length}</span>`}</h2>
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
  const words = busy ? (busy === "deny" ? "Denying" : "Allowing") : left === "" ? "Expired" : `Open for ${left}`;
  return html`<${Approval} id=${question.id} call=${question} details=${question} facts=${facts} value=${shortened ? whole?.call?.arguments : question.arguments}
    loading=${whole?.error} can=${!busy && left !== ""} state=${words} error=${failed} decide=${(decision, more) => decide(question, decision, more)} />`;
}

const ELSEWHERE = { authorization: "asks you to sign in", elicitation: "asks you something" };

function Elsewhere({ question }) {
  const { conversation } = question;
  return html`<section class="elsewhere"><p><strong>${question.server_title || question.server}</strong> ${ELSEWHERE[question.kind]}</p>
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
    <button type="button" class="button" disabled=${Boolean(busy)} aria-label=${`Revoke: ${toolWords(row)} on ${row.server_title}`} onClick=${() => revoke(row)}>Revoke</button></li>`;
}

const place = document.getElementById("approvals");
place.replaceChildren();
render(html`<${ChatContext.Provider} value=${{ store, api }}><${Page} /></${ChatContext.Provider}>`, place);
load();

new ChatSocket(socketAddress(config.organization.slug), {
  onFrame: (frame) => (frame.type === "hello" || frame.type === "question.changed") && soon(),
  onState: (state) => (state === "signed_out" ? location.reload() : store.set({ connection: state })),
}).open();
