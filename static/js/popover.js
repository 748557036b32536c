// Panels and menus that open at a button: Escape and clicks outside close them, the focus goes in and comes back.
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";

/**
 * `button(props)` renders the button with the props it needs; `children(close)` the panel, while it is open. `side` is
 * where the panel is: `up` or `down`, and from which edge of the button: `start` or `end`.
 */
export function Popover({ button, children, label, side = "down", edge = "start", wide = false, onClose }) {
  const [open, setOpen] = useState(false);
  const root = useRef(null);
  const id = useId();

  function close({ focus = true } = {}) {
    setOpen(false);
    onClose?.();
    if (focus) root.current?.querySelector("[aria-expanded]")?.focus();
  }

  useEffect(() => {
    if (!open) return undefined;
    const outside = (event) => {
      if (!root.current?.contains(event.target)) close({ focus: false });
    };
    document.addEventListener("pointerdown", outside);
    document.addEventListener("focusin", outside);
    return () => {
      document.removeEventListener("pointerdown", outside);
      document.removeEventListener("focusin", outside);
    };
  }, [open]);

  useLayoutEffect(() => {
    if (open) root.current.querySelector("[data-focus], .popover button, .popover input")?.focus({ preventScroll: true });
  }, [open]);

  const onKeyDown = (event) => {
    if (event.key !== "Escape" || !open) return;
    event.stopPropagation();
    close();
  };
  return html`<div class="popover-root" ref=${root} onKeyDown=${onKeyDown}>
    ${button({ "aria-expanded": open, "aria-controls": open ? id : undefined, type: "button", onClick: () => (open ? close() : setOpen(true)) })}
    ${open && html`<div id=${id} class=${`popover ${side} ${edge} ${wide ? "wide" : ""}`} role="group" aria-label=${label}>${children(close)}</div>`}
  </div>`;
}

/** A menu of actions: arrow keys move, Home and End jump. Items are `{label, icon, action, danger, checked}`. */
export function Menu({ items, close, label }) {
  const list = useRef(null);
  const onKeyDown = (event) => {
    const buttons = [...list.current.querySelectorAll("button")];
    const at = buttons.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    buttons[(to + buttons.length) % buttons.length].focus();
  };
  return html`<div class="menu" role="menu" aria-label=${label} ref=${list} onKeyDown=${onKeyDown}>
    ${items.filter(Boolean).map((item) => html`<button key=${item.label} type="button" role=${item.checked === undefined ? "menuitem" : "menuitemradio"}
      aria-checked=${item.checked} class=${item.danger ? "danger" : ""} onClick=${() => {
        close();
        item.action();
      }}>${item.icon}<span>${item.label}</span>${item.checked && html`<span class="menu-check" aria-hidden="true">✓</span>`}</button>`)}
  </div>`;
}
