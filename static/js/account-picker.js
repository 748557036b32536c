// With which of one's accounts a server is used in this chat: shown in the picker, sent with the next message.
import { accountFor } from "./accounts.js";
import { useChat, useStore } from "./context.js";
import { html } from "./html.js";
import { ConnectLink } from "./sign-in-card.js";
import { visible } from "./values.js";

export function Accounts({ server }) {
  const chat = useChat();
  const account = useStore((state) => accountFor(state, server));
  if (server.identity !== "own" || server.state === "off") return null;
  const accounts = server.accounts || [];
  const choose = (id) => chat.store.set((state) => ({ accounts: { ...state.accounts, [server.slug]: id } }));
  const needed = server.state === "needs_sign_in" || account?.problem || !account;
  return html`<div class="server-accounts">
    ${accounts.length === 1 && account && html`<p class="server-account">As <strong>${visible(account.name)}</strong></p>`}
    ${(accounts.length > 1 || (accounts.length === 1 && !account)) && html`<label class="server-account"><span>In this chat as</span>
      <select value=${account?.id || ""} onChange=${(event) => choose(event.target.value)}>
        ${!account && html`<option value="" disabled>an account that is gone: choose one</option>`}
        ${accounts.map((one) => html`<option key=${one.id} value=${one.id}>${visible(one.name)}${one.problem ? " (sign in again)" : ""}</option>`)}</select></label>`}
    ${needed && html`<${ConnectLink} server=${server.slug} account=${account?.id} words=${accounts.length ? "Sign in again" : "Connect"} />`}
  </div>`;
}
