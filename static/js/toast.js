// Short words about what was done, with a way to undo it; they stay while the pointer or the focus is on them.
import { useEffect, useState } from "preact/hooks";
import { announce } from "./announce.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { useStore } from "./context.js";

const SHOWN = 9000;
let made = 0;

/** `toast(text, {label, action})`, kept in `store.get().toasts`. */
export function createToaster(store) {
  return (text, act) => {
    const toast = { id: ++made, text, act };
    store.set(({ toasts }) => ({ toasts: [...toasts.slice(-2), toast] }));
    announce(act ? `${text} ${act.label} is possible.` : text);
  };
}

export function Toasts({ store }) {
  const toasts = useStore((state) => state.toasts);
  const drop = (id) => store.set((state) => ({ toasts: state.toasts.filter((toast) => toast.id !== id) }));
  return toasts.map((toast) => html`<${Toast} key=${toast.id} toast=${toast} drop=${() => drop(toast.id)} />`);
}

function Toast({ toast, drop }) {
  const [held, hold] = useState(false);
  useEffect(() => {
    if (held) return undefined;
    const timer = setTimeout(drop, SHOWN);
    return () => clearTimeout(timer);
  }, [held]);
  return html`<div class="toast" onPointerEnter=${() => hold(true)} onPointerLeave=${() => hold(false)} onFocusIn=${() => hold(true)} onFocusOut=${() => hold(false)}>
    <span>${toast.text}</span>
    ${toast.act && html`<button type="button" class="button quiet" onClick=${() => {
      drop();
      toast.act.action();
    }}>${toast.act.label}</button>`}
    <button type="button" class="button quiet icon" aria-label="Close" onClick=${drop}><${Icon} name="x" size=${16} /></button></div>`;
}
