// The note of an answer that goes on without a server, with the way to let the next one have it.
import { useChat, useStore } from "./context.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { setUp } from "./setup-dialog.js";
import { ConnectLink, Outcome, useOutcome } from "./sign-in-card.js";
import { serverOf } from "./state.js";

export const SERVER_NOTICES = new Set(["needs_sign_in", "needs_setup"]);

/** `part.detail` is the server's slug. */
export function ServerNotice({ part }) {
  const chat = useChat();
  const server = useStore((state) => serverOf(state, part.detail));
  const heard = useOutcome(part.detail);
  // With its values a server is not yet connected; that an account is missing is known only until it is ready.
  const missing = part.code === "needs_setup" ? server?.state === "needs_setup" : server && server.state !== "ready";
  const open = missing && heard?.state !== "done";
  return html`<div class="notice server-notice" role="note"><${Icon} name="plug" size=${15} /><div><p>${part.message}</p>
    <div class="notice-actions">
      ${open && part.code === "needs_sign_in" && html`<${ConnectLink} server=${part.detail} />`}
      ${open && part.code === "needs_setup" && server.variables?.length > 0 && html`<button type="button" class="button" onClick=${() => setUp(chat, server)}>Set up</button>`}
      <${Outcome} heard=${heard} />
      ${!open && server && html`<span class="muted small">It is used from your next message on.</span>`}</div></div></div>`;
}
