// From what a person wants to a frame, and from the server's first answer to what is shown.
import { chosenAccounts } from "./accounts.js";
import { announce } from "./announce.js";
import { setAddress } from "./conversation.js";
import { failure } from "./errors.js";
import { newId } from "./ids.js";
import { agentOf, isBusy, lastAnswer } from "./state.js";
import { createTurn, isOpen } from "./turn.js";

const BUSY = "The answer is still being written. Your text stays here; send it when the answer is done.";

const timezone = () => Intl.DateTimeFormat().resolvedOptions().timeZone || "";

/** Send a question; false (with a notice above the composer) if that is not possible now. */
export function send(chat, { text, attachments = [], parentId }) {
  const state = chat.store.get();
  if (isBusy(state)) return refuse(chat, BUSY, "busy");
  if (!text.trim() && !attachments.length) return refuse(chat, "Write something first.");
  if (new Blob([text]).size > chat.config.limits.text_bytes) {
    return refuse(chat, "This is longer than 1 MiB. Attach it as a file instead.");
  }
  const agent = agentOf(state);
  if (!state.conversation && !agent) {
    if (state.agents) return refuse(chat, "There is no agent to ask.");
    chat.sendWhenLoaded = true;
    return refuse(chat, "This is sent as soon as the agents are loaded.");
  }
  const parent = parentId === undefined ? lastAnswer(state) : parentId;
  const content = attachments.map(({ id }) => ({ type: "attachment", id }));
  if (text.trim()) content.push({ type: "text", text });
  const frame = {
    type: "turn.start", request_id: newId(), content, timezone: timezone(),
    ...(state.conversation ? { conversation_id: state.conversation.id } : { agent: agent.slug }),
    ...(state.conversation && parent ? { parent_id: parent } : {}),
    ...toolChoice(state.tools, agent),
  };
  const accounts = chosenAccounts(state, agent);
  if (Object.keys(accounts).length) frame.accounts = accounts;
  // Control characters take six of JSON's: what the server would not read, it could not answer by its request id.
  if (JSON.stringify(frame).length > chat.config.limits.frame_characters) {
    return refuse(chat, "This holds too much that is no text. Attach it as a file instead.");
  }
  const parts = [...attachments.map((one) => ({ type: "attachment", ...one }))];
  if (text.trim()) parts.push({ type: "text", text });
  request(chat, frame, { text, attachments, parentId: parent === "root" ? null : parent, parts });
  return true;
}

/** Only what differs from the agent's own choice is sent. */
function toolChoice(tools, agent) {
  if (!tools.on) return { tools: false };
  const servers = (agent?.servers || []).map((server) => server.slug);
  const kept = servers.filter((slug) => !tools.off.includes(slug));
  return kept.length === servers.length ? {} : { servers: kept };
}

/** `model`: the name of another one that the agent may be asked for; null is the agent's own. */
export function regenerate(chat, message, model = null) {
  again(chat, message, { type: "turn.regenerate", ...(model ? { model } : {}) });
}

export function continueAnswer(chat, message) {
  again(chat, message, { type: "turn.continue" });
}

function again(chat, message, fields) {
  if (isBusy(chat.store.get())) {
    refuse(chat, "Wait until the answer is done.");
    return;
  }
  const frame = { ...fields, request_id: newId(), message_id: message.id, timezone: timezone() };
  request(chat, frame, { text: "", attachments: [], parentId: message.parent_id, messageId: message.id, parts: [] });
}

function request(chat, frame, { text, attachments, parentId, messageId = null, parts }) {
  const { conversation } = chat.store.get();
  chat.outbox.add({ frame, conversation: conversation?.id ?? null, text, attachments, parentId, messageId, parts });
  chat.store.set({ pending: pendingOf(chat.outbox.get(frame.request_id)), notice: null, editing: null });
  chat.scroll?.attach({ question: frame.type === "turn.start" });
  chat.socket.send(frame);
}

function pendingOf({ frame, parentId, messageId, parts, at }) {
  return { requestId: frame.request_id, type: frame.type, parentId, messageId, parts, at };
}

function refuse(chat, text, kind = "info") {
  chat.store.set({ notice: { kind, text } });
  announce(text);
  return false;
}

/** After a (re)connection: everything unanswered goes out again; the server takes it once. */
export function resend(chat) {
  for (const entry of chat.outbox.all()) chat.socket.send(entry.frame);
}

/** After a reload: show what is on its way in this chat, and give back what is too old to be sent unasked. */
export function restoreOutbox(chat, conversation) {
  for (const entry of chat.outbox.takeStale()) chat.drafts.restore(entry.conversation, entry.text);
  const entry = chat.outbox.all().find((one) => one.conversation === conversation);
  if (entry) chat.store.set({ pending: pendingOf(entry) });
}

/** `turn.started`: the request was taken. */
export function started(chat, frame) {
  const entry = chat.outbox.take(frame.request_id);
  const state = chat.store.get();
  if (!entry || state.pending?.requestId !== frame.request_id) return false;
  const { pending } = state;
  const now = new Date(frame.at).toISOString();
  const messages = { ...state.messages };
  if (pending.type === "turn.start") {
    messages[frame.user_message_id] = {
      id: frame.user_message_id, parent_id: pending.parentId, role: "user", parts: pending.parts, status: "completed",
      created_at: new Date(pending.at).toISOString(), local: pending.requestId,
    };
  }
  const before = messages[frame.message_id];
  const message = {
    ...(before || { parts: [], usage: null, error: null, created_at: now }),
    id: frame.message_id, parent_id: frame.user_message_id, role: "assistant", status: "running", turn_id: frame.turn_id,
    model: frame.model,
  };
  // After a lost connection the answer may have been fetched already, with some of its frames in it or all of them.
  const known = before?.turn_id === frame.turn_id;
  const over = known && !isOpen(before.status);
  const turn = state.turn?.id === frame.turn_id ? state.turn : createTurn(frame.turn_id, known ? before.seq : 0, message);
  messages[frame.message_id] = over ? before : message;
  const id = frame.conversation_id;
  const accounts = { ...state.conversation?.accounts, ...entry.frame.accounts };
  const conversation = state.conversation ? { ...state.conversation, accounts } : {
    id, title: titleOf(pending.parts), title_source: "question", agent: agentOf(state), pinned: false, archived: false,
    active_at: now, accounts,
  };
  chat.store.set({
    messages, leaf: frame.message_id, conversation, view: "ready", pending: null,
    turn: over ? null : turn, running: { ...state.running, [id]: over ? undefined : "running" },
  });
  if (!state.conversation) {
    setAddress(chat, id, { replace: true });
    chat.composer?.moved(id);
  }
  chat.list.touched(conversation, frame.at);
  if (state.stopping === frame.request_id) stop(chat);
  return true;
}

/** Stop the answer, or the request for one as soon as it is known. */
export function stop(chat) {
  const { turn, pending, connection } = chat.store.get();
  if (turn) {
    chat.socket.send({ type: "turn.stop", turn_id: turn.id });
    chat.store.set({ stopping: turn.id });
  } else if (pending && connection.state === "open") {
    chat.store.set({ stopping: pending.requestId });
  } else if (pending) {
    withdraw(chat);
  }
}

function titleOf(parts) {
  const text = parts.find((part) => part.type === "text")?.text || parts.map((part) => part.name).join(", ");
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > 60 ? `${line.slice(0, 59)}…` : line;
}

/** An `error` frame for a request: what was typed comes back, with the reason. */
export function refused(chat, frame) {
  const entry = chat.outbox.take(frame.request_id);
  if (!entry) return false;
  const state = chat.store.get();
  const here = state.pending?.requestId === frame.request_id;
  const { title, text } = failure(frame);
  if (!here) {
    chat.drafts.restore(entry.conversation, entry.text);
    chat.toast(`A message could not be sent. ${text}`);
    return true;
  }
  if (frame.code === "not_offered") { // what there is to choose from has changed
    chat.store.set({ accounts: {} });
    chat.loadAgents?.({ quiet: true });
  }
  chat.store.set({ pending: null, stopping: null, notice: { kind: "error", text: `${title} ${text}`.trim(), code: frame.code } });
  announce(`${title} ${text}`);
  if (entry.frame.type === "turn.start") chat.composer.giveBack(entry);
  return true;
}

/** Take back what has not left yet. */
export function withdraw(chat) {
  const { pending } = chat.store.get();
  const entry = pending && chat.outbox.take(pending.requestId);
  chat.store.set({ pending: null, stopping: null });
  if (entry && entry.frame.type === "turn.start") chat.composer.giveBack(entry);
}
