// A table in an answer: scrolls in itself, and can be taken along as CSV or Markdown.
import { tool } from "./blocktools.js";
import { copy, save } from "./clipboard.js";
import { toCsv, toMarkdown } from "./tabletext.js";

export function frameTable(table) {
  const frame = document.createElement("div");
  frame.className = "table";
  const scroll = document.createElement("div");
  scroll.className = "table-scroll";
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", "Table");
  const head = document.createElement("div");
  head.className = "table-head";
  head.append(
    named("CSV", tool("download", "Download as CSV", () => save(toCsv(cells(table)), "table.csv", "text/csv"))),
    named("CSV", tool("copy", "Copy as CSV", () => copy(toCsv(cells(table)), "Table copied as CSV"))),
    named("Markdown", tool("copy", "Copy as Markdown", () => copy(toMarkdown(cells(table)), "Table copied as Markdown"))),
  );
  table.replaceWith(frame);
  scroll.append(table);
  frame.append(scroll, head);
}

function named(word, button) {
  const span = document.createElement("span");
  span.setAttribute("aria-hidden", "true");
  span.textContent = word;
  button.append(span);
  return button;
}

function cells(table) {
  return [...table.rows].map((row) => [...row.cells].map((cell) => cell.innerText.trim()));
}
