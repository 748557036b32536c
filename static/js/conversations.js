// The list of conversations in the sidebar: fetched by pages, searched, and kept true by what happens.
import { newChat } from "./conversation.js";

/** The list's verbs; its state is `store.get().list`. */
export function createList(chat) {
  const { store, api } = chat;
  let latest = 0;

  function change(fields) {
    store.set((state) => ({ list: { ...state.list, ...fields } }));
  }

  function changeItem(id, fields) {
    store.set(({ list, conversation }) => ({
      list: { ...list, items: list.items.map((item) => (item.id === id ? { ...item, ...fields } : item)) },
      conversation: conversation?.id === id ? { ...conversation, ...fields } : conversation,
    }));
  }

  async function fetchPage(cursor) {
    const { query, archived } = store.get().list;
    const asked = ++latest;
    try {
      const page = await api.get("conversations", { q: query, archived: archived ? "true" : "", cursor });
      if (asked !== latest) return;
      const before = cursor ? store.get().list.items : [];
      const known = new Set(before.map((item) => item.id));
      const items = [...before, ...page.items.filter((item) => !known.has(item.id))];
      change({ items, next: page.next, state: "ready", error: "" });
    } catch (error) {
      if (asked === latest) change({ state: "failed", error: error.message });
    }
  }

  /** Change it here at once, on the server next, and back again if that fails. */
  async function patch(item, fields) {
    const before = Object.fromEntries(Object.keys(fields).map((name) => [name, item[name]]));
    changeItem(item.id, fields);
    try {
      await api.patch(`conversations/${item.id}`, fields);
      return true;
    } catch (error) {
      changeItem(item.id, before);
      chat.toast(`That could not be stored. ${error.message}`);
      return false;
    }
  }

  function without(id) {
    store.set(({ list }) => ({ list: { ...list, items: list.items.filter((item) => item.id !== id) } }));
    if (store.get().conversation?.id === id) newChat(chat);
  }

  return {
    reload: () => fetchPage(null),
    more() {
      const { next, state } = store.get().list;
      if (!next || state === "more") return;
      change({ state: "more" });
      fetchPage(next);
    },
    search(query) {
      change({ query, state: "loading" });
      fetchPage(null);
    },
    showArchived(archived) {
      change({ archived, items: [], next: null, state: "loading" });
      fetchPage(null);
    },
    rename: (item, title) => patch(item, { title }),
    pin: (item) => patch(item, { pinned: !item.pinned }),
    async archive(item) {
      const archived = !item.archived;
      without(item.id);
      if (!(await patch(item, { archived }))) {
        fetchPage(null);
        return;
      }
      chat.toast(archived ? "Chat archived." : "Chat restored.", {
        label: "Undo",
        action: async () => {
          await patch(item, { archived: !archived });
          fetchPage(null);
        },
      });
    },
    async remove(item) {
      without(item.id);
      try {
        await api.delete(`conversations/${item.id}`);
      } catch (error) {
        chat.toast(`The chat could not be deleted. ${error.message}`);
        fetchPage(null);
        return;
      }
      chat.toast("Chat deleted.", {
        label: "Undo",
        action: async () => {
          await api.post(`conversations/${item.id}/restore`);
          fetchPage(null);
        },
      });
    },
    /** Something happened in it: it moves to the top (or appears there). */
    touched(conversation, at) {
      if (!conversation) return;
      store.set(({ list }) => {
        if (list.query || list.archived) return null;
        const found = list.items.find((item) => item.id === conversation.id);
        const item = { ...conversation, ...found, active_at: new Date(at).toISOString() };
        return { list: { ...list, items: [item, ...list.items.filter((one) => one.id !== item.id)] } };
      });
    },
    /** `conversation.updated` of this or another tab, with all of its fields. */
    updated(id, fields) {
      const { list } = store.get();
      const known = list.items.some((item) => item.id === id);
      const belongs = (fields.archived ?? list.archived) === list.archived;
      if (known && belongs) changeItem(id, fields);
      else if (known) change({ items: list.items.filter((item) => item.id !== id) });
      else if (belongs && !list.query && !fields.temporary) change({ items: [{ id, ...fields }, ...list.items] });
    },
  };
}
