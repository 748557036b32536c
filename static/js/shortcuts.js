// Keys for the whole page. All have a modifier; reload, find and print stay the browser's.
import { newChat } from "./conversation.js";
import { openDialog } from "./dialog.js";
import { html } from "./html.js";
import { isNarrow, openDrawer, toggleSidebar } from "./layout.js";
import { stop } from "./sending.js";
import { APPLE, keys } from "./words.js";

const SHORTCUTS = [
  ["Mod+Shift+O", "New chat", (chat) => newChat(chat)],
  ["Mod+K", "Search the chats", focusSearch],
  ["Mod+Shift+S", "Show or hide the sidebar", () => toggleSidebar()],
  ["Shift+Escape", "To the message field", (chat) => chat.composer.focus()],
  ["Mod+Shift+X", "Stop the answer", (chat) => stop(chat)],
  ["Mod+/", "This list", () => showShortcuts()],
];
const LOCAL = [["Enter", "Send, as set in the settings"], ["Shift+Enter", "Break the line"], ["↑", "Edit the last message, in an empty field"], ["Escape", "Close what is open"]];

function focusSearch() {
  if (isNarrow()) openDrawer();
  else if (document.documentElement.dataset.sidebar === "closed") toggleSidebar();
  document.getElementById("search")?.focus();
}

export function initShortcuts(chat) {
  document.addEventListener("keydown", (event) => {
    if (event.isComposing || event.keyCode === 229 || event.defaultPrevented) return;
    const found = SHORTCUTS.find(([shortcut]) => matches(event, shortcut));
    if (!found || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    found[2](chat);
  });
}

function matches(event, shortcut, apple = APPLE) {
  const wanted = shortcut.split("+");
  const key = wanted.pop();
  const modifier = apple ? event.metaKey : event.ctrlKey;
  const other = apple ? event.ctrlKey : event.metaKey;
  return modifier === wanted.includes("Mod") && event.shiftKey === wanted.includes("Shift") && !event.altKey && !other
    && event.key.toLowerCase() === key.toLowerCase();
}

export function showShortcuts() {
  const row = ([shortcut, words]) => html`<div key=${shortcut}><dt>${words}</dt><dd><kbd>${keys(shortcut)}</kbd></dd></div>`;
  openDialog({ title: "Keyboard shortcuts", body: () => html`<dl class="shortcuts">${SHORTCUTS.map(row)}${LOCAL.map(row)}</dl>` });
}
