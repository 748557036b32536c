// The card in the chat that asks before a tool runs.
import { Approval } from "./approval-view.js";
import { useChat, useStore } from "./context.js";
import { askedAbout, decide } from "./deciding.js";
import { html } from "./html.js";
import { useRemaining } from "./remaining.js";
import { answerTo } from "./requests.js";
import { isShortened, useWholeCall } from "./values.js";

export function ApprovalCard({ call, live }) {
  const chat = useChat();
  const { details = {}, expires_at: expires } = call.question || {};
  const decision = useStore((state) => answerTo(state, askedAbout(call)));
  const shortened = isShortened(call.arguments);
  const whole = useWholeCall(call, shortened);
  const left = useRemaining(expires);
  const taken = decision?.state === "sending" || (call.question && call.question.state !== "open");
  return html`<${Approval} id=${call.id} question=${askedAbout(call)} call=${call} details=${{ ...details, reason: call.reason || details.reason }}
    value=${shortened ? whole?.call?.arguments : call.arguments} loading=${whole?.error} can=${live && !taken && left !== ""}
    state=${stateWords({ live, decision, left, call })} error=${decision?.state === "failed" ? decision.message : ""}
    decide=${(verdict, more) => decide(chat, call, verdict, more)} />`;
}

/** How the question stands, in words. Pure. */
export function stateWords({ live, decision, left, call }) {
  const { state } = call.question || {};
  if (decision?.state === "sending") return decision.decision === "deny" ? "Denying" : "Allowing";
  if (state === "answered") return call.decided_by ? `Decided by ${call.decided_by}` : "Decided";
  if (state === "void") return "Closed";
  if (state === "expired" || (live && left === "")) return "Expired";
  if (!live) return "No longer open";
  return left ? `Open for ${left}` : "";
}
