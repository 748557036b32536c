// Requests that were made and not yet answered. They survive a lost connection and a reload of the tab: the server
// takes the same `request_id` twice as one request, so sending again is always safe.

const KEEP = 10 * 60_000; // what is older is not sent behind one's back; it becomes a draft again

/** An entry is `{frame, conversation, text, attachments, at}`; `conversation` is null for a new chat. */
export function createOutbox(scope, storage, now = Date.now) {
  const name = `chatui:outbox:${scope}`;
  const entries = new Map();
  const stale = [];
  for (const entry of stored()) {
    if (now() - entry.at < KEEP) entries.set(entry.frame.request_id, entry);
    else stale.push(entry);
  }

  function stored() {
    try {
      const found = JSON.parse(storage.getItem(name) || "[]");
      return Array.isArray(found) ? found.filter((entry) => entry && entry.frame && entry.frame.request_id) : [];
    } catch {
      return [];
    }
  }

  function keep() {
    try {
      if (entries.size) storage.setItem(name, JSON.stringify([...entries.values()]));
      else storage.removeItem(name);
    } catch {
      // Kept in memory only.
    }
  }

  return {
    add(entry) {
      entries.set(entry.frame.request_id, { ...entry, at: now() });
      keep();
    },
    get: (requestId) => entries.get(requestId),
    take(requestId) {
      const entry = entries.get(requestId);
      if (entries.delete(requestId)) keep();
      return entry;
    },
    all: () => [...entries.values()],
    /** What was too old to be sent again, once. */
    takeStale: () => {
      keep();
      return stale.splice(0);
    },
  };
}
