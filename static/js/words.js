// What people read for the codes of the protocol, and how times, sizes and numbers are written.

export const CALL_STATES = {
  pending: "Queued", waiting: "Waits for you", running: "Running", ok: "Done", error: "Failed", denied: "Denied",
  cancelled: "Cancelled", timeout: "Timed out", unavailable: "Unavailable", interrupted: "Interrupted",
  expired: "Expired, not run",
};

export const SERVER_STATES = {
  ready: "Ready", needs_setup: "Needs setup", needs_sign_in: "Needs sign-in", error: "Not working", off: "Off",
  unknown: "Not yet connected",
};

export const ENDINGS = {
  stopped: "You stopped this answer.",
  truncated: "This answer was cut off at the length limit.",
  interrupted: "This answer was interrupted.",
  exhausted: "A limit was reached; this is the answer from what was found so far.",
};

/** The line under an answer that is being written, by status code; the server's own label comes first. */
export const PROGRESS = {
  connecting: "Connecting to tools", thinking: "Thinking", calling: "Using a tool", writing_call: "Preparing a tool call",
  approval: "Waiting for your approval", authorization: "Waiting for your sign-in", elicitation: "Waiting for your answer",
};

export function duration(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return "";
  const seconds = milliseconds / 1000;
  if (seconds < 0.1) return "< 0.1 s";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes} min ${Math.round(seconds % 60)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function size(bytes) {
  if (bytes < 1024) return `${bytes} bytes`;
  if (bytes < 2 ** 20) return `${Math.round(bytes / 1024)} kB`;
  return `${(bytes / 2 ** 20).toFixed(1).replace(".0", "")} MB`;
}

export function count(number, one, many = `${one}s`) {
  // Setting up a locale's formats takes time that small numbers are not worth.
  return `${number < 1000 ? number : number.toLocaleString()} ${number === 1 ? one : many}`;
}

export function clock(date) {
  return new Date(date).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

export function dayAndTime(date) {
  return new Date(date).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

const MOMENT = /\b(\d{4}-\d\d-\d\d) (\d\d:\d\d) UTC/g;

export function isOfBudget(code) {
  return /^budget/.test(code || "");
}

/** The text of an error or notice: the moments in a budget's in the reader's own time too, where that is another one. */
export function wordsOf({ code, message }) {
  if (!isOfBudget(code) || !message) return message;
  return message.replace(MOMENT, (utc, day, time) => {
    const at = new Date(`${day}T${time}Z`);
    return at.getTimezoneOffset() ? `${utc} (${dayAndTime(at)} your time)` : utc;
  });
}

/** How long until `date`, roughly: "23 h", "5 min"; empty when it is over. */
export function remaining(date, now = Date.now()) {
  const minutes = Math.ceil((Date.parse(date) - now) / 60_000);
  if (!(minutes > 0)) return "";
  if (minutes < 90) return `${minutes} min`;
  return `${Math.round(minutes / 60)} h`;
}

/** A tool's name in human words: its title, else `search_notes` as "Search notes". */
export function toolWords(call) {
  if (call.title && call.title !== call.tool) return call.title;
  const words = (call.tool || call.title || "tool").replace(/[_\-./]+/g, " ").replace(/([a-z])([A-Z])/g, "$1 $2").trim();
  return words ? words[0].toUpperCase() + words.slice(1) : "Tool";
}

export const APPLE = /Mac|iPhone|iPad/.test(globalThis.navigator?.platform || "");

/** A shortcut as this platform writes it: `keys("Mod+Shift+O")`. */
export function keys(shortcut) {
  const names = APPLE ? { Mod: "⌘", Shift: "⇧", Alt: "⌥", Enter: "↩" } : { Mod: "Ctrl" };
  return shortcut.split("+").map((key) => names[key] || key).join(APPLE ? "" : "+");
}
