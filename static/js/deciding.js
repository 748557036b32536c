// Decisions about single calls: allow, deny, cancel.
import { announce } from "./announce.js";
import { load } from "./conversation.js";
import { newId } from "./ids.js";

const byRequest = new Map(); // request id → call id

/** Decide once: while it is under way, or after it was taken, nothing more is sent. */
export function decide(chat, callId, decision, { note = "", args, scope } = {}) {
  const { decisions } = chat.store.get();
  if (decisions[callId]?.state === "sending") return;
  const requestId = newId();
  const frame = { type: "call.decide", request_id: requestId, call_id: callId, decision };
  if (note.trim()) frame.note = note.trim();
  if (args !== undefined) frame.arguments = args;
  if (scope) frame.scope = scope;
  if (!chat.socket.send(frame)) {
    mark(chat, callId, { state: "failed", message: "There is no connection. Try again when it is back." });
    return;
  }
  byRequest.set(requestId, callId);
  mark(chat, callId, { state: "sending", decision });
  announce(decision === "deny" ? "Denied." : "Allowed.");
  goOn(chat, callId);
}

/** The card goes, and with it the focus of who decided in it: on to the next question, else to the message field. */
function goOn(chat, callId) {
  if (!document.getElementById(`ask-${callId}`)?.contains(document.activeElement)) return;
  const next = document.querySelector(`.approval:not(#ask-${CSS.escape(callId)}):has(.approval-actions .button:enabled)`);
  if (next) next.focus();
  else if (matchMedia("(pointer: fine)").matches) chat.composer?.focus();
}

export function cancelCall(chat, callId) {
  const requestId = newId();
  if (!chat.socket.send({ type: "call.cancel", request_id: requestId, call_id: callId })) {
    chat.toast("There is no connection. The call goes on.");
    return;
  }
  byRequest.set(requestId, callId);
  mark(chat, callId, { state: "cancelling" });
}

function mark(chat, callId, decision) {
  chat.store.set((state) => ({ decisions: { ...state.decisions, [callId]: decision } }));
}

/** The call is asked about: what was decided before was of another question. */
export function asked(chat, callId) {
  if (chat.store.get().decisions[callId]) mark(chat, callId, undefined);
}

/** An error for such a request. Decided elsewhere is no error: see how it stands. */
export function settledByRequest(chat, frame) {
  const callId = byRequest.get(frame.request_id);
  if (!callId) return;
  byRequest.delete(frame.request_id);
  if (frame.code === "already_answered") {
    const { conversation } = chat.store.get();
    mark(chat, callId, undefined);
    if (conversation) load(chat, conversation.id);
    return;
  }
  mark(chat, callId, { state: "failed", message: frame.message });
  announce(frame.message);
}

/** `question.changed`: the answer came from here, another tab or another device, or it is too late for one. */
export function settled(chat, questionId, questionState) {
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
