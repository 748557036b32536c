// What stands round the message field: chips, notice, Send or Stop, hints, the drop zone.
import { useEffect, useState } from "preact/hooks";
import { ACCEPT } from "./attachments.js";
import { useChat, useStore } from "./context.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { AgentPicker, ToolPicker } from "./pickers.js";
import { stop, withdraw } from "./sending.js";
import { setting } from "./settings.js";
import { isBusy } from "./state.js";
import { UsageLink } from "./usage-link.js";
import { count, keys, size } from "./words.js";

export function SendButton() {
  const chat = useChat();
  const busy = useStore(isBusy);
  const stopping = useStore((state) => Boolean(state.stopping));
  const empty = useStore((state) => !state.typed && !state.chips.length);
  if (busy) {
    // The second click of a double click on Send lands here: it is not meant.
    return html`<button class="send stop" type="button" aria-label=${stopping ? "Stopping" : "Stop"} title=${stopping ? "Stopping" : "Stop"}
      aria-disabled=${stopping} onClick=${(event) => event.detail < 2 && !stopping && stop(chat)}><${Icon} name="stop" size=${22} /></button>`;
  }
  const name = empty ? "Write a message first" : "Send";
  return html`<button class="send" type="submit" aria-label="Send" title=${name} aria-disabled=${empty}
    aria-describedby=${empty ? "send-why" : undefined}><${Icon} name="arrowUp" size=${20} />
    ${empty && html`<span id="send-why" hidden>Write a message first.</span>`}</button>`;
}

export function ComposerTools() {
  const chat = useChat();
  return html`
    <label class="button quiet icon attach" title="Attach files">
      <${Icon} name="attach" /><span class="visually-hidden">Attach files (at most ${size(chat.config.limits.attachment_bytes)} each)</span>
      <input type="file" multiple accept=${ACCEPT} class="visually-hidden" onChange=${(event) => {
        chat.uploads.add([...event.target.files]);
        event.target.value = "";
      }} /></label>
    <${ToolPicker} />
    <${AgentPicker} />`;
}

export function Chips() {
  const chips = useStore((state) => state.chips);
  if (!chips.length) return null;
  return html`<ul class="chips" aria-label="Attached files">${chips.map((chip) => html`<${Chip} key=${chip.key} chip=${chip} />`)}</ul>`;
}

function Chip({ chip }) {
  const { uploads } = useChat();
  const percent = Math.round(chip.progress * 100);
  const failed = chip.state === "failed";
  const image = chip.state === "done" && (chip.content_type || "").startsWith("image/");
  return html`<li class=${`chip ${chip.state}`}>
    ${image ? html`<img src=${chip.url} alt="" width="28" height="28" />` : html`<${Icon} name=${failed ? "warning" : "file"} />`}
    <span class="chip-text"><span class="chip-name" title=${chip.name}>${chip.name}</span>
      <span class="chip-note">${failed ? chip.error : chip.state === "uploading" ? `${percent} %` : size(chip.size)}</span></span>
    ${chip.state === "uploading" && html`<progress max="100" value=${percent} aria-label=${`Uploading ${chip.name}`}></progress>`}
    ${failed && html`<button type="button" class="chip-button" onClick=${() => uploads.retry(chip.key)} title="Try again"
      aria-label=${`Upload ${chip.name} again`}><${Icon} name="refresh" size=${16} /></button>`}
    <button type="button" class="chip-button" onClick=${() => uploads.remove(chip.key)} title="Remove"
      aria-label=${`${chip.state === "uploading" ? "Cancel" : "Remove"} ${chip.name}`}><${Icon} name="x" size=${16} /></button>
  </li>`;
}

export function ComposerNotice() {
  const chat = useChat();
  const notice = useStore((state) => state.notice);
  const stuck = useStore((state) => Boolean(state.pending) && state.connection.state !== "open");
  if (stuck) {
    return html`<div class="composer-notice"><${Icon} name="clock" /><span>Your message is sent as soon as there is a connection.</span>
      <button type="button" class="button quiet" onClick=${() => withdraw(chat)}>Take it back</button></div>`;
  }
  if (!notice) return null;
  return html`<div class=${`composer-notice ${notice.kind}`}><${Icon} name=${notice.kind === "error" ? "warning" : "info"} />
    <span>${notice.text} <${UsageLink} code=${notice.code} /></span>
    <button type="button" class="button quiet icon" title="Close" aria-label="Close this notice"
      onClick=${() => chat.store.set({ notice: null })}><${Icon} name="x" size=${16} /></button></div>`;
}

export function ComposerHint() {
  const { config } = useChat();
  const length = useStore((state) => state.length);
  const near = length > config.limits.text_bytes * 0.8;
  if (near) return html`<span>${count(length, "character")} of at most ${config.limits.text_bytes.toLocaleString()}</span>`;
  return setting("sendWith") === "enter"
    ? html`<span class="keys-hint">Enter sends, Shift+Enter breaks the line. Answers can be wrong: check what matters.</span>`
    : html`<span class="keys-hint">${keys("Mod+Enter")} sends. Answers can be wrong: check what matters.</span>`;
}

/** Files may be dropped anywhere in the window. */
export function DropZone() {
  const chat = useChat();
  const [over, setOver] = useState(false);
  useEffect(() => {
    let depth = 0;
    const files = (event) => [...(event.dataTransfer?.types || [])].includes("Files");
    const on = {
      dragenter(event) {
        if (files(event) && ++depth) setOver(true);
      },
      dragleave(event) {
        if (files(event) && --depth <= 0) setOver(false);
      },
      dragover(event) {
        if (files(event)) event.preventDefault();
      },
      drop(event) {
        if (!files(event)) return;
        event.preventDefault();
        depth = 0;
        setOver(false);
        chat.uploads.add([...event.dataTransfer.files]);
        chat.composer.focus();
      },
    };
    for (const [type, listener] of Object.entries(on)) addEventListener(type, listener);
    return () => {
      for (const [type, listener] of Object.entries(on)) removeEventListener(type, listener);
    };
  }, []);
  document.getElementById("drop").hidden = !over;
  const { attachments, attachment_bytes } = chat.config.limits;
  return html`<div class="drop-words"><${Icon} name="attach" size=${32} /><strong>Drop files to attach them</strong>
    <span>Text and images; at most ${count(attachments, "file")}, ${size(attachment_bytes)} each</span></div>`;
}
