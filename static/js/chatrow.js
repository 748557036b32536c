// One chat in the sidebar: its link, its state, its menu, renaming in place.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { useChat } from "./context.js";
import { openConversation } from "./conversation.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { closeDrawer } from "./layout.js";
import { Menu, Popover } from "./popover.js";

export function ChatRow({ item, current, status, unseen }) {
  const chat = useChat();
  const [renaming, setRenaming] = useState(false);
  const title = item.title || "New chat";
  const address = `/o/${chat.config.organization.slug}/c/${item.id}/`;
  const state = status === "waiting" ? "needs your answer" : status ? "is being answered" : unseen ? "has a new answer" : "";
  const open = (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
    event.preventDefault();
    closeDrawer();
    if (!current) openConversation(chat, item.id);
  };
  const icon = (name) => html`<${Icon} name=${name} size=${16} />`;
  const items = [
    { label: "Rename", icon: icon("edit"), action: () => setRenaming(true) },
    { label: item.pinned ? "Unpin" : "Pin", icon: icon("pin"), action: () => chat.list.pin(item) },
    { label: item.archived ? "Move out of the archive" : "Archive", icon: icon("archive"), action: () => chat.list.archive(item) },
    { label: "Delete", icon: icon("trash"), danger: true, action: () => chat.list.remove(item) },
  ];
  if (renaming) return html`<li class="chat-row"><${Rename} item=${item} done=${() => setRenaming(false)} /></li>`;
  return html`<li class=${`chat-row ${current ? "current" : ""}`}>
    <a class="chat-link" href=${address} aria-current=${current ? "page" : undefined} onClick=${open} title=${title}>
      <span class="chat-title" dir="auto">${title}</span>
      ${state && html`<span class=${`chat-mark ${status || "unseen"}`}><span class="visually-hidden">, ${state}</span></span>`}</a>
    <${Popover} label=${`Actions for ${title}`} edge="end" button=${(props) => html`<button class="chat-menu" ...${props} aria-haspopup="menu"
      aria-label=${`Actions for ${title}`} title="Actions"><${Icon} name="dots" size=${16} /></button>`}>
      ${(close) => html`<${Menu} items=${items} close=${close} label=${`Actions for ${title}`} />`}</${Popover}></li>`;
}

function Rename({ item, done }) {
  const chat = useChat();
  const field = useRef(null);
  const finished = useRef(false);
  useLayoutEffect(() => field.current.select(), []);
  const finish = (store) => {
    if (finished.current) return;
    finished.current = true;
    const title = field.current.value.replace(/\s+/g, " ").trim();
    done();
    if (store && title && title !== item.title) chat.list.rename(item, title);
    requestAnimationFrame(() => document.querySelector(`.chat-link[href$="/${item.id}/"]`)?.focus());
  };
  return html`<input ref=${field} type="text" class="chat-rename" aria-label="New title" maxlength="200" value=${item.title} autofocus
    onBlur=${() => finish(true)} onKeyDown=${(event) => {
      if (event.isComposing || event.keyCode === 229) return;
      if (event.key === "Enter") finish(true);
      if (event.key === "Escape") {
        event.stopPropagation();
        finish(false);
      }
    }} />`;
}
