// The card of a call that needs one's own account at a server: where, as whom, for what; connect, or go on without.
import { useState } from "preact/hooks";
import { useChat, useStore } from "./context.js";
import { askedAbout, decide } from "./deciding.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { beginAddress, beginOf, openWindow } from "./sign-in.js";
import { useRemaining } from "./remaining.js";
import { answerTo } from "./requests.js";
import { visible } from "./values.js";
import { toolWords } from "./words.js";

export function SignInCard({ call, live }) {
  const chat = useChat();
  const { details = {}, expires_at: expires, state } = call.question || {};
  const decision = useStore((one) => answerTo(one, askedAbout(call)));
  const heard = useOutcome(details.server || call.server);
  const left = useRemaining(expires);
  const server = visible(details.title || call.server_title || call.server);
  const open = live && state === "open" && left !== "" && decision?.state !== "sending";
  const title = `sign-in-${call.id}`;
  return html`<section class="approval sign-in" role="group" aria-labelledby=${title} id=${`ask-${call.id}`} tabindex="-1">
    <h3 id=${title}><${Icon} name="plug" size=${20} /><span><strong>${visible(toolWords(call))}</strong> needs ${details.new_scopes?.length ? "more access at" : "your account at"} <strong>${server}</strong></span></h3>
    <${Facts} details=${details} />
    <p class="muted small">Signing in opens a window of its own, and your password never comes here. Then this answer goes on by itself.</p>
    <div class="approval-actions">
      <${ConnectLink} server=${details.server || call.server} url=${details.url} disabled=${!open} words=${details.account ? "Sign in again" : "Connect"} primary />
      <button type="button" class="button" disabled=${!open} onClick=${() => decide(chat, call, "deny")}>Not now</button>
      <span class="approval-state">${stateWords({ live, state, decision, left })}</span>
    </div>
    <${Outcome} heard=${heard} />
    ${decision?.state === "failed" && html`<p class="field-error" role="alert">${decision.message}</p>`}
  </section>`;
}

function Facts({ details: { host, account, scopes = [], new_scopes: fresh = [] } }) {
  const had = scopes.filter((scope) => !fresh.includes(scope));
  return html`<dl class="approval-facts">
    <div><dt>You sign in at</dt><dd>${host ? html`<code>${visible(host)}</code>` : "The site that the server names"}</dd></div>
    <div><dt>Account</dt><dd>${account ? visible(account) : "The one that you choose there"}</dd></div>
    ${fresh.length > 0 && html`<div class="scopes-new"><dt>Also wants</dt><dd><${Scopes} scopes=${fresh} /></dd></div>`}
    ${(had.length > 0 || !fresh.length) && html`<div><dt>${fresh.length ? "Permissions so far" : "Permissions"}</dt>
      <dd>${had.length ? html`<${Scopes} scopes=${had} />` : "As that site asks you for them"}</dd></div>`}
  </dl>`;
}

function Scopes({ scopes }) {
  return html`<ul class="scopes">${scopes.map((scope) => html`<li key=${scope}><code>${visible(scope)}</code></li>`)}</ul>`;
}

/** A link that opens a window; where the browser lets no window open it is a link, and the other one stays in this tab. */
export function ConnectLink({ server, url, account = "", words = "Connect", disabled = false, primary = false }) {
  const chat = useChat();
  const [begun, setBegun] = useState(false);
  const from = url || beginOf(chat.config.organization.slug, server, account);
  const popup = beginAddress(from, { popup: true, back: location.pathname });
  const style = `button ${primary ? "primary" : ""}`;
  if (disabled || !popup) return html`<button type="button" class=${style} disabled>${words}</button>`;
  return html`<a class=${style} href=${popup} target="_blank" rel="noopener" onClick=${(event) => {
      setBegun(true);
      chat.store.set((state) => ({ signIns: { ...state.signIns, [server]: undefined } }));
      if (openWindow(popup)) event.preventDefault();
    }}>${words}<span class="visually-hidden"> (opens a window)</span></a>
    ${begun && html`<span class="sign-in-hint" role="status">No window, or closed too early? Choose ${words} again, or <a href=${beginAddress(from, { back: location.pathname })}>sign in in this tab</a>.</span>`}`;
}

/** What was heard of a sign-in at the server since this was shown: what came of an earlier one says nothing here. */
export function useOutcome(server) {
  const chat = useChat();
  const [before] = useState(() => chat.store.get().signIns[server]);
  const now = useStore((state) => state.signIns[server]);
  return now === before ? undefined : now;
}

export function Outcome({ heard }) {
  if (heard?.state === "done") {
    return html`<p class="sign-in-done"><${Icon} name="check" size=${16} />${heard.account ? `Signed in as ${visible(heard.account)}` : "Signed in"}</p>`;
  }
  return heard?.state === "failed" ? html`<p class="field-error">${visible(heard.message)}</p>` : null;
}

function stateWords({ live, state, decision, left }) {
  if (decision?.state === "sending") return "Going on without it";
  if (state === "answered") return "Answered";
  if (!live) return "No longer open";
  if (state !== "open") return "Closed";
  if (left === "") return "Expired";
  return left ? `Open for ${left}` : "";
}
