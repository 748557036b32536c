// Which conversation is shown: opening, loading again, switching branches, and the address that goes with it.
import { loaded } from "./state.js";
import { newestLeaf } from "./tree.js";
import { createTurn, isShort } from "./turn.js";

function addressOf(chat, id) {
  const base = `/o/${chat.config.organization.slug}/`;
  return id ? `${base}c/${id}/` : base;
}

/** The id in an address of ours, null for a new chat. */
export function conversationIn(path) {
  return (/\/c\/([0-9a-f-]{36})\/$/.exec(path) || [])[1] || null;
}

export function setAddress(chat, id, { replace = false } = {}) {
  const address = addressOf(chat, id);
  if (location.pathname === address) return;
  history[replace ? "replaceState" : "pushState"]({}, "", address);
}

const NOTHING = {
  messages: {}, leaf: null, turn: null, pending: null, stopping: null, editing: null, notice: null,
  asked: false, accounts: {},
};

export function newChat(chat, { agent, address = true } = {}) {
  chat.loading?.abort();
  chat.composer?.leave();
  chat.store.set((state) => ({ ...NOTHING, view: "new", conversation: null, agent: agent || state.agent }));
  if (address) setAddress(chat, null);
  chat.composer?.enter(null);
}

export async function openConversation(chat, id, { address = true } = {}) {
  chat.composer?.leave();
  const known = chat.store.get().list.items.find((item) => item.id === id);
  chat.store.set((state) => ({
    ...NOTHING, view: "loading", conversation: known || { id, title: "", agent: null },
    unseen: { ...state.unseen, [id]: undefined },
  }));
  if (address) setAddress(chat, id);
  chat.composer?.enter(id);
  await load(chat, id);
}

/** Fetch the conversation (again) and follow its open turn. What was typed or chosen here stays. */
export async function load(chat, id) {
  chat.loading?.abort();
  const loading = new AbortController();
  chat.loading = loading;
  let found;
  try {
    found = await chat.api.get(`conversations/${id}/messages`, {}, loading.signal);
  } catch (error) {
    if (error.name === "AbortError" || loading.signal.aborted) return;
    chat.store.set((state) => {
      if (state.view === "ready" && error.status !== 404) return null;
      return { view: error.status === 404 ? "missing" : "failed", viewError: error.message };
    });
    return;
  }
  if (loading.signal.aborted) return;
  const { conversation, messages, leaf, open } = loaded(found);
  const message = open && Object.values(messages).find((one) => one.role === "assistant" && one.turn_id === open.id);
  const turn = message ? createTurn(open.id, message.seq, message, open.status) : null;
  chat.store.set((state) => {
    // Frames may have come while this was fetched: whichever knows more is kept, but for what is only a part.
    const ahead = turn && state.turn?.id === turn.id && state.turn.seq > turn.seq && !isShort(state.turn);
    return { view: "ready", conversation, messages, leaf, turn: ahead ? state.turn : turn };
  });
  chat.forms?.dropEnded(Object.values(messages));
  if (turn) follow(chat);
}

/** Ask for the frames of the open turn after the last one seen. */
export function follow(chat) {
  const { turn } = chat.store.get();
  if (turn) chat.socket.send({ type: "turn.follow", turn_id: turn.id, after: turn.seq });
}

/** Show the alternative `id`, along its newest branch; remembered on the server. */
export async function switchBranch(chat, id) {
  const { conversation, messages } = chat.store.get();
  const leaf = newestLeaf(messages, id);
  chat.store.set({ leaf, editing: null });
  try {
    await chat.api.patch(`conversations/${conversation.id}`, { current_leaf: leaf });
  } catch (error) {
    chat.toast(`The choice could not be stored. ${error.message}`);
  }
}
