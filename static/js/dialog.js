// Dialogs on the browser's own <dialog>: it keeps the focus inside, gives it back, and closes on Escape.
import { render } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { Icon } from "./icons.js";

let made = 0;

/** Open a dialog; `body(close)` is its content. Returns a promise of what `close(value)` was given. */
export function openDialog({ title, body, wide = false }) {
  const place = document.createElement("div");
  document.getElementById("dialogs").append(place);
  return new Promise((resolve) => {
    const close = (value) => {
      render(null, place);
      place.remove();
      resolve(value);
    };
    render(html`<${Dialog} title=${title} body=${body} close=${close} wide=${wide} id=${`dialog-${++made}`} />`, place);
  });
}

function Dialog({ title, body, close, wide, id }) {
  const element = useRef(null);
  useLayoutEffect(() => {
    const dialog = element.current;
    const before = document.activeElement;
    dialog.showModal();
    dialog.querySelector(".dialog-head ~ * :is(input, textarea, select)")?.focus();
    return () => {
      dialog.close();
      before?.focus?.();
    };
  }, []);
  return html`<dialog ref=${element} class=${`dialog ${wide ? "wide" : ""}`} aria-labelledby=${id}
    onCancel=${(event) => {
      event.preventDefault();
      close(null);
    }}
    onPointerDown=${(event) => event.target === element.current && close(null)}>
    <div class="dialog-body"><header class="dialog-head"><h2 id=${id}>${title}</h2>
      <button type="button" class="button quiet icon" aria-label="Close" title="Close" onClick=${() => close(null)}><${Icon} name="close" /></button></header>
      ${body(close)}</div></dialog>`;
}

/** Ask for one line; null if it was closed. */
export function ask({ title, label, confirm, value = "" }) {
  return openDialog({ title, body: (close) => html`<${Ask} label=${label} confirm=${confirm} value=${value} close=${close} />` });
}

function Ask({ label, confirm, value, close }) {
  const [text, setText] = useState(value);
  return html`<form class="stack" onSubmit=${(event) => {
    event.preventDefault();
    if (text.trim()) close(text.trim());
  }}>
    <div class="field"><label for="ask">${label}</label><input id="ask" type="text" autofocus value=${text} maxlength="2000"
      onInput=${(event) => setText(event.target.value)} /></div>
    <div class="dialog-actions"><button type="button" class="button" onClick=${() => close(null)}>Cancel</button>
      <button type="submit" class="button primary" disabled=${!text.trim()}>${confirm}</button></div></form>`;
}
