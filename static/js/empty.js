// A new chat: who answers, what one might ask, what tools there are.
import { useChat, useStore } from "./context.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { send } from "./sending.js";
import { agentOf } from "./state.js";
import { SERVER_STATES } from "./words.js";

export function EmptyState() {
  const chat = useChat();
  const agents = useStore((state) => state.agents);
  const error = useStore((state) => state.agentsError);
  const agent = useStore(agentOf);
  if (error) {
    return html`<div class="hero"><h2 class="hero-title">The agents could not be loaded</h2><p class="muted">${error}</p>
      <p class="row center"><button type="button" class="button primary" onClick=${() => chat.loadAgents()}>Try again</button></p></div>`;
  }
  if (!agents) return html`<div class="hero" aria-hidden="true"></div>`;
  if (!agents.length) {
    return html`<div class="hero"><h2 class="hero-title">There is no agent for you yet</h2>
      <p class="muted">Ask an administrator of ${chat.config.organization.name} to give you access to one.</p>
      ${chat.config.admin && html`<p class="row center"><a class="button" href="/admin/">Open the administration</a></p>`}</div>`;
  }
  if (!agent) return null;
  const servers = agent.servers || [];
  return html`<div class="hero">
    <h2 class="hero-title">${agent.name}</h2>
    ${agent.description && html`<p class="hero-text">${agent.description}</p>`}
    ${agent.starters?.length > 0 && html`<ul class="starters" aria-label="Suggestions">${agent.starters.slice(0, 4).map((starter) => html`<li key=${starter}>
      <button type="button" class="starter" onClick=${() => send(chat, { text: starter })}><span>${starter}</span><${Icon} name="arrowUp" size=${16} /></button></li>`)}</ul>`}
    ${servers.length > 0 && html`<p class="hero-tools"><${Icon} name="tool" size=${15} /><span>Can use ${servers.map((server, index) => html`${index ? ", " : ""}<strong>${server.title}</strong>${
      server.state === "ready" || server.state === "unknown" ? "" : html` <span class="muted">(${(SERVER_STATES[server.state] || server.state).toLowerCase()})</span>`}`)}.
      Where no rule allows a tool already, you are asked first.</span></p>`}
  </div>`;
}
