// Arguments and results as people read them. What comes from a model or a tool is shown whole and made visible: signs
// that hide or reorder text are written out.
import { useEffect, useState } from "preact/hooks";
import { html } from "./html.js";
import { useChat } from "./context.js";
import { count } from "./words.js";

const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e007f}]/gu;

/** `text` with invisible and direction-changing signs written as their code points. */
export function visible(text) {
  return text.replace(HIDDEN, (sign) => `\\u{${sign.codePointAt(0).toString(16)}}`);
}

export function pretty(value) {
  return visible(typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "");
}

/** `[[name, text]]` of an object's fields; null for anything else. */
export function fields(value) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return null;
  return Object.entries(value).map(([name, inner]) => [visible(name), pretty(inner)]);
}

/** Whether the server sent only the beginning of a value, with the address of the whole. */
export function isShortened(value) {
  return Boolean(value && typeof value === "object" && typeof value.truncated === "string" && value.url);
}

const GIST = 60; // characters of a closed line

/** The short values of a call's arguments in one line, so that two calls of one tool can be told apart. */
export function gist(value) {
  if (isShortened(value) || value === null || typeof value !== "object" || Array.isArray(value)) return "";
  const shown = Object.values(value).filter((inner) => ["string", "number", "boolean"].includes(typeof inner) && `${inner}`.trim());
  const line = visible(shown.map((inner) => `${inner}`.replace(/\s+/g, " ").trim()).join(", "));
  const signs = Array.from(line);
  return signs.length > GIST ? `${signs.slice(0, GIST).join("")}…` : line;
}

const LONG = 1200; // characters, or
const TALL = 24; // lines, above which a value scrolls in itself
const MANY = 40; // values, above which they scroll together

function isLong(text) {
  return text.length > LONG || text.split("\n", TALL + 1).length > TALL;
}

export function Text({ text, label }) {
  const long = isLong(text);
  return html`<pre class=${`value ${long ? "long" : ""}`} dir="auto" tabindex=${long ? 0 : undefined} role=${long ? "region" : undefined}
    aria-label=${long ? label : undefined}>${text}</pre>${long && html`<p class="value-note">${count(text.length, "character")}, all shown: scroll to read.</p>`}`;
}

export function Arguments({ value }) {
  const rows = fields(value);
  if (rows && !rows.length) return html`<p class="muted small">No arguments.</p>`;
  if (!rows) return html`<${Text} text=${pretty(value)} label="Arguments" />`;
  const many = rows.length > MANY;
  const list = html`<dl class="arguments">${rows.map(([name, text]) => html`<div key=${name}><dt>${name}</dt><dd><${Text} text=${text} label=${name} /></dd></div>`)}</dl>`;
  return many
    ? html`<div class="arguments-scroll" tabindex="0" role="region" aria-label="Arguments">${list}</div><p class="value-note">${count(rows.length, "value")}, all shown: scroll to read.</p>`
    : list;
}

/** The whole of a call that was shortened: `{call, error}`; null while it loads. Nothing is fetched unless `wanted`. */
export function useWholeCall(call, wanted) {
  return useWhole(`calls/${call.id}`, wanted, call.status);
}

/** The same of what has the address `path` in the API; it is fetched again with another `version`. */
export function useWhole(path, wanted, version) {
  const chat = useChat();
  const [whole, setWhole] = useState(null);
  useEffect(() => {
    if (!wanted) return undefined;
    let here = true;
    chat.api.get(path).then(
      (found) => here && setWhole({ call: found, error: "" }),
      (error) => here && setWhole({ call: null, error: error.message }),
    );
    return () => {
      here = false;
    };
  }, [path, version, wanted]);
  return whole;
}
