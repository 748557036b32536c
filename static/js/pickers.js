// Who answers, and with which tools: pickers in the composer, each server with its state.
import { useEffect, useState } from "preact/hooks";
import { Accounts } from "./account-picker.js";
import { useChat, useStore } from "./context.js";
import { newChat } from "./conversation.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { Popover } from "./popover.js";
import { setUp } from "./setup-dialog.js";
import { agentOf } from "./state.js";
import { showWhy } from "./why-dialog.js";
import { clock, count, SERVER_STATES, toolWords } from "./words.js";

export function AgentPicker() {
  const chat = useChat();
  const agents = useStore((state) => state.agents);
  const agent = useStore(agentOf);
  const bound = useStore((state) => state.conversation);
  const name = agent?.name || bound?.agent?.name;
  if (!agents?.length || !name) return null;
  return html`<${Popover} label="Choose an agent" side="up" edge="start" wide button=${(props) => html`<button class="button quiet pick" ...${props} title="Choose an agent"
      aria-label=${`Agent: ${name}`}><span class="pick-name">${name}</span><${Icon} name="chevron" size=${15} /></button>`}>
    ${(close) => html`<${AgentList} agents=${agents} current=${agent?.slug} bound=${bound} choose=${(slug) => {
      close();
      if (bound) newChat(chat, { agent: slug });
      else chat.chooseAgent(slug);
    }} />`}</${Popover}>`;
}

function AgentList({ agents, current, bound, choose }) {
  const [query, setQuery] = useState("");
  const wanted = query.trim().toLowerCase();
  const found = agents.filter((agent) => `${agent.name} ${agent.description || ""}`.toLowerCase().includes(wanted));
  return html`${agents.length > 6 && html`<input type="search" class="panel-search" data-focus placeholder="Search agents" aria-label="Search agents" value=${query}
      onInput=${(event) => setQuery(event.target.value)} />`}
    ${bound && html`<p class="panel-note">Another agent starts a new chat.</p>`}
    <ul class="panel-list">${found.map((agent) => html`<li key=${agent.slug}><button type="button" class="panel-item" aria-pressed=${agent.slug === current}
      onClick=${() => choose(agent.slug)}><span class="panel-words"><span class="panel-title">${agent.name}</span>
        ${agent.description && html`<span class="panel-text">${agent.description}</span>`}
        <span class="panel-text faint">${agent.model?.title || ""}</span></span>${agent.slug === current && html`<${Icon} name="check" />`}</button></li>`)}</ul>
    ${!found.length && html`<p class="panel-note">No agent is called so.</p>`}`;
}

export function ToolPicker() {
  const chat = useChat();
  const agent = useStore(agentOf);
  const tools = useStore((state) => state.tools);
  const servers = agent?.servers || [];
  if (!agent || !servers.length) return null;
  const on = tools.on ? servers.filter((server) => !tools.off.includes(server.slug)) : [];
  const broken = on.some((server) => ["needs_setup", "needs_sign_in", "error"].includes(server.state));
  const words = on.length ? `${count(on.length, "tool server")} on` : "Tools are off";
  return html`<${Popover} label="Tools" side="up" edge="start" wide onClose=${() => chat.loadAgents({ quiet: true })} button=${(props) => html`<button class=${`button quiet pick ${on.length ? "" : "off"}`} ...${props}
      title="Tools" aria-label=${`Tools: ${words}${broken ? ", one needs attention" : ""}`}><${Icon} name="tool" size=${17} /><span class="pick-count">${on.length}</span>
      ${broken && html`<span class="dot warn"></span>`}</button>`}>
    ${() => html`<${ServerList} agent=${agent} servers=${servers} tools=${tools} />`}</${Popover}>`;
}

const LOOK_AGAIN = 3000;

function ServerList({ agent, servers, tools }) {
  const chat = useChat();
  const unknown = servers.some((server) => server.state === "unknown");
  useEffect(() => {
    // What is shown was fetched when the page began; what is being connected is known in a moment.
    chat.loadAgents({ quiet: true });
    const timer = unknown && setInterval(() => chat.loadAgents({ quiet: true }), LOOK_AGAIN);
    return () => clearInterval(timer);
  }, [unknown]);
  return html`<label class="switch-row"><span class="panel-words"><span class="panel-title">Use tools</span>
      <span class="panel-text">${agent.model && agent.model.tools === false ? "This agent's model cannot use tools." : "For your next messages."}</span></span>
      <input type="checkbox" role="switch" class="switch" data-focus checked=${tools.on} onChange=${(event) => chat.chooseTools({ ...tools, on: event.target.checked })} /></label>
    <ul class="panel-list">${servers.map((server) => html`<${Server} key=${server.slug} agent=${agent} server=${server} tools=${tools} />`)}</ul>
    <p class="panel-foot"><a href=${`/o/${chat.config.organization.slug}/connections/`}>Manage connections</a></p>`;
}

function Server({ agent, server, tools }) {
  const chat = useChat();
  const [open, setOpen] = useState(false);
  const on = tools.on && !tools.off.includes(server.slug);
  const toggle = (event) => chat.chooseTools({
    ...tools, off: event.target.checked ? tools.off.filter((slug) => slug !== server.slug) : [...tools.off, server.slug],
  });
  const offered = server.tools || [];
  const usable = offered.filter((tool) => !tool.withheld);
  const missing = (server.variables || []).length > 0;
  return html`<li class="server">
    <label class="switch-row"><span class="panel-words"><span class="panel-title">${server.title}${server.own && html` <span class="set-mark">yours</span>`}</span>
      <span class=${`server-state ${server.state}`}><span class="dot"></span>${SERVER_STATES[server.state] || server.state}${
        offered.length && server.state === "ready" ? ` · ${toolsWords(usable.length, offered.length - usable.length)}` : ""}</span></span>
      <input type="checkbox" role="switch" class="switch" aria-label=${`Use ${server.title}`} disabled=${!tools.on} checked=${on} onChange=${toggle} /></label>
    ${server.message && server.state !== "ready" && html`<p class="server-message">${server.message}${wayOut(server, chat.config.admin)}</p>`}
    <${Accounts} server=${server} />
    <div class="server-actions">
      ${missing && html`<button type="button" class=${`button ${server.state === "needs_setup" ? "" : "quiet"}`} onClick=${() => setUp(chat, server)}>Set up</button>`}
      ${offered.length > 0 && html`<button type="button" class="button quiet" aria-expanded=${open} onClick=${() => setOpen(!open)}>${open ? "Hide tools" : "Show tools"}</button>`}</div>
    ${open && html`<ul class="tools">${offered.map((tool) => html`<li key=${tool.name}><span class="tool-name">${toolWords({ title: tool.title, tool: tool.name })}</span>
      <button type="button" class=${`tool-decision ${tool.withheld ? "deny" : tool.decision}`} title="Why?"
        onClick=${() => showWhy(chat, server, tool, agent.slug)}>${tool.withheld ? (server.own ? OWN_PINS : PINS)[tool.pin] || "withheld" : DECISIONS[tool.decision] || ""}<span class="visually-hidden">: why?</span></button>
      ${tool.withheld && html`<span class="tool-text">${tool.withheld}</span>`}
      ${tool.description && html`<span class="tool-text">${tool.description}</span>`}
      ${(tool.notes || []).map((note) => html`<span class="tool-text" key=${note}>Changed for the model: ${note}</span>`)}</li>`)}</ul>`}
  </li>`;
}

/** "5 tools, 2 withheld". */
function toolsWords(usable, withheld) {
  return [usable > 0 && count(usable, "tool"), withheld > 0 && `${withheld} withheld`].filter(Boolean).join(", ");
}

/** What can be done about a server that does not work, or when something is done about it. */
function wayOut(server, admin) {
  if (server.state !== "error") return "";
  if (server.retry_at) return ` It is tried again at ${clock(server.retry_at)}.`;
  if (server.own) return "";
  return admin
    ? html` <a href=${`/admin/mcpservers/mcpserver/?q=${encodeURIComponent(server.slug)}`}>Test it in the administration</a>`
    : " If this stays so, tell an administrator.";
}

const PINS = { new: "new, waits for an admin", changed: "changed, waits for an admin", rejected: "rejected by an admin" };
const OWN_PINS = { new: "new, waits for you", changed: "changed, waits for you", rejected: "rejected by you" };
const DECISIONS = { allow: "runs at once", ask: "asks first", deny: "not allowed" };
