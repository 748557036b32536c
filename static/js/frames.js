// What each frame of the server does to the state.
import { announce, announceNow } from "./announce.js";
import { anyOf } from "./approval-view.js";
import { countApprovals } from "./approvals.js";
import { follow, load, openConversation } from "./conversation.js";
import { settled } from "./deciding.js";
import { forget, requestRefused, sendAgain } from "./requests.js";
import { refused, resend, started } from "./sending.js";
import { heard } from "./sign-in.js";
import { openTurns } from "./state.js";
import { isOpen, isShort, reduce } from "./turn.js";
import { toolWords } from "./words.js";

export function onFrame(chat, frame) {
  if (frame.turn_id && frame.seq !== undefined) onTurnFrame(chat, frame);
  else HANDLERS[frame.type]?.(chat, frame);
}

const HANDLERS = {
  "hello"(chat, frame) {
    const { conversation, turn } = chat.store.get();
    chat.store.set({ running: openTurns(frame.turns) });
    countApprovals(chat);
    resend(chat);
    sendAgain(chat);
    const open = conversation && frame.turns.find((one) => one.conversation_id === conversation.id);
    if (turn) follow(chat);
    // What began or ended elsewhere while there was no connection is fetched.
    if (chat.greeted && conversation && (open?.turn_id !== turn?.id || !turn)) load(chat, conversation.id);
    if (chat.greeted) chat.list.reload();
    chat.greeted = true;
  },
  "error"(chat, frame) {
    if (!frame.request_id) {
      console.warn("chatui: the server reports", frame.code, frame.message);
    } else if (!refused(chat, frame)) {
      requestRefused(chat, frame);
    }
  },
  "conversation.updated"(chat, frame) {
    const { type, at, conversation_id: id, ...fields } = frame;
    chat.list.updated(id, fields);
    chat.store.set((state) =>
      state.conversation?.id === id ? { conversation: { ...state.conversation, ...fields } } : null);
  },
  "turn.changed"(chat, frame) {
    const { conversation_id: id, turn_id: turnId, status } = frame;
    const { conversation, turn, pending } = chat.store.get();
    const here = conversation?.id === id;
    chat.store.set((state) => ({
      running: { ...state.running, [id]: isOpen(status) ? status : undefined },
      unseen: !isOpen(status) && (!here || document.hidden) ? { ...state.unseen, [id]: true } : state.unseen,
    }));
    if (!here || pending) return;
    if (turn?.id !== turnId) {
      const known = Object.values(chat.store.get().messages).some((one) => one.turn_id === turnId && one.status === status);
      if (!known) load(chat, id);
    } else if (status === "running" && turn.status === "waiting") {
      follow(chat);
    }
  },
  "question.changed"(chat, frame) {
    countApprovals(chat);
    settled(chat, frame.question_id, frame.state);
  },
  "connection.changed"(chat, frame) {
    heard(chat, frame);
  },
};

async function onTurnFrame(chat, frame) {
  if (frame.type === "turn.started" && started(chat, frame)) announce("The answer is being written.");
  const { turn, pending } = chat.store.get();
  if (!turn || turn.id !== frame.turn_id) {
    if (frame.type === "turn.snapshot" && pending) await adopt(chat, frame, pending);
    return;
  }
  const next = reduce(turn, frame);
  if (next === turn) return;
  if (frame.type === "elicitation.resolved") forget(chat, frame.elicitation_id);
  if (frame.type === "call.finished") forget(chat, frame.call_id);
  if (frame.type === "call.finished" || next.ended) chat.forms.dropEnded([next.message]);
  if (next.stale && !turn.stale) {
    chat.store.set({ turn: next });
    follow(chat);
    return;
  }
  chat.store.set((state) => (next.ended ? finished(chat, next) : { turn: next, running: marked(state, next) }));
  if (isShort(frame)) load(chat, chat.store.get().conversation.id);
  tell(chat, frame, next);
}

/** The mark in the list follows the turn without waiting for `turn.changed`. */
function marked({ running, conversation }, turn) {
  const before = running[conversation.id];
  return before === turn.status ? running : { ...running, [conversation.id]: turn.status };
}

function finished(chat, turn) {
  const { messages, conversation, running, notice } = chat.store.get();
  const before = messages[turn.message.id];
  const message = { ...turn.message, parent_id: turn.message.parent_id ?? before?.parent_id ?? null };
  chat.list.touched(conversation, Date.now());
  return {
    messages: { ...messages, [message.id]: message }, turn: null, stopping: null,
    notice: notice?.kind === "busy" ? null : notice,
    running: { ...running, [conversation.id]: undefined },
  };
}

/** A request that was sent again turned out to be long under way: find where. */
async function adopt(chat, frame, pending) {
  chat.outbox.take(pending.requestId);
  chat.store.set({ pending: null });
  try {
    const found = await chat.api.get(`turns/${frame.turn_id}`);
    await openConversation(chat, found.conversation_id);
  } catch {
    chat.list.reload();
  }
}

const OUTCOMES = {
  completed: "The answer is complete.", stopped: "The answer was stopped.", truncated: "The answer was cut off.",
  exhausted: "The answer is complete; a limit was reached.", interrupted: "The answer was interrupted.",
};
const SPARSE = 15_000; // between spoken words about a long tool

function tell(chat, frame, turn) {
  if (frame.type === "turn.finished") {
    if (turn.outcome === "failed") announceNow(`The answer failed. ${turn.error?.message || ""}`);
    else announce(OUTCOMES[turn.outcome] || "The answer ended.");
    chat.composer?.answerEnded();
  } else if (frame.type === "elicitation.requested") {
    announceNow(`${frame.title || frame.server} asks you: ${frame.message.slice(0, 300)}`);
  } else if (frame.type === "call.approval" && frame.can_decide === false) {
    announce(`${toolWords(frame)} waits for the approval of ${anyOf(frame.approvers)}.`);
  } else if (frame.type === "call.approval") {
    announceNow(`${frame.server_title || frame.server} asks for your approval: ${toolWords(frame)}.`);
  } else if (frame.type === "authorization.required" && frame.call_id) {
    announceNow(`${frame.title || frame.server} asks you to sign in, so that this answer can go on.`);
  } else if (frame.type === "call.progress" && frame.message && frame.at - (chat.spoke || 0) > SPARSE) {
    chat.spoke = frame.at;
    announce(frame.message);
  }
}
