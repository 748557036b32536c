// What was entered in a server's form and not sent yet, by question: kept in this tab through a reload.

const MOST = 20; // forms; the oldest goes

/** `scope` keeps users and organizations apart; `storage` may fail or be full: then the page's own memory has to do. */
export function createFormDrafts(scope, storage) {
  const name = `chatui:forms:${scope}`;
  const forms = stored();

  function stored() {
    try {
      return new Map(JSON.parse(storage.getItem(name) || "[]"));
    } catch {
      return new Map(); // forbidden, or written by something else
    }
  }

  function keep() {
    try {
      if (forms.size) storage.setItem(name, JSON.stringify([...forms]));
      else storage.removeItem(name);
    } catch {
      // Kept until the page is left.
    }
  }

  return {
    /** What stands in the fields, by name: what was entered, where it still fits its field, over `initial`. */
    get(questionId, initial) {
      const entered = new Map(Object.entries(forms.get(questionId) || {}));
      return new Map([...initial].map(([field, value]) => [field, fits(entered.get(field), value) ? entered.get(field) : value]));
    },
    set(questionId, values) {
      forms.delete(questionId);
      forms.set(questionId, Object.fromEntries(values));
      if (forms.size > MOST) forms.delete(forms.keys().next().value);
      keep();
    },
    drop(questionId) {
      if (forms.delete(questionId)) keep();
    },
  };
}

function fits(entered, initial) {
  return typeof entered === typeof initial && Array.isArray(entered) === Array.isArray(initial);
}
