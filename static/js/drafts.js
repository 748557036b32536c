// What was typed and not sent, one text per conversation (and one for a new chat), kept through reload and navigation.

/** `scope` keeps users and organizations apart; `storage` may fail or be full: then drafts live in memory. */
export function createDrafts(scope, storage) {
  const memory = new Map();
  const key = (conversation) => `chatui:draft:${scope}:${conversation || "new"}`;

  return {
    get(conversation) {
      const name = key(conversation);
      if (memory.has(name)) return memory.get(name);
      try {
        return storage.getItem(name) || "";
      } catch {
        return "";
      }
    },
    set(conversation, text) {
      const name = key(conversation);
      memory.set(name, text);
      try {
        if (text.trim()) storage.setItem(name, text);
        else storage.removeItem(name);
      } catch {
        // Kept in memory, which is all that can be done.
      }
    },
    /** Put back what could not be sent, before what was typed since. */
    restore(conversation, text) {
      const typed = this.get(conversation);
      this.set(conversation, merge(text, typed));
    },
  };
}

/** A kept draft and what was typed before the script ran (or since): nothing is lost, nothing stands there twice. */
export function merge(draft, typed) {
  if (!typed.trim()) return draft;
  if (!draft.trim() || typed.startsWith(draft)) return typed;
  if (draft.startsWith(typed)) return draft;
  return `${draft}\n${typed}`;
}
