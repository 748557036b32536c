// A person's settings of this browser: which key sends. (The theme has its own module: it stands before any script.)

const DEFAULTS = { sendWith: "enter" };
const name = (key) => `chatui:setting:${key}`;

export function setting(key) {
  try {
    return localStorage.getItem(name(key)) || DEFAULTS[key];
  } catch {
    return DEFAULTS[key];
  }
}

export function setSetting(key, value) {
  try {
    localStorage.setItem(name(key), value);
  } catch {
    // It holds for this page at least where it is read from the control itself.
  }
}
