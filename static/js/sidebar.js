// The sidebar: new chat, search, the chats by date, the person's menu. A drawer on narrow screens.
import { useEffect, useRef, useState } from "preact/hooks";
import { ApprovalsLink } from "./approvals.js";
import { ChatRow } from "./chatrow.js";
import { useChat, useStore } from "./context.js";
import { newChat } from "./conversation.js";
import { dateGroups } from "./dategroups.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { closeDrawer, toggleSidebar } from "./layout.js";
import { UserMenu } from "./usermenu.js";
import { keys } from "./words.js";

export function Sidebar() {
  const chat = useChat();
  const here = useStore((state) => state.view === "new");
  return html`
    <div class="sidebar-head"><a class="brand" href=${`/o/${chat.config.organization.slug}/`} onClick=${(event) => follow(event, chat)}>
        <${Mark} /><span>chatui</span></a>
      <button type="button" class="button quiet icon" title=${`Hide the sidebar (${keys("Mod+Shift+S")})`} aria-label="Hide the sidebar" onClick=${toggleSidebar}>
        <${Icon} name="sidebar" /></button></div>
    <div class="sidebar-tools">
      <a class=${`button wide new-chat ${here ? "here" : ""}`} href=${`/o/${chat.config.organization.slug}/`} title=${keys("Mod+Shift+O")}
        onClick=${(event) => follow(event, chat)}><${Icon} name="plus" />New chat</a>
      <${Search} />
    </div>
    <${Chats} />
    <div class="sidebar-foot"><${ApprovalsLink} /><${UserMenu} /></div>`;
}

function follow(event, chat) {
  if (event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  closeDrawer();
  newChat(chat);
}

/** The mark of base.html: one drawing for both. */
function Mark() {
  return html`<svg class="mark" viewBox="0 0 32 32" width="26" height="26" aria-hidden="true" focusable="false">
    <path d="M16 3.5c7 0 12.5 4.9 12.5 11.3S23 26.1 16 26.1c-1.3 0-2.6-.2-3.8-.5L6.4 28.4c-.6.3-1.2-.2-1.1-.8l.8-4.6c-1.6-2-2.6-4.9-2.6-8.2C3.5 8.4 9 3.5 16 3.5Z" fill="currentColor" />
    <path d="M10.2 15.3h3.2l1.9-4.4 2.5 8.2 1.7-3.8h2.5" fill="none" stroke="var(--mark-line)" stroke-width="2.1" stroke-linecap="round" stroke-linejoin="round" /></svg>`;
}

function Search() {
  const chat = useChat();
  const [text, setText] = useState("");
  const timer = useRef();
  const search = (value, delay) => {
    setText(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => chat.list.search(value.trim()), delay);
  };
  return html`<div class="search" role="search"><${Icon} name="search" size=${16} />
    <input id="search" type="search" placeholder="Search chats" aria-label="Search chats" autocomplete="off" value=${text} title=${keys("Mod+K")}
      onInput=${(event) => search(event.target.value, 200)}
      onKeyDown=${(event) => {
        if (event.key === "Escape" && text) {
          event.stopPropagation();
          search("", 0);
        } else if (event.key === "ArrowDown") {
          event.preventDefault();
          document.querySelector(".chat-link")?.focus();
        }
      }} /></div>`;
}

function Chats() {
  const chat = useChat();
  const list = useStore((state) => state.list);
  const current = useStore((state) => state.conversation?.id);
  const running = useStore((state) => state.running);
  const unseen = useStore((state) => state.unseen);
  const end = useRef(null);
  useEffect(() => {
    if (!list.next || !end.current) return undefined;
    const observer = new IntersectionObserver(([entry]) => entry.isIntersecting && chat.list.more());
    observer.observe(end.current);
    return () => observer.disconnect();
  }, [list.next, list.items.length]);
  const groups = list.query ? [{ label: "Found", items: list.items }] : dateGroups(list.items);
  return html`<nav class="chats" aria-label="Chats" onKeyDown=${arrows}>
    ${list.archived && html`<div class="archived-head"><span>Archived chats</span>
      <button type="button" class="button quiet" onClick=${() => chat.list.showArchived(false)}>Back to all</button></div>`}
    ${groups.map(({ label, items }) => html`<section key=${label} aria-label=${label}><h2 class="chats-label">${label}</h2>
      <ul>${items.map((item) => html`<${ChatRow} key=${item.id} item=${item} current=${item.id === current} status=${running[item.id]}
        unseen=${Boolean(unseen[item.id])} />`)}</ul></section>`)}
    <${Remark} list=${list} />
    ${list.next && html`<p class="chats-more" ref=${end}>Loading more</p>`}
  </nav>`;
}

function Remark({ list }) {
  const chat = useChat();
  if (list.state === "failed") {
    return html`<p class="chats-remark" role="status">The chats could not be loaded. <button type="button" class="link" onClick=${() => chat.list.reload()}>Try again</button></p>`;
  }
  if (list.items.length) return null;
  if (list.state === "loading") return html`<div class="chats-skeleton" aria-hidden="true"><i></i><i></i><i></i></div>`;
  if (list.query) return html`<p class="chats-remark" role="status">Nothing found for “${list.query}”.</p>`;
  return html`<p class="chats-remark">${list.archived ? "Nothing is archived." : "Your chats will be listed here."}</p>`;
}

/** Up and down go from chat to chat. */
function arrows(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step || !event.target.classList.contains("chat-link")) return;
  event.preventDefault();
  const links = [...event.currentTarget.querySelectorAll(".chat-link")];
  const next = links[links.indexOf(event.target) + step];
  if (next) next.focus();
  else if (step < 0) document.getElementById("search").focus();
}
