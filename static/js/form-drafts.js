// What was entered at a question and not sent yet, by question: kept in this tab through a reload, until the question ends,
// its person signs out, or somebody else signs in. Nothing is kept that looks like a secret.

const MOST = 20; // questions; the oldest goes
const FORMS = "chatui:forms:";
const SECRET = new RegExp(
  [
    "pass ?(word|phrase|code|wd)|secret|token|credential|authorization|cookie|bearer",
    "(api|private|access|ssh|signing|encryption) ?key|(card|account) ?number|credit ?card",
    "(verification|security|one time|auth|mfa|2fa) ?code",
    String.raw`\b(pass|pwd|pin|otp|cvv|cvc2?|jwt|ssn|iban)\b`,
  ].join("|"),
  "i",
);

/** Whether what is entered under such a name is better not written down. Pure. */
export function looksSecret(...names) {
  return names.some((name) => name && SECRET.test(name.replace(/([a-z])([A-Z])/g, "$1 $2").replace(/[-_.]+/g, " ")));
}

/** Whether a name in `text`, JSON or on the way to be that, looks secret. Pure. */
export function holdsSecret(text) {
  return [...text.matchAll(/"((?:[^"\\]|\\.)*)"\s*:/g)].some(([, name]) => looksSecret(name));
}

/** `scope` is `user:organization`; `storage` may fail or be full: then the page's own memory has to do. */
export function createFormDrafts(scope, storage) {
  const name = FORMS + scope;
  forgetOthers();
  const forms = stored();

  /** Another person's, who was signed in here before. */
  function forgetOthers() {
    try {
      const own = FORMS + scope.split(":")[0];
      const names = Array.from({ length: storage.length }, (_, index) => storage.key(index));
      for (const one of names) if (one.startsWith(FORMS) && !one.startsWith(`${own}:`)) storage.removeItem(one);
    } catch {
      // Forbidden: then there is nothing.
    }
  }

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
    /** Those of other questions are over. */
    keepOnly(questionIds) {
      const open = new Set(questionIds);
      for (const id of [...forms.keys()]) if (!open.has(id)) this.drop(id);
    },
    /** Those of calls that ask no more, as the messages of a conversation have them. */
    dropEnded(messages) {
      if (!forms.size) return;
      for (const { parts, status } of messages) {
        const over = status !== "running" && status !== "waiting";
        for (const { question } of parts) if (question && (over || question.state !== "open")) this.drop(question.id);
      }
    },
  };
}

function fits(entered, initial) {
  return typeof entered === typeof initial && Array.isArray(entered) === Array.isArray(initial);
}
