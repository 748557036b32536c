// Tool calls in an answer: one compact line each, opened for arguments and result; several in a row under a summary.
import { useEffect, useState } from "preact/hooks";
import { ApprovalCard } from "./approval.js";
import { useChat, useStore } from "./context.js";
import { cancelCall } from "./deciding.js";
import { ElicitationCard } from "./elicitation.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { SignInCard } from "./sign-in-card.js";
import { answerTo } from "./requests.js";
import { send } from "./sending.js";
import { isAsking, isBusy, lastAnswer } from "./state.js";
import { Artifact, isImage, ToolResult } from "./toolresult.js";
import { Arguments, gist, isShortened, useWholeCall, visible } from "./values.js";
import { CALL_STATES, count, dayAndTime, duration, toolWords } from "./words.js";

const ICONS = { ok: "check", waiting: "shield", pending: "clock", denied: "close", cancelled: "close", expired: "clock" };
const OPEN = new Set(["pending", "waiting", "running"]);
const CARDS = { approval: ApprovalCard, authorization: SignInCard, elicitation: ElicitationCard };

/** `live`: they belong to the answer that is being written now. */
export function Calls({ calls, live }) {
  const [choice, setChoice] = useState(null);
  if (calls.length === 1) return html`<div class="calls"><${Call} call=${calls[0]} live=${live} /></div><${Pictures} calls=${calls} />`;
  const asking = calls.filter(isAsking);
  const open = choice ?? (live || calls.some((call) => OPEN.has(call.status)) || calls.length < 4);
  return html`<div class="calls group">
    <button type="button" class="calls-summary" aria-expanded=${open} onClick=${() => setChoice(!open)}>
      <${Icon} name="tool" size=${16} /><span class="calls-words">${summary(calls)}</span>
      <${Icon} name="chevron" size=${16} /></button>
    ${open
      ? html`<div class="calls-list">${calls.map((call) => html`<${Call} key=${call.id} call=${call} live=${live} />`)}</div>`
      : asking.map((call) => html`<${Call} key=${call.id} call=${call} live=${live} />`)}
  </div><${Pictures} calls=${calls} />`;
}

/** Pictures are what was asked for: they are not hidden in a closed line. */
function Pictures({ calls }) {
  const found = calls.flatMap((call) => (call.artifacts || []).filter(isImage).map((artifact) => ({ call, artifact })));
  if (!found.length) return null;
  return html`<div class="pictures">${found.map(({ call, artifact }) => html`<div class="external" key=${artifact.id}>
    <p class="external-label"><${Icon} name="external" size=${14} />From ${call.server_title || call.server}</p><${Artifact} artifact=${artifact} /></div>`)}</div>`;
}

/** "3 tools used · Ticket system, Clock · 1 failed". */
function summary(calls) {
  const running = calls.filter((call) => OPEN.has(call.status));
  const failed = calls.filter((call) => !OPEN.has(call.status) && call.status !== "ok");
  const servers = [...new Set(calls.map((call) => call.server_title || call.server).filter(Boolean))];
  const words = [
    running.length ? `${calls.length - running.length} of ${count(calls.length, "tool call")} done` : count(calls.length, "tool call"),
    servers.slice(0, 3).join(", ") + (servers.length > 3 ? ` and ${servers.length - 3} more` : ""),
  ];
  if (failed.length) words.push(`${failed.length} not successful`);
  return words.filter(Boolean).join(" · ");
}

function Call({ call, live }) {
  if (isAsking(call) && call.question?.state !== "expired") {
    const Card = CARDS[call.question?.kind] || ApprovalCard;
    return html`<${Card} key=${call.question?.id} call=${call} live=${live} />`;
  }
  return html`<${CallLine} call=${call} live=${live} />`;
}

function CallLine({ call, live }) {
  const chat = useChat();
  const [open, setOpen] = useState(false);
  const cancelling = useStore((state) => answerTo(state, call.id)?.state === "sending");
  const running = call.status === "running" && live;
  const state = cancelling && running ? "Cancelling" : CALL_STATES[call.status] || call.status;
  const name = `${call.server_title || call.server || "Tool"}: ${toolWords(call)}`;
  const details = `call-${call.id}`;
  const given = gist(call.arguments);
  return html`<div class=${`call ${call.status}`}>
    <div class="call-line">
      <button type="button" class="call-open" aria-expanded=${open} aria-controls=${details} onClick=${() => setOpen(!open)}>
        <span class="call-icon"><${StateIcon} status=${call.status} live=${live} /></span>
        <span class="call-name"><span class="call-server">${call.server_title || call.server || "Tool"}</span> ${toolWords(call)}
          ${given && html`<span class="call-gist" dir="auto">${given}</span>`}</span>
        <span class="call-state">${state}</span>
        <span class="call-time">${running ? html`<${Elapsed} since=${call.started_at} />` : call.duration_ms ? duration(call.duration_ms) : ""}</span>
        <${Icon} name="chevron" size=${16} />
      </button>
      ${running && html`<button type="button" class="button quiet call-cancel" disabled=${cancelling} aria-label=${`Cancel ${name}`}
        onClick=${() => cancelCall(chat, call.id)}>Cancel</button>`}
    </div>
    ${running && call.progress && html`<${Progress} progress=${call.progress} name=${name} />`}
    ${call.status === "expired" && html`<${Expired} call=${call} />`}
    <div id=${details} class="call-details" hidden=${!open}>${open && html`<${Details} call=${call} />`}</div>
  </div>`;
}

/** Its time is over, but not its purpose: the question can be asked anew, by asking the agent. */
function Expired({ call }) {
  const chat = useChat();
  const newest = useStore((state) => !isBusy(state) && state.messages[lastAnswer(state)]?.parts.some((part) => part.id === call.id));
  return html`<div class="call-expired"><p>Nobody answered in time, so this was not run.</p>
    ${newest && html`<button type="button" class="button" aria-label=${`Ask again: ${toolWords(call)}`} onClick=${() => send(chat, { text: askAgain(call) })}>Ask again</button>`}</div>`;
}

/** What the agent is told in the person's name. Pure. */
export function askAgain(call) {
  return `My answer about “${toolWords(call)}” on ${call.server_title || call.server} came too late. Please try it again.`;
}

function StateIcon({ status, live }) {
  if (status === "running" && live) return html`<span class="spinner"></span>`;
  return html`<${Icon} name=${ICONS[status] || (status === "running" ? "clock" : "warning")} size=${16} />`;
}

function Progress({ progress: { progress, total, message }, name }) {
  const known = total > 0;
  const words = message || (known ? `${Math.round((progress / total) * 100)} %` : `${progress}`);
  return html`<div class="call-progress"><progress max=${known ? total : undefined} value=${known ? Math.min(progress, total) : undefined}
    aria-label=${name}></progress><span dir="auto">${words}${message && known ? html` <span class="muted">(${progress}/${total})</span>` : ""}</span></div>`;
}

function Details({ call }) {
  const shortened = isShortened(call.arguments);
  const whole = useWholeCall(call, shortened);
  const given = shortened && whole?.call ? whole.call.arguments : call.arguments;
  return html`<h3>Arguments</h3>
    <${Arguments} value=${shortened && !whole?.call ? call.arguments.truncated : given} />
    ${call.decided_by && html`<p class="decided"><${Icon} name="shield" size=${15} />${decidedWords(call)}</p>`}
    ${!call.decided_by && call.reason && html`<p class="muted small">${call.reason}</p>`}
    ${!OPEN.has(call.status) && html`<h3>${call.status === "ok" ? "Result" : CALL_STATES[call.status] || "Result"}</h3><${ToolResult} call=${call} />`}
    <p class="muted small">Tool <code>${visible(call.tool || "")}</code>${call.server ? ` of ${call.server_title || call.server}` : ""}</p>`;
}

/** A person's denial has no result; one with words is a rule's, which came after the person had allowed the call. */
function decidedWords(call) {
  const denied = call.status === "denied" && !(call.content || []).length;
  const at = call.decided_at ? `, ${dayAndTime(call.decided_at)}` : "";
  return `${denied ? "Denied" : "Allowed"} by ${call.decided_by}${at}`;
}

/** Counts the seconds, beside the live regions and not in them. */
function Elapsed({ since }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  const passed = since ? now - since : 0;
  return passed >= 1000 ? html`<span>${duration(Math.floor(passed / 1000) * 1000)}</span>` : null;
}
