// Why one can, or cannot, use a tool: every verdict in its order, about oneself alone.
import { useEffect, useState } from "preact/hooks";
import { openDialog } from "./dialog.js";
import { html } from "./html.js";
import { toolWords } from "./words.js";

export function showWhy(chat, server, tool, agent) {
  const words = toolWords({ title: tool.title, tool: tool.name });
  return openDialog({ title: `${words} on ${server.title}`, wide: true, body: () => html`<${Why} chat=${chat} server=${server} tool=${tool} agent=${agent} />` });
}

const ANSWERS = { yes: "Yes", no: "No", ask: "Asks first", note: "" };

function Why({ chat, server, tool, agent }) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    chat.api.get(`servers/${server.slug}/why`, { tool: tool.name, agent }).then(setFound, (error) => setFound({ error: error.message }));
  }, []);
  if (!found) return html`<p class="muted">Looking</p>`;
  if (found.error) return html`<p class="field-error" role="alert">${found.error}</p>`;
  return html`<p class="why-summary" role="status">${found.summary}</p>
    <dl class="why">${found.steps.map((step, index) => html`<div key=${index} class=${`why-${step.answer}`}><dt>${step.subject}</dt>
      <dd>${ANSWERS[step.answer] && html`<strong>${ANSWERS[step.answer]}.</strong> `}${step.reason}</dd></div>`)}</dl>`;
}
