// What a person answers to questions: each answer goes out once, under an id of its own, and its card is locked until the
// server says what came of it or the connection is another one. Kept here, so that it outlives every rendering.
import { announce } from "./announce.js";
import { load } from "./conversation.js";
import { newId } from "./ids.js";

const NO_CONNECTION = "There is no connection. Try again when it is back.";
const underWay = new Map(); // request id → what it is about: the id of a question, or of a call that is cancelled

/** What is known of an answer: `{state: "" | "sending" | "failed", message, errors, …}`, with what its card keeps there. */
export function answerTo(state, id) {
  return state.answers[id];
}

export function change(chat, id, fields) {
  chat.store.set((state) => ({ answers: { ...state.answers, [id]: { ...state.answers[id], ...fields } } }));
}

/** Send `frame` about `id`, and lock its card with `fields`; false where that is under way, or there is no connection. */
export function request(chat, id, frame, fields = {}) {
  if (answerTo(chat.store.get(), id)?.state === "sending") return false;
  const requestId = newId();
  if (!chat.socket.send({ ...frame, request_id: requestId })) {
    change(chat, id, { state: "failed", message: NO_CONNECTION });
    return false;
  }
  underWay.set(requestId, id);
  change(chat, id, { ...fields, state: "sending", message: "", errors: new Map() });
  return true;
}

/** Whether `frame`, an error, is of such a request. Answered elsewhere is no error: see how it stands. */
export function requestRefused(chat, frame) {
  const id = underWay.get(frame.request_id);
  if (!id) return false;
  underWay.delete(frame.request_id);
  if (frame.code === "already_answered") {
    const { conversation } = chat.store.get();
    change(chat, id, { state: "" });
    if (conversation) load(chat, conversation.id);
    return true;
  }
  change(chat, id, { state: "failed", errors: new Map(Object.entries(frame.fields || {})), message: frame.message });
  announce(frame.message);
  return true;
}

/** The question is settled, or asked anew: what was sent, and what was entered, was of before. */
export function forget(chat, id) {
  for (const [requestId, about] of underWay) if (about === id) underWay.delete(requestId);
  if (answerTo(chat.store.get(), id)) chat.store.set((state) => ({ answers: { ...state.answers, [id]: undefined } }));
}

/** Another connection: what the server said over the one before is lost, so everything may be sent again. */
export function unlock(chat) {
  underWay.clear();
  const { answers } = chat.store.get();
  for (const [id, answer] of Object.entries(answers)) if (answer?.state === "sending") change(chat, id, { state: "" });
}
