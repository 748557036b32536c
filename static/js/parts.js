// The parts of an answer in the order in which they came: text, reasoning, tool calls, notices.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { MarkdownView } from "./markdown-view.js";
import { SERVER_NOTICES, ServerNotice } from "./server-notice.js";
import { Calls } from "./toolcards.js";
import { Artifact } from "./toolresult.js";
import { UsageLink } from "./usage-link.js";
import { duration, wordsOf } from "./words.js";

/** Parts in segments: neighbouring calls together. Pure. */
function segments(parts) {
  const found = [];
  for (const part of parts) {
    const last = found[found.length - 1];
    if (part.type === "call" && last?.type === "calls") last.calls.push(part);
    else if (part.type === "call") found.push({ type: "calls", calls: [part] });
    else found.push(part);
  }
  return found;
}

export function Parts({ parts, streaming }) {
  const shown = segments(parts);
  return shown.map((part, index) => {
    const growing = streaming && index === shown.length - 1;
    if (part.type === "calls") return html`<${Calls} key=${part.calls[0].id} calls=${part.calls} live=${streaming} />`;
    if (part.type === "reasoning") return html`<${Reasoning} key=${index} part=${part} growing=${growing} />`;
    if (part.type === "notice" && SERVER_NOTICES.has(part.code)) return html`<${ServerNotice} key=${index} part=${part} />`;
    if (part.type === "notice") return html`<${Notice} key=${index} part=${part} />`;
    if (part.type === "attachment") return html`<${Artifact} key=${index} artifact=${part} />`;
    if (part.type !== "text" || !part.text) return null;
    if (part.kind === "trailing") {
      return html`<details key=${index} class="folded"><summary>Said beside the tool call</summary><${Markdown} text=${part.text} /></details>`;
    }
    return html`<${Markdown} key=${index} text=${part.text} streaming=${growing} kind=${part.kind} />`;
  });
}

export function Markdown({ text, streaming = false, kind = "" }) {
  const element = useRef(null);
  const view = useRef(null);
  useLayoutEffect(() => {
    view.current ??= new MarkdownView(element.current);
    let timer;
    const update = () => {
      const wait = view.current.update(text, streaming);
      if (wait) timer = setTimeout(update, wait);
    };
    update();
    return () => clearTimeout(timer);
  }, [text, streaming]);
  return html`<div class=${`markdown ${kind} ${streaming ? "growing" : ""}`} dir="auto" ref=${element}></div>`;
}

function Reasoning({ part, growing }) {
  const [open, setOpen] = useState(false);
  const thinking = growing && part.duration_ms === undefined;
  const words = thinking ? "Thinking" : part.duration_ms >= 1000 ? `Thought for ${duration(part.duration_ms)}` : "Thought for a moment";
  return html`<div class="reasoning">
    <button type="button" class="reasoning-summary" aria-expanded=${open} onClick=${() => setOpen(!open)}>
      <${Icon} name="chevron" size=${15} /><span class=${thinking ? "shimmer" : ""}>${words}</span></button>
    ${open && html`<div class="reasoning-text" dir="auto">${part.text}</div>`}</div>`;
}

function Notice({ part }) {
  return html`<div class="notice" role="note"><${Icon} name="warning" size=${15} /><div><span>${wordsOf(part)} <${UsageLink} code=${part.code} /></span>
    ${part.detail && html`<details><summary>Details</summary><pre class="value">${part.detail}</pre></details>`}</div></div>`;
}

/** The line under an answer that is being written; counts seconds once it takes longer. */
export function StatusLine({ words, since, still }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((count) => count + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  const seconds = Math.floor((Date.now() - since) / 1000);
  return html`<p class=${`status ${still ? "still" : ""}`}><span class="status-dots"><i></i><i></i><i></i></span><span class="status-words">${words}</span>
    ${!still && seconds >= 3 && html`<span class="muted status-time">${duration(seconds * 1000)}</span>`}</p>`;
}
