// Answers to what servers ask: what is entered so far is kept here, so that it outlives every rendering.
import { announce } from "./announce.js";
import { load } from "./conversation.js";
import { newId } from "./ids.js";

const byRequest = new Map(); // request id → question id

/** What is known of an answer: `{values, errors, state: "" | "sending" | "failed", action, message, opened}`. */
export function answerTo(state, questionId) {
  return state.answers[questionId];
}

export function change(chat, questionId, fields) {
  chat.store.set((state) => ({ answers: { ...state.answers, [questionId]: { ...state.answers[questionId], ...fields } } }));
}

/** Answer once: while it is under way nothing more is sent. */
export function answer(chat, questionId, action, content) {
  if (answerTo(chat.store.get(), questionId)?.state === "sending") return;
  const requestId = newId();
  const frame = { type: "elicitation.answer", request_id: requestId, elicitation_id: questionId, action };
  if (content) frame.content = content;
  if (!chat.socket.send(frame)) {
    change(chat, questionId, { state: "failed", message: "There is no connection. Try again when it is back." });
    return;
  }
  byRequest.set(requestId, questionId);
  change(chat, questionId, { state: "sending", action, message: "", errors: new Map() });
  announce({ accept: "Sent.", decline: "Declined.", cancel: "Cancelled." }[action]);
}

/** Whether `frame`, an error, is of such a request. Answered elsewhere is no error: see how it stands. */
export function answerRefused(chat, frame) {
  const questionId = byRequest.get(frame.request_id);
  if (!questionId) return false;
  byRequest.delete(frame.request_id);
  if (frame.code === "already_answered") {
    const { conversation } = chat.store.get();
    change(chat, questionId, { state: "" });
    if (conversation) load(chat, conversation.id);
    return true;
  }
  const errors = new Map(Object.entries(frame.fields || {}));
  change(chat, questionId, { state: "failed", errors, message: frame.message });
  announce(frame.message);
  return true;
}
