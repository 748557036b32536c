// What the connection is like, where that is worth a word.
import { useEffect, useState } from "preact/hooks";
import { useChat, useStore } from "./context.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";

const QUIET = 2500; // a short interruption is not worth a word

/** Whether there has been no connection for so long that it is worth a word. */
export function useLate(connection) {
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
  return late && !usual;
}

export function Connection() {
  const chat = useChat();
  const connection = useStore((state) => state.connection);
  const late = useLate(connection);
  const problem = PROBLEMS[connection.state];
  if (problem) return html`<div class="banner error" role="alert"><${Icon} name="warning" /><span>${problem.text}</span>${problem.action()}</div>`;
  if (!late) return null;
  const offline = connection.state === "offline";
  return html`<div class="banner" role="status"><span class=${offline ? "dot warn" : "spinner"}></span>
    <span>${offline ? "You are offline. What you write is kept." : "Reconnecting. What you write is kept."}</span>
    <button type="button" class="button quiet" onClick=${() => chat.socket.retryNow()}>Try now</button></div>`;
}

const link = (address, words) => html`<a class="button" href=${address}>${words}</a>`;

/** What trying again does not cure: `{text, action()}` by the state of the socket. */
export const PROBLEMS = {
  signed_out: { text: "You are signed out. What you wrote is kept.", action: () => link(`/accounts/login/?next=${encodeURIComponent(location.pathname)}`, "Sign in") },
  removed: { text: "You are no longer a member of this organization.", action: () => link("/", "Go to your chats") },
  outdated: { text: "There is a new version of this page.", action: () => link(location.pathname, "Load it") },
};
