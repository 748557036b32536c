// What a key means in the composer. Pure, because the details matter.

/**
 * `"send"`, `"edit-last"` or null (the browser's own meaning) for a keydown. With `sendWith` "enter" Enter sends and
 * Shift+Enter breaks the line; with "mod-enter" only Ctrl/Cmd+Enter sends.
 */
export function meaning(event, { sendWith = "enter", empty = false } = {}) {
  // An input method takes Enter to accept a candidate. Safari ends the composition before that keydown, which then
  // has only the key code 229 to tell.
  if (event.isComposing || event.keyCode === 229) return null;
  if (event.key === "Enter") {
    if (event.shiftKey || event.altKey) return null;
    const modified = event.ctrlKey || event.metaKey;
    return modified || sendWith === "enter" ? "send" : null;
  }
  const plain = !(event.shiftKey || event.altKey || event.ctrlKey || event.metaKey);
  return event.key === "ArrowUp" && plain && empty ? "edit-last" : null;
}
