// What waits for a person's word, and what was allowed for good, over the HTTP API: loading it, answering, taking back.
import { announce, announceNow } from "./announce.js";
import { toolWords } from "./words.js";

const SOON = 150; // several hints of one moment are one look
const SHOWN = 200; // questions that the server lists: with fewer, they are all that are open
const OVER = {
  already_answered: (error) => error.message, // which says who was first, or what became of it
  not_found: () => "This is not asked about any more.",
};

/**
 * `store` holds `{approvals, standing, error, news, busy, failed}`; `busy` and `failed` are by id. `focus(section)` is
 * told where to go on, `waiting` or `always`, when the card of an answer goes. `forms` are what was entered and not sent.
 */
export function createDesk({ store, api, forms, focus }) {
  let asked = 0;
  let timer;

  function mark(kind, id, value) {
    store.set((state) => ({ [kind]: { ...state[kind], [id]: value } }));
  }

  /** Look again. Of several looks the last one counts, whichever is answered last. */
  async function load() {
    const look = ++asked;
    try {
      const [{ approvals }, { standing }] = await Promise.all([api.get("approvals"), api.get("approvals/standing")]);
      if (look !== asked) return;
      store.set({ approvals, standing, error: "" });
      if (approvals.length < SHOWN) forms.keepOnly(approvals.map(({ id }) => id));
    } catch (error) {
      if (look === asked) store.set({ error: error.message });
    }
  }

  /** What was answered is no longer asked about, even where nobody can be asked how the others stand. */
  function drop(kind, id) {
    forms.drop(id);
    store.set((state) => ({ [kind]: state[kind].filter((row) => row.id !== id) }));
  }

  async function tried(id, doing, action) {
    if (store.get().busy[id]) return undefined;
    mark("busy", id, doing);
    mark("failed", id, "");
    store.set({ news: "" });
    try {
      await action();
      return "";
    } catch (error) {
      if (OVER[error.code]) return OVER[error.code](error);
      mark("failed", id, error.code === "offline" ? `${error.message} Try again.` : error.message);
      return undefined;
    } finally {
      mark("busy", id, "");
    }
  }

  return {
    load,
    soon() {
      clearTimeout(timer);
      timer = setTimeout(load, SOON);
    },
    async decide(question, decision, { note = "", args, scope } = {}) {
      const body = { decision, note };
      if (scope) body.scope = scope;
      if (args !== undefined) body.arguments = args;
      const over = await tried(question.id, decision, () => api.post(`approvals/${question.id}`, body));
      if (over === undefined) return;
      drop("approvals", question.id);
      told(over ? `${toolWords(question)}: ${over}` : "", decision === "deny" ? "Denied." : "Allowed.");
      focus("waiting");
      await load();
    },
    async revoke(row) {
      const over = await tried(row.id, "revoke", () => api.delete(`approvals/standing/${row.id}`));
      if (over === undefined) return;
      drop("standing", row.id);
      told("", `${toolWords(row)} is asked about again.`);
      focus("always");
      await load();
    },
  };

  function told(news, done) {
    store.set({ news });
    if (news) announceNow(news);
    else announce(done);
  }
}
