// What this browser keeps for us: `localStorage`, or `sessionStorage` for one tab.

/** Undefined where that is forbidden: everything that keeps copes without. */
export function storageOf(name) {
  try {
    return window[name];
  } catch {
    return undefined;
  }
}
