// What a tool answered: text, data, links, files. It comes from outside and is marked so; none of it is Markdown.
import { useState } from "preact/hooks";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { target } from "./markdown.js";
import { isShortened, pretty, Text, useWholeCall, visible } from "./values.js";
import { size } from "./words.js";

/** Ends of calls that no server has told: their words are ours. */
const OURS = new Set(["denied", "cancelled", "timeout", "unavailable", "interrupted", "expired"]);

export function ToolResult({ call }) {
  const [all, setAll] = useState(false);
  const whole = useWholeCall(call, all);
  const shortened = (call.content || []).some((part) => part.truncated !== undefined);
  const content = whole?.call ? whole.call.content : call.content || [];
  const named = new Set();
  const shown = content.map((part, index) => {
    if (part.type === "artifact") named.add(part.id);
    return html`<${Part} key=${index} part=${part} artifacts=${call.artifacts} />`;
  });
  const others = (call.artifacts || []).filter((artifact) => !named.has(artifact.id) && !isImage(artifact));
  if (!shown.length && !others.length) return html`<p class="muted small">No content.</p>`;
  if (OURS.has(call.status)) return html`<div>${shown}</div>`;
  return html`<div class="external" role="group" aria-label=${`From ${call.server_title || call.server}, not checked`}>
    <p class="external-label"><${Icon} name="external" size=${14} />From ${call.server_title || call.server || "the tool"}, not checked</p>
    ${shown}
    ${others.map((artifact) => html`<${Artifact} key=${artifact.id} artifact=${artifact} />`)}
    ${shortened && !whole?.call && html`<button type="button" class="button quiet" disabled=${all && !whole}
      onClick=${() => setAll(true)}>${all && !whole ? "Loading" : "Show all"}</button>`}
    ${whole?.error && html`<p class="field-error" role="alert">${whole.error}</p>`}
  </div>`;
}

function Part({ part, artifacts }) {
  if (part.type === "artifact") {
    const artifact = (artifacts || []).find((one) => one.id === part.id);
    if (artifact && isImage(artifact)) return html`<p class="muted small">Picture <code>${visible(artifact.name)}</code>, shown below.</p>`;
    return artifact ? html`<${Artifact} artifact=${artifact} />` : html`<p class="muted small">${part.name || "A file"} is not there any more.</p>`;
  }
  if (part.type === "text") return html`<${Text} text=${visible(part.text || "")} label="Text from the tool" />`;
  if (part.type === "link") return html`<p><${Address} uri=${part.uri} title=${part.title} /></p>`;
  if (part.type === "resource") {
    return html`<p class="resource"><${Icon} name="file" size=${15} /><${Address} uri=${part.uri} title=${part.title} /></p>
      ${part.text && html`<${Text} text=${visible(part.text)} label=${part.title || part.uri} />`}`;
  }
  if (isShortened(part)) return html`<${Text} text=${`${visible(part.truncated)}…`} label="Data from the tool" />`;
  return html`<${Text} text=${pretty(part.type === "json" ? part.value : part)} label="Data from the tool" />`;
}

function Address({ uri, title }) {
  const where = target(uri || "");
  if (where.kind !== "link") return html`<span>${visible(title || "")} <code>${visible(uri || "")}</code></span>`;
  return html`<a href=${where.address} title=${where.address} target="_blank" rel="noopener noreferrer nofollow">
    ${visible(title || uri)}${title && html`<span class="host">${where.host}</span>`}</a>`;
}

export function isImage({ content_type: type }) {
  return /^image\/(png|jpeg|webp|gif)$/.test(type || "");
}

export function Artifact({ artifact }) {
  const { url, name, content_type: type } = artifact;
  if (isImage(artifact)) {
    return html`<figure class="artifact-image"><a href=${url} target="_blank" rel="noopener"><img src=${url} alt=${name} loading="lazy" /></a>
      <figcaption>${visible(name)} · ${size(artifact.size)}</figcaption></figure>`;
  }
  if (/^audio\//.test(type || "")) return html`<figure><audio controls src=${url} preload="none"></audio><figcaption>${visible(name)}</figcaption></figure>`;
  return html`<a class="file" href=${url} download=${name}><${Icon} name="download" size=${16} /><span class="file-name">${visible(name)}</span><span class="muted">${size(artifact.size)}</span></a>`;
}
