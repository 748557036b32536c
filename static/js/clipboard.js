// Copying and saving, with a confirmation that is seen and heard.
import { announce } from "./announce.js";

/** Copy `text`; true if it worked. */
export async function copy(text, what = "Copied") {
  let done = false;
  try {
    await navigator.clipboard.writeText(text);
    done = true;
  } catch {
    done = copyOldStyle(text);
  }
  announce(done ? what : "Copying was not possible.");
  return done;
}

/** Without a secure context (plain HTTP in a local network) there is no clipboard API. */
function copyOldStyle(text) {
  const active = document.activeElement;
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "visually-hidden";
  field.setAttribute("aria-hidden", "true");
  document.body.append(field);
  field.select();
  let done = false;
  try {
    done = document.execCommand("copy");
  } catch {
    done = false;
  }
  field.remove();
  active?.focus?.();
  return done;
}

/** Offer `text` as a file to save. */
export function save(text, name, type = "text/plain") {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
