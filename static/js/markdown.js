// The one Markdown renderer: text to blocks of HTML, for the stream and for history alike. Pure; no HTML in the text is
// taken as such, and what comes out is sanitised again where it meets the page (markdown-view.js).
import MarkdownIt from "markdown-it";
import { complete } from "./markdown-tail.js";

const ATTACHMENT = /^\/api\/v1\/attachments\/[0-9a-f-]{36}\/content$/;
const LINKED = /^(https?:|mailto:)/i;

const md = new MarkdownIt({ html: false, linkify: true, breaks: true, typographer: false });
// "README.md" and "example.com" in running text are names, not addresses.
md.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
// Nothing is refused while parsing: what an address may do is decided by the rules below, which show it.
md.validateLink = () => true;

/**
 * The top-level blocks of `text`: `{html, kind, start, open, code}`. `start` is the block's offset in `text`; `kind` is
 * `fence`, `table` or `text`; a fence has `code` and is `open` until its closing line has come. With `streaming` the
 * last block is completed so that half a link or half a table does not show its raw characters. `env` carries link
 * definitions from one call to the next.
 */
export function render(text, { streaming = false, env = {} } = {}) {
  const source = streaming ? complete(text) : text;
  const tokens = md.parse(source, env);
  const starts = lineStarts(text);
  const blocks = [];
  for (let first = 0, depth = 0, index = 0; index < tokens.length; index += 1) {
    depth += tokens[index].nesting;
    if (depth > 0) continue;
    const block = tokens.slice(first, index + 1);
    blocks.push(described(block, source, starts, env));
    first = index + 1;
  }
  return blocks;
}

/** How much of a streamed `text` is settled, given its blocks: later text cannot change what is before that offset. */
export function settledUpTo(text, blocks) {
  for (let index = blocks.length - 1; index > 0; index -= 1) {
    // A block begins for good once its first line is whole: "```" may yet become "```code``` in a paragraph".
    if (text.indexOf("\n", blocks[index].start) >= 0) return { offset: blocks[index].start, count: index };
  }
  return { offset: 0, count: 0 };
}

function described(tokens, source, starts, env) {
  const [token] = tokens;
  const [line, end] = token.map || [0, 0];
  const block = {
    html: md.renderer.render(tokens, md.options, env), start: starts[line] ?? 0, kind: "text", open: false, code: "",
  };
  if (token.type === "fence" || token.type === "code_block") {
    block.kind = "fence";
    block.code = token.content;
    block.open = token.type === "fence" && !closesFence(token, source, end);
  } else if (token.type === "table_open") {
    block.kind = "table";
  }
  return block;
}

function closesFence(token, source, end) {
  const lines = source.split("\n", end);
  const last = (lines[end - 1] || "").trim();
  return end - 1 > token.map[0] && last.length >= token.markup.length && last === token.markup[0].repeat(last.length);
}

function lineStarts(text) {
  const starts = [0];
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) starts.push(at + 1);
  return starts;
}

// --- Links and images -----------------------------------------------------------------------------------------------

/** What may be done with an address: `link` (with host), `file` (an attachment of ours) or `text` (only shown). */
export function target(address) {
  if (ATTACHMENT.test(address)) return { kind: "file", address };
  if (!LINKED.test(address)) return { kind: "text", address };
  try {
    const url = new URL(address);
    if (url.protocol === "mailto:") return { kind: "link", address, host: url.pathname };
    // A user name before the host is there to deceive.
    if (url.username || url.password) return { kind: "text", address };
    return { kind: "link", address, host: url.host };
  } catch {
    return { kind: "text", address };
  }
}

const escape = md.utils.escapeHtml;

md.renderer.rules.link_open = (tokens, index) => {
  const token = tokens[index];
  const where = target(token.attrGet("href") || "");
  token.meta = { where, shown: textUpTo(tokens, index) };
  if (where.kind === "text") return "<span class=\"unlinked\">";
  if (where.kind === "file") return `<a href="${escape(where.address)}" download>`;
  const title = token.attrGet("title");
  const named = title ? `${title} — ${where.address}` : where.address;
  return `<a href="${escape(where.address)}" title="${escape(named)}" target="_blank" rel="noopener noreferrer nofollow">`;
};

md.renderer.rules.link_close = (tokens, index) => {
  const { where, shown } = opening(tokens, index).meta;
  if (where.kind === "text") {
    const rest = shown.includes(where.address) || !where.address ? "" : ` <span class="address">(${escape(where.address)})</span>`;
    return `</span>${rest}`;
  }
  if (where.kind === "file") return "</a>";
  const host = where.host && !shown.toLowerCase().includes(where.host.replace(/^www\./, ""))
    ? `<span class="host">${escape(where.host)}</span>` : "";
  return `${host}</a>`;
};

function opening(tokens, index) {
  let at = index - 1;
  while (tokens[at].type !== "link_open") at -= 1;
  return tokens[at];
}

function textUpTo(tokens, index) {
  let text = "";
  for (let at = index + 1; at < tokens.length && tokens[at].type !== "link_close"; at += 1) text += tokens[at].content;
  return text;
}

// A picture from elsewhere would tell its host that, when and (in the address) what was read: it is named, not fetched.
md.renderer.rules.image = (tokens, index) => {
  const token = tokens[index];
  const where = target(token.attrGet("src") || "");
  const words = token.content || "Image";
  if (where.kind === "file") return `<img src="${escape(where.address)}" alt="${escape(token.content)}" loading="lazy">`;
  if (where.kind === "link" && /^https?:/i.test(where.address)) {
    return `<a class="remote-image" href="${escape(where.address)}" title="${escape(where.address)}" target="_blank" `
      + `rel="noopener noreferrer nofollow"><span>${escape(words)}</span><span class="host">not loaded · open from ${escape(where.host)}</span></a>`;
  }
  return `<span class="unlinked">${escape(words)}</span>`;
};

// --- Small additions ------------------------------------------------------------------------------------------------

/** `<br>` is the one tag that models write in table cells, where Markdown has no line break. */
md.inline.ruler.before("html_inline", "br", (state, silent) => {
  const found = /^<br\s*\/?>/i.exec(state.src.slice(state.pos, state.pos + 8));
  if (!found) return false;
  if (!silent) state.push("hardbreak", "br", 0);
  state.pos += found[0].length;
  return true;
});

md.core.ruler.after("inline", "tasks", (state) => {
  state.tokens.forEach((token, index) => {
    const found = token.type === "inline" && /^\[([ xX])\] /.exec(token.content);
    if (!found || state.tokens[index - 2]?.type !== "list_item_open" || token.children[0]?.type !== "text") return;
    const box = new state.Token("task", "", 0);
    box.meta = { done: found[1] !== " " };
    token.children[0].content = token.children[0].content.slice(4);
    token.children.unshift(box);
    state.tokens[index - 2].attrJoin("class", "task");
  });
});

md.renderer.rules.task = (tokens, index) => {
  const { done } = tokens[index].meta;
  return `<span class="task-box" role="img" aria-label="${done ? "done" : "to do"}">${done ? "✓" : ""}</span>`;
};

function aligned(tokens, index, options, env, renderer) {
  const style = tokens[index].attrGet("style");
  if (style) tokens[index].attrs = [["class", style.replace("text-align:", "align-")]];
  return renderer.renderToken(tokens, index, options);
}
md.renderer.rules.th_open = md.renderer.rules.td_open = aligned;

// A heading of an answer stands below the heading of its turn, and none leaves out a level that readers jump by.
for (const rule of ["heading_open", "heading_close"]) {
  md.renderer.rules[rule] = (tokens, index, options, env, renderer) => {
    const token = tokens[index];
    const level = Number(token.tag.slice(1));
    token.tag = `h${Math.min(6, Math.max(3, level + 1))}`;
    if (token.nesting === 1) token.attrs = [["class", `level-${level}`]];
    return renderer.renderToken(tokens, index, options);
  };
}
