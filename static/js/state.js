// The state of the page, and what is read off it. Pure.
import { asksMeanwhile, isOpen } from "./turn.js";
import { childrenOf, newestLeaf, pathTo } from "./tree.js";

export function initialState(config) {
  return {
    connection: { state: "connecting", retryAt: 0, since: Date.now(), before: false },
    agents: null, // [{slug, name, …}] once loaded
    agentsError: "",
    agent: null, // slug, for a new chat
    tools: { on: true, off: [] }, // off: slugs of servers
    accounts: {}, // server's slug → id of the account that was chosen for this chat, to be sent
    view: config.conversation ? "loading" : "new", // then ready, missing or failed
    viewError: "",
    conversation: null,
    messages: {}, // id → message
    leaf: null,
    turn: null, // the open turn of this conversation
    pending: null, // a request for one: {requestId, type, parentId, messageId, parts, at}
    signIns: {}, // server's slug → what became of a sign-in there: see sign-in.js
    approvals: 0, // how many wait for this person, wherever they were asked
    answers: {}, // id of a question, or of a call that is cancelled → what is entered and sent: see requests.js
    editing: null, // id of the message that is being edited
    stopping: null, // id of the turn, or of the request, that is being stopped
    asked: false, // a question was sent from here: the last turn gets the height to stand at the top
    toasts: [],
    typed: false, // something stands in the message field
    length: 0, // of it
    chips: [], // files of the message that is being written: see attachments.js
    notice: null, // above the composer: {kind, text, code}
    list: { items: [], next: null, state: "loading", query: "", archived: false, error: "" },
    running: {}, // conversation id → status of its open turn
    unseen: {}, // conversation id → true: an answer ended while another chat was shown
  };
}

export function isBusy(state) {
  return Boolean(state.turn || state.pending);
}

/** The agent of the conversation, or the one chosen for a new chat; null while agents load. */
export function agentOf(state) {
  const slug = state.conversation ? state.conversation.agent?.slug : state.agent;
  return state.agents?.find((agent) => agent.slug === slug) || null;
}

/** The server as any of the person's agents lists it; undefined where none does (any more). Pure. */
export function serverOf(state, slug) {
  return (state.agents || []).flatMap((agent) => agent.servers || []).find((server) => server.slug === slug);
}

const WAITING_ANSWER = { id: "pending-answer", role: "assistant", parts: [], status: "running", placeholder: true };

/** The messages to be shown, from the root to the end: what is being written in its newest form, what is sent as sent. */
export function shownPath(state) {
  const { pending, turn, messages } = state;
  let path = pathTo(messages, pending && pending.type !== "turn.continue" ? pending.parentId : state.leaf);
  if (turn) path = path.map((message) => (message.id === turn.message.id ? turn.message : message));
  if (!pending || pending.type === "turn.continue") return path;
  if (pending.type === "turn.start") {
    path = [...path, {
      id: pending.requestId, role: "user", parts: pending.parts, status: "completed", pending: true,
      created_at: new Date(pending.at).toISOString(),
    }];
  }
  return [...path, WAITING_ANSWER];
}

/** The message that a new question follows: the last answer shown. */
export function lastAnswer(state) {
  const last = pathTo(state.messages, state.leaf).findLast((message) => message.role === "assistant");
  return last ? last.id : null;
}

/** The fields of the state for a conversation as `GET …/messages` gives it. */
export function loaded({ conversation, messages, turn }) {
  const byId = Object.fromEntries(messages.map((message) => [message.id, message]));
  return { conversation, messages: byId, leaf: leafOf(conversation, byId), open: turn };
}

function leafOf(conversation, messages) {
  const chosen = conversation.current_leaf;
  if (chosen && messages[chosen]) return newestLeaf(messages, chosen);
  const roots = childrenOf(messages).get("") || [];
  return roots.length ? newestLeaf(messages, roots[roots.length - 1].id) : null;
}

/** Whether the call waits for a person: before it runs, or while it does. */
export function isAsking(call) {
  return call.status === "waiting" || asksMeanwhile(call);
}

/** Whether it is this person's word that the call waits for, and not only somebody else's. */
export function isMine(call) {
  return call.question?.details?.can_decide !== false;
}

/** The calls of the shown turn that wait for this person. */
export function waitingCalls(state) {
  if (!state.turn) return [];
  return state.turn.message.parts.filter((part) => part.type === "call" && isAsking(part) && isMine(part));
}

export function openTurns(turns) {
  return Object.fromEntries(
    turns.filter((turn) => isOpen(turn.status)).map((turn) => [turn.conversation_id, turn.status]),
  );
}
