// The bar over a chat: the way to the sidebar, the title, what the connection is like.
import { useEffect, useState } from "preact/hooks";
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
  const waiting = useStore((state) =>
    Math.max(0, state.approvals - waitingCalls(state).length) + Object.entries(state.running).filter(([id, status]) => status === "waiting" && id !== state.conversation?.id).length);
  return html`<button type="button" class="button quiet icon menu-button" aria-label="Show the sidebar" title=${`Show the sidebar (${keys("Mod+Shift+S")})`}
      onClick=${toggleSidebar}><${Icon} name="menu" />${waiting > 0 && html`<span class="dot warn"></span>`}</button>
    <h1 class="topbar-title" dir="auto">${title || html`<span class="visually-hidden">Chat</span>`}</h1>
    <button type="button" class="button quiet icon topbar-new" aria-label="New chat" title=${`New chat (${keys("Mod+Shift+O")})`} onClick=${() => newChat(chat)}><${Icon} name="edit" /></button>
    <${Connection} />`;
}

const QUIET = 2500; // a short interruption is not worth a word

function Connection() {
  const chat = useChat();
  const connection = useStore((state) => state.connection);
  const [late, setLate] = useState(false);
  const usual = connection.state === "open" || (connection.state === "connecting" && !connection.before);
  useEffect(() => {
    if (usual) {
      setLate(false);
      return undefined;
    }
    const timer = setTimeout(() => setLate(true), QUIET);
    return () => clearTimeout(timer);
  }, [usual]);
  const problem = PROBLEMS[connection.state];
  if (problem) return html`<div class="banner error" role="alert"><${Icon} name="warning" /><span>${problem.text}</span>${problem.action(chat)}</div>`;
  if (usual || !late) return null;
  const offline = connection.state === "offline";
  return html`<div class="banner" role="status"><span class=${offline ? "dot warn" : "spinner"}></span>
    <span>${offline ? "You are offline. What you write is kept." : "Reconnecting. What you write is kept."}</span>
    <button type="button" class="button quiet" onClick=${() => chat.socket.retryNow()}>Try now</button></div>`;
}

const link = (address, words) => html`<a class="button" href=${address}>${words}</a>`;

const PROBLEMS = {
  signed_out: { text: "You are signed out. What you wrote is kept.", action: () => link(`/accounts/login/?next=${encodeURIComponent(location.pathname)}`, "Sign in") },
  removed: { text: "You are no longer a member of this organization.", action: () => link("/", "Go to your chats") },
  outdated: { text: "There is a new version of this page.", action: () => link(location.pathname, "Load it") },
};
