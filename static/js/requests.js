// What a person answers to questions: each answer goes out under an id of its own, and its card is locked until the server
// says what came of it. A lost connection may have taken it along: it goes out again over the next one, and a question is
// answered once. Kept here, so that it outlives every rendering.
import { announce } from "./announce.js";
import { load } from "./conversation.js";
import { newId } from "./ids.js";

const NO_CONNECTION = "There is no connection. Try again when it is back.";
const LOST = "The connection was lost before this was sent. Answer again.";
const KEEP = 10 * 60_000; // what is older is not sent behind one's back
const requests = new WeakMap(); // by chat: request id → {id, frame, at}: `id` is that of a question, or of a call that is cancelled

function underWay(chat) {
  if (!requests.has(chat)) requests.set(chat, new Map());
  return requests.get(chat);
}

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
  const named = { ...frame, request_id: newId() };
  if (!chat.socket.send(named)) {
    change(chat, id, { state: "failed", message: NO_CONNECTION });
    return false;
  }
  underWay(chat).set(named.request_id, { id, frame: named, at: Date.now() });
  change(chat, id, { ...fields, state: "sending", message: "", errors: new Map() });
  return true;
}

/** Whether `frame`, an error, is of such a request. Answered elsewhere is no error: see how it stands. */
export function requestRefused(chat, frame) {
  const { id } = underWay(chat).get(frame.request_id) || {};
  if (!id) return false;
  underWay(chat).delete(frame.request_id);
  if (frame.code === "already_answered") {
    const { conversation } = chat.store.get();
    forget(chat, id);
    if (conversation) load(chat, conversation.id);
    return true;
  }
  change(chat, id, { state: "failed", errors: new Map(Object.entries(frame.fields || {})), message: frame.message });
  announce(frame.message);
  return true;
}

/** The question is settled, or asked anew: what was sent, and what was entered, was of before. */
export function forget(chat, id) {
  for (const [requestId, about] of underWay(chat)) if (about.id === id) underWay(chat).delete(requestId);
  chat.forms.drop(id);
  if (answerTo(chat.store.get(), id)) chat.store.set((state) => ({ answers: { ...state.answers, [id]: undefined } }));
}

/** Another connection: what the server did not answer goes out again, and what is too old for that is given back. */
export function sendAgain(chat, now = Date.now()) {
  for (const { frame, at } of underWay(chat).values()) if (now - at < KEEP) chat.socket.send(frame);
  giveBack(chat, ({ at }) => now - at >= KEEP);
}

/** Unlock the cards of those under way that are `meant`: with another try, nothing is lost. */
export function giveBack(chat, meant = () => true) {
  for (const [requestId, about] of underWay(chat)) {
    if (!meant(about)) continue;
    underWay(chat).delete(requestId);
    change(chat, about.id, { state: "failed", message: LOST });
  }
}
