// One message: what was said, by whom, what one can do with it.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { useChat, useStore } from "./context.js";
import { load } from "./conversation.js";
import { failure } from "./errors.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { AnswerActions, Branches, IconButton, QuestionActions } from "./message-actions.js";
import { meaning } from "./composer-keys.js";
import { Parts, StatusLine } from "./parts.js";
import { continueAnswer, regenerate, send } from "./sending.js";
import { setting } from "./settings.js";
import { agentOf } from "./state.js";
import { statusWords } from "./status-words.js";
import { Artifact } from "./toolresult.js";
import { copy } from "./clipboard.js";
import { UsageLink } from "./usage-link.js";
import { clock, dayAndTime, ENDINGS, wordsOf } from "./words.js";

function plainText(message) {
  const texts = message.parts.filter((part) => part.type === "text" && part.kind !== "trailing").map((part) => part.text);
  return texts.join("\n\n");
}

export function Question({ message, last }) {
  const editing = useStore((state) => state.editing === message.id);
  const text = plainText(message);
  const files = message.parts.filter((part) => part.type === "attachment");
  return html`<article class=${`message question ${message.pending ? "pending" : ""}`} aria-labelledby=${`h-${message.id}`}>
    <h2 id=${`h-${message.id}`} class="visually-hidden">You</h2>
    ${files.length > 0 && html`<div class="question-files">${files.map((file) => html`<${Artifact} key=${file.id} artifact=${file} />`)}</div>`}
    ${editing
      ? html`<${Editor} message=${message} text=${text} files=${files} />`
      : text && html`<div class="bubble" dir="auto">${text}</div>`}
    ${message.pending
      ? html`<p class="sent-state">Sending</p>`
      : !editing && html`<div class=${`actions ${last ? "shown" : ""}`}><${Time} at=${message.created_at} /><${QuestionActions} message=${message} text=${text} />
          <${Branches} message=${message} what="version of your message" /></div>`}
  </article>`;
}

function Editor({ message, text, files }) {
  const chat = useChat();
  const field = useRef(null);
  const [value, setValue] = useState(text);
  useLayoutEffect(() => { // before it is seen: who types at once must not find the cursor moved
    field.current.focus();
    field.current.setSelectionRange(value.length, value.length);
    field.current.parentElement.scrollIntoView({ block: "nearest" }); // whole, with its frame
  }, []);
  const close = () => {
    chat.store.set({ editing: null });
    chat.composer.focus();
  };
  const submit = () => {
    send(chat, { text: value, attachments: files.map(({ type, ...file }) => file), parentId: message.parent_id || "root" });
  };
  const onKeyDown = (event) => {
    if (event.key === "Escape" && !event.isComposing) {
      event.stopPropagation();
      close();
    } else if (meaning(event, { sendWith: setting("sendWith") }) === "send") {
      event.preventDefault();
      submit();
    }
  };
  return html`<div class="editor">
    <textarea ref=${field} aria-label="Edit your message" dir="auto" value=${value} onInput=${(event) => setValue(event.target.value)}
      onKeyDown=${onKeyDown}></textarea>
    <div class="editor-actions"><span class="muted small">The answer to the old version stays beside the new one.</span>
      <button type="button" class="button quiet" onClick=${close}>Cancel</button>
      <button type="button" class="button primary" disabled=${!value.trim() && !files.length} onClick=${submit}>Send</button></div>
  </div>`;
}

export function Answer({ message, last, question }) {
  const agent = useStore(agentOf);
  const conversation = useStore((state) => state.conversation);
  const turn = useStore((state) => (last ? state.turn : null));
  const name = agent?.name || conversation?.agent?.name || "Agent";
  const streaming = message.placeholder || turn?.message.id === message.id;
  return html`<article class="message answer" aria-labelledby=${`h-${message.id}`} aria-busy=${streaming} id=${last ? "last-answer" : undefined}
      tabindex=${last ? -1 : undefined}>
    <header class="answer-head"><h2 id=${`h-${message.id}`}>${name}</h2>
      ${message.model && html`<span class="answer-model" title="The model that wrote this">${message.model}</span>`}
      ${message.created_at && !streaming && html`<${Time} at=${message.created_at} />`}</header>
    <${Parts} parts=${message.parts} streaming=${streaming} />
    ${streaming && html`<${Status} message=${message} turn=${turn} />`}
    ${message.truncated === true && html`<${Cut} />`}
    ${!streaming && html`<${Ending} message=${message} last=${last} />`}
    ${!streaming && html`<div class=${`actions ${last ? "shown" : ""}`}><${AnswerActions} message=${message} question=${question} text=${plainText(message)} />
      <${Branches} message=${message} what="answer" /></div>`}
  </article>`;
}

function Status({ message, turn }) {
  const stopping = useStore((state) => Boolean(state.stopping));
  const connected = useStore((state) => state.connection.state === "open");
  const words = statusWords({ message, turn, stopping, connected });
  const since = useRef(Date.now());
  const shown = useRef(words);
  if (shown.current !== words) {
    shown.current = words;
    since.current = Date.now();
  }
  return words ? html`<${StatusLine} words=${words} since=${since.current} still=${turn?.status === "waiting"} />` : null;
}

const CONTINUABLE = new Set(["stopped", "truncated", "interrupted"]);

function Ending({ message, last }) {
  const chat = useChat();
  if (message.status === "failed") return html`<${ErrorCard} message=${message} />`;
  const words = ENDINGS[message.status];
  if (!words) return null;
  return html`<div class=${`ending ${message.status}`}><span>${message.error?.message && message.status !== "stopped" ? wordsOf(message.error) : words} <${UsageLink} code=${message.error?.code} /></span>
    ${last && CONTINUABLE.has(message.status) && html`<button type="button" class="button" onClick=${() => continueAnswer(chat, message)}>Continue</button>`}</div>`;
}

/** What did not fit into a frame is fetched at once; this stays where that failed. */
function Cut() {
  const chat = useChat();
  const id = useStore((state) => state.conversation?.id);
  return html`<div class="ending"><span>Only a part of this answer is shown.</span>
    <button type="button" class="button" onClick=${() => load(chat, id)}>Load all of it</button></div>`;
}

function ErrorCard({ message }) {
  const chat = useChat();
  const { title, text, code, requestId } = failure(message.error);
  return html`<section class="error-card" aria-label="Error">
    <h3><${Icon} name="warning" /><span>${title}</span></h3>
    <p>${text} <${UsageLink} code=${code} /></p>
    <div class="error-actions"><button type="button" class="button" onClick=${() => regenerate(chat, message)}><${Icon} name="refresh" size=${16} />Try again</button>
      <details><summary>Details</summary><p>Code <code>${code}</code>${requestId && html`, request <code>${requestId}</code>
        <${IconButton} icon="copy" name="Copy the request's id" onClick=${() => copy(requestId, "Copied")} />`}</p></details></div>
  </section>`;
}

function Time({ at }) {
  return html`<time class="time" datetime=${at} title=${dayAndTime(at)}>${clock(at)}</time>`;
}
