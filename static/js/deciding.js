// Decisions about single calls: allow, deny, cancel.
import { announce } from "./announce.js";
import { forget, request } from "./requests.js";

/** What a decision about `call` is kept under: another question about the same call is another decision. */
export function askedAbout(call) {
  return call.question?.id || call.id;
}

export function decide(chat, call, decision, { note = "", args, scope } = {}) {
  const frame = { type: "call.decide", call_id: call.id, decision };
  if (call.question?.id) frame.question_id = call.question.id; // sent twice, it must not answer another question
  if (note.trim()) frame.note = note.trim();
  if (args !== undefined) frame.arguments = args;
  if (scope) frame.scope = scope;
  if (!request(chat, askedAbout(call), frame, { decision })) return;
  announce(decision === "deny" ? "Denied." : "Allowed.");
  goOn(chat, call.id);
}

/** The card goes, and with it the focus of who decided in it: on to the next question, else to the message field. */
function goOn(chat, callId) {
  if (!document.getElementById(`ask-${callId}`)?.contains(document.activeElement)) return;
  const next = document.querySelector(`.approval:not(#ask-${CSS.escape(callId)}):has(.approval-actions .button:enabled)`);
  if (next) next.focus();
  else if (matchMedia("(pointer: fine)").matches) chat.composer?.focus();
}

export function cancelCall(chat, callId) {
  const sent = request(chat, callId, { type: "call.cancel", call_id: callId });
  if (!sent) chat.toast("There is no connection. The call goes on.");
}

/** `question.changed`: the answer came from here, another tab or another device, or it is too late for one. */
export function settled(chat, questionId, questionState) {
  if (questionState !== "open") forget(chat, questionId);
  chat.store.set((state) => {
    const { turn } = state;
    if (!turn) return null;
    const parts = turn.message.parts.map((part) =>
      part.question?.id === questionId && part.question.state !== questionState
        ? { ...part, question: { ...part.question, state: questionState } }
        : part);
    if (parts.every((part, index) => part === turn.message.parts[index])) return null;
    return { turn: { ...turn, message: { ...turn.message, parts } } };
  });
}
