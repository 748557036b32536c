// Code in an answer: language, copy, wrap, download; scrolls in itself; folded when very long.
import { tool } from "./blocktools.js";
import { copy, save } from "./clipboard.js";
import { fileExtension, highlight, languageLabel } from "./highlight.js";

const LONG = 40; // lines that are shown of a folded block
const FOLD_ABOVE = 60;

/** Put `pre` into a frame with tools. An `open` block still grows: colours and folding come when it is whole. */
export function frameCode(pre, { open = false } = {}) {
  const code = pre.querySelector("code") || pre;
  const info = (/language-(\S+)/.exec(code.className) || [])[1] || "";
  const frame = document.createElement("div");
  frame.className = "code";
  const head = document.createElement("div");
  head.className = "code-head";
  const name = document.createElement("span");
  name.className = "code-language";
  name.textContent = languageLabel(info);
  const wrap = tool("wrap", "Wrap lines", () => {
    const on = frame.classList.toggle("wrapped");
    wrap.setAttribute("aria-pressed", String(on));
  });
  wrap.setAttribute("aria-pressed", "false");
  const text = () => code.textContent.replace(/\n$/, "");
  head.append(
    name,
    wrap,
    tool("download", "Download code", () => save(text(), `code.${fileExtension(info)}`)),
    tool("copy", "Copy code", () => copy(text(), "Code copied")),
  );
  pre.replaceWith(frame);
  pre.tabIndex = 0;
  pre.setAttribute("role", "region");
  pre.setAttribute("aria-label", `Code, ${languageLabel(info)}`);
  frame.append(head, pre);
  if (open) return;
  highlight(code, info);
  fold(frame, pre, code);
}

function fold(frame, pre, code) {
  const lines = code.textContent.split("\n").length - 1;
  if (lines <= FOLD_ABOVE) return;
  frame.classList.add("folded");
  frame.style.setProperty("--lines", LONG);
  const button = document.createElement("button");
  button.type = "button";
  button.className = "code-fold";
  const name = () => {
    const folded = frame.classList.contains("folded");
    button.textContent = folded ? `Show all ${lines} lines` : "Show less";
    button.setAttribute("aria-expanded", String(!folded));
  };
  button.addEventListener("click", () => {
    frame.classList.toggle("folded");
    name();
  });
  name();
  frame.append(button);
}

/** Let an open block's text grow without touching the rest; false if it is not that block. */
export function growCode(element, text) {
  const code = element.querySelector(".code code");
  if (!code) return false;
  const node = code.firstChild;
  if (!node) code.append(text);
  else if (node.nodeType !== Node.TEXT_NODE || code.childNodes.length > 1) return false;
  else if (text.startsWith(node.data)) node.appendData(text.slice(node.data.length));
  else node.data = text;
  return true;
}
