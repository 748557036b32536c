// Markdown in the page: settled blocks stay untouched, only the last one is rendered again while text streams in.
import { frameCode, growCode } from "./codeblock.js";
import { frameTable } from "./tableblock.js";
import { render, settledUpTo } from "./markdown.js";
import { sanitise } from "./sanitise.js";

/** Owns the children of `element`: one element per block. */
export class MarkdownView {
  constructor(element) {
    this.element = element;
    this.shown = []; // {html, element, open} of each block
    this.reset("");
  }

  reset(text) {
    this.text = text;
    this.settled = 0; // blocks
    this.offset = 0; // characters of `text` that are in settled blocks
    this.env = {};
    this.cost = 0;
    this.next = 0;
  }

  /**
   * Show `text`. While `streaming`, an update may be put off so that rendering never takes more than a third of the
   * time; then it returns after how many milliseconds to try again.
   */
  update(text, streaming) {
    if (text === this.text && streaming === this.streaming) return 0;
    const began = performance.now();
    if (streaming && began < this.next) return this.next - began;
    if (!streaming || !text.startsWith(this.text)) this.reset("");
    this.text = text;
    this.streaming = streaming;
    const tail = text.slice(this.offset);
    const blocks = render(tail, { streaming, env: this.env });
    blocks.forEach((block, index) => this._show(this.settled + index, block));
    this._cut(this.settled + blocks.length);
    if (streaming) {
      const { offset, count } = settledUpTo(tail, blocks);
      this.settled += count;
      this.offset += offset;
      this.next = performance.now() + 2 * (performance.now() - began);
    }
    return 0;
  }

  _show(index, block) {
    const before = this.shown[index];
    if (before && before.html === block.html && before.open === block.open) return;
    if (before && before.open && block.open && growCode(before.element, block.code)) {
      before.html = block.html;
      return;
    }
    const element = elementFor(block);
    if (before) before.element.replaceWith(element);
    else this.element.append(element);
    this.shown[index] = { html: block.html, element, open: block.open };
  }

  _cut(count) {
    for (const { element } of this.shown.splice(count)) element.remove();
  }
}

function elementFor(block) {
  const element = document.createElement("div");
  element.className = `block block-${block.kind}`;
  element.append(sanitise(block.html));
  for (const pre of element.querySelectorAll("pre")) frameCode(pre, { open: block.open });
  for (const table of element.querySelectorAll("table")) frameTable(table);
  return element;
}
