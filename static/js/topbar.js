// The bar over a chat: the way to the sidebar, the title, what the connection is like.
import { Connection } from "./connection.js";
import { useChat, useStore } from "./context.js";
import { newChat } from "./conversation.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { toggleSidebar } from "./layout.js";
import { waitingCalls } from "./state.js";
import { keys } from "./words.js";

export function TopBar() {
  const chat = useChat();
  const title = useStore((state) => (state.view === "new" ? "New chat" : state.conversation?.title || ""));
  const elsewhere = useStore((state) => state.approvals > waitingCalls(state).length);
  return html`<button type="button" class="button quiet icon menu-button" aria-label=${elsewhere ? "Show the sidebar: something waits for you" : "Show the sidebar"} title=${`Show the sidebar (${keys("Mod+Shift+S")})`}
      onClick=${toggleSidebar}><${Icon} name="menu" />${elsewhere && html`<span class="dot warn"></span>`}</button>
    <h1 class="topbar-title" dir="auto">${title || html`<span class="visually-hidden">Chat</span>`}</h1>
    <button type="button" class="button quiet icon topbar-new" aria-label="New chat" title=${`New chat (${keys("Mod+Shift+O")})`} onClick=${() => newChat(chat)}><${Icon} name="edit" /></button>
    <${Connection} />`;
}
