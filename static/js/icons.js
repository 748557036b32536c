// The icons: paths on a 24 px grid, drawn in the text's colour.
import { html } from "./html.js";

const PATHS = {
  archive: "M4 7h16v12H4zM3 4h18v3H3zM10 11h4",
  arrowDown: "M12 5v14M6 13l6 6 6-6",
  arrowUp: "M12 19V5M6 11l6-6 6 6",
  attach: "M20 11.5l-8.2 8.2a5 5 0 0 1-7.1-7.1l8.6-8.6a3.4 3.4 0 0 1 4.8 4.8l-8.5 8.5a1.7 1.7 0 0 1-2.4-2.4l7.8-7.8",
  back: "M15 5l-7 7 7 7",
  chart: "M4 4v16h16M8.5 16v-4M13 16V8M17.5 16v-6",
  check: "M5 12.5l4.5 4.5L19 7.5",
  chevron: "M7 10l5 5 5-5",
  clock: "M12 7v5l3 2M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18z",
  close: "M6 6l12 12M18 6L6 18",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  dots: "M5.5 12h.01M12 12h.01M18.5 12h.01",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  edit: "M4 20h4L19 9l-4-4L4 16zM13.5 6.5l4 4",
  external: "M14 4h6v6M20 4l-9 9M18 14v6H4V6h6",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  forward: "M9 5l7 7-7 7",
  info: "M12 11v6M12 7.5h.01M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18z",
  menu: "M4 7h16M4 12h16M4 17h16",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z",
  pin: "M9 4h6l-1 6 3 3v2H7v-2l3-3zM12 15v6",
  plug: "M9 3v5M15 3v5M6 8h12v3a6 6 0 0 1-12 0zM12 17v4",
  plus: "M12 5v14M5 12h14",
  refresh: "M20 11a8 8 0 0 0-14.5-4L4 9M4 4v5h5M4 13a8 8 0 0 0 14.5 4L20 15M20 20v-5h-5",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM16 16l5 5",
  settings: "M4 7h9M17 7h3M4 17h3M11 17h9M15 9.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM9 19.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5z",
  shield: "M12 3l7.5 3v6c0 4.5-3 7.5-7.5 9-4.5-1.5-7.5-4.5-7.5-9V6zM12 8.5v4M12 15.5h.01",
  sidebar: "M4 5h16v14H4zM9.5 5v14",
  stop: "M7.5 7.5h9v9h-9z",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 2v2.5M12 19.5V22M4.9 4.9l1.8 1.8M17.3 17.3l1.8 1.8M2 12h2.5M19.5 12H22M4.9 19.1l1.8-1.8M17.3 6.7l1.8-1.8",
  system: "M4 5h16v11H4zM9 20h6M12 16v4",
  tool: "M14.5 6.5a4 4 0 0 1 5-1l-2.7 2.7 1 2 2 1L22 8.5a4 4 0 0 1-5.5 4.7L9 20.7a2 2 0 0 1-2.9-2.9L13.6 10a4 4 0 0 1 .9-3.5z",
  trash: "M5 7h14M10 4h4M7 7l1 13h8l1-13M10.5 11v5.5M13.5 11v5.5",
  warning: "M12 4L2.5 20h19zM12 10v4.5M12 17.3h.01",
  wrap: "M4 6h16M4 12h13a3 3 0 0 1 0 6h-4M15 15.5L12.5 18l2.5 2.5M4 18h4",
  x: "M7 7l10 10M17 7L7 17",
};

export function Icon({ name, size = 18 }) {
  return html`<svg class="icon" viewBox="0 0 24 24" width=${size} height=${size} fill="none" stroke="currentColor"
    stroke-width="1.7" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false">
    <path d=${PATHS[name]} /></svg>`;
}

/** The same as an element, for what is not built with Preact. */
export function iconElement(name, size = 16) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  const attributes = {
    class: "icon", viewBox: "0 0 24 24", width: size, height: size, fill: "none", stroke: "currentColor",
    "stroke-width": "1.7", "stroke-linecap": "round", "stroke-linejoin": "round", "aria-hidden": "true",
  };
  for (const [key, value] of Object.entries(attributes)) svg.setAttribute(key, value);
  const path = document.createElementNS(space, "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}
