// The row of actions under a message.
import { useState } from "preact/hooks";
import { copy } from "./clipboard.js";
import { useChat, useStore } from "./context.js";
import { switchBranch } from "./conversation.js";
import { ask } from "./dialog.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { Menu, Popover } from "./popover.js";
import { regenerate, send } from "./sending.js";
import { agentOf, isBusy } from "./state.js";
import { siblingsOf } from "./tree.js";
import { count, dayAndTime } from "./words.js";

export function IconButton({ icon, name, onClick, disabled, size = 17, ...more }) {
  return html`<button type="button" class="action" title=${name} aria-label=${name} disabled=${disabled} onClick=${onClick} ...${more}>
    <${Icon} name=${icon} size=${size} /></button>`;
}

function CopyButton({ text, name = "Copy" }) {
  const [done, setDone] = useState(false);
  return html`<${IconButton} icon=${done ? "check" : "copy"} name=${done ? "Copied" : name} onClick=${async () => {
    if (!(await copy(text, "Message copied"))) return;
    setDone(true);
    setTimeout(() => setDone(false), 1600);
  }} />`;
}

export function QuestionActions({ message, text }) {
  const chat = useChat();
  const busy = useStore(isBusy);
  return html`${text && html`<${CopyButton} text=${text} name="Copy your message" />`}
    <${IconButton} icon="edit" name="Edit your message" disabled=${busy} onClick=${() => chat.store.set({ editing: message.id })} />`;
}

/** Ask the same question again with a wish added to it: a new version of the question, visible as such. */
function askAgain(chat, question, wish) {
  const text = question.parts.filter((part) => part.type === "text").map((part) => part.text).join("\n\n");
  const files = question.parts.filter((part) => part.type === "attachment").map(({ type, ...file }) => file);
  send(chat, { text: `${text}\n\n${wish}`, attachments: files, parentId: question.parent_id || "root" });
}

export function AnswerActions({ message, question, text }) {
  const chat = useChat();
  const busy = useStore(isBusy);
  const others = useStore((state) => agentOf(state)?.other_models) || [];
  const items = question && [
    { label: "Try again", icon: html`<${Icon} name="refresh" size=${16} />`, action: () => regenerate(chat, message) },
    ...others.map((other) => ({ label: `With ${other.title}`, action: () => regenerate(chat, message, other.name) })),
    { label: "Shorter", action: () => askAgain(chat, question, "Please answer in a shorter form.") },
    { label: "Longer", action: () => askAgain(chat, question, "Please answer in more detail.") },
    { label: "With an instruction…", async action() {
      const wish = await ask({ title: "Answer again", label: "What should be different?", confirm: "Send" });
      if (wish) askAgain(chat, question, wish);
    } },
  ];
  return html`${text && html`<${CopyButton} text=${text} name="Copy the answer as Markdown" />`}
    ${items && html`<${Popover} label="Answer again" side="up" button=${(props) => html`<${IconButton} icon="refresh" name="Answer again" disabled=${busy} ...${props} aria-haspopup="menu" />`}>
      ${(close) => html`<${Menu} items=${items} close=${close} label="Answer again" />`}</${Popover}>`}
    <${Usage} message=${message} />`;
}

function Usage({ message }) {
  const { usage } = message;
  if (!usage) return null;
  return html`<${Popover} label="About this answer" side="up" button=${(props) => html`<${IconButton} icon="info" name="About this answer" ...${props} />`}>
    ${() => html`<dl class="about" data-focus tabindex="-1">
      ${message.model && html`<div><dt>Model</dt><dd>${message.model}</dd></div>`}
      <div><dt>Written</dt><dd>${dayAndTime(message.created_at)}</dd></div>
      <div><dt>Read</dt><dd>${count(usage.input_tokens || 0, "token")}</dd></div>
      <div><dt>Wrote</dt><dd>${count(usage.output_tokens || 0, "token")}</dd></div>
      ${usage.cost ? html`<div><dt>Cost</dt><dd>${Number(usage.cost).toLocaleString(undefined, { maximumFractionDigits: 4 })}</dd></div>` : null}
      ${usage.estimated && html`<div><dt></dt><dd class="muted">Estimated: the endpoint did not say.</dd></div>`}
    </dl>`}</${Popover}>`;
}

/** "2/3" with arrows where there are alternatives. */
export function Branches({ message, what }) {
  const chat = useChat();
  const messages = useStore((state) => state.messages);
  const busy = useStore(isBusy);
  const ids = siblingsOf(messages, message);
  if (ids.length < 2) return null;
  const at = ids.indexOf(message.id);
  const go = (step) => switchBranch(chat, ids[at + step]);
  return html`<div class="branches" role="group" aria-label=${`Which ${what}`}>
    <${IconButton} icon="back" name=${`Previous ${what}`} disabled=${at === 0 || busy} onClick=${() => go(-1)} size=${15} />
    <span class="branch-count" aria-label=${`${at + 1} of ${ids.length}`}>${at + 1}/${ids.length}</span>
    <${IconButton} icon="forward" name=${`Next ${what}`} disabled=${at === ids.length - 1 || busy} onClick=${() => go(1)} size=${15} />
  </div>`;
}
