// Half-written Markdown at the end of a stream, completed so that a reader sees what it is about to be. Pure.

/** `text` with its last block completed. Only the end is changed: offsets of what is before stay true. */
export function complete(text) {
  if (endsInFence(text)) return text;
  const start = lastBlank(text);
  const table = completeTable(text.slice(start));
  if (table !== null) return text.slice(0, start) + table;
  const line = text.lastIndexOf("\n") + 1;
  return text.slice(0, line) + completeLine(text.slice(line));
}

function lastBlank(text) {
  const at = text.lastIndexOf("\n\n");
  return at < 0 ? 0 : at + 2;
}

const FENCE = /^ {0,3}(`{3,}|~{3,})([^\n]*)$/;

/** Whether the end of `text` is inside a fence, or is the line that closes one. */
function endsInFence(text) {
  let open = "";
  let closing = false;
  for (const line of text.split("\n")) {
    closing = false;
    const found = FENCE.exec(line.replace(/^(?:[ \t]*(?:[-*+]|\d+[.)])[ \t]+|[ \t]*> ?|[ \t]+)*/, ""));
    if (!found) continue;
    const [, marks, info] = found;
    if (!open) {
      if (marks[0] === "~" || !info.includes("`")) open = marks;
    } else if (marks[0] === open[0] && marks.length >= open.length && !info.trim()) {
      open = "";
      closing = true;
    }
  }
  return closing || open !== "";
}

/** A table whose delimiter row has not come whole: shown as a table from its first line on. Null if it is none. */
function completeTable(block) {
  const lines = block.split("\n");
  if (!/^ {0,3}\|/.test(lines[0]) || lines.length > 2) return null;
  if (lines.length === 2 && !/^[\s|:-]*$/.test(lines[1])) return null;
  const header = lines[0].trim();
  const cells = header.replace(/^\||\|$/g, "").split(/(?<!\\)\|/);
  if (lines.length === 1 && header.length < 2) return "";
  return `${header.endsWith("|") && header.length > 1 ? header : `${header}|`}\n|${cells.map(() => "---").join("|")}|`;
}

/** Code, links, emphasis and strikes that are open at the end of `line` are closed or, where nothing is in them, left out. */
function completeLine(line) {
  const { bare, open } = withoutCode(line);
  if (open) return open.end < line.length ? line + open.marks : line.slice(0, open.at);
  // `[words](https://exa` is shown as its words; half an image as nothing.
  const image = /!\[[^\]\n]*(\](\([^)\n]*)?)?$/.exec(bare);
  if (image) return completeLine(line.slice(0, image.index));
  const link = /\[([^\][\n]*)\]\([^)\n]*$/.exec(bare);
  if (link) return completeLine(line.slice(0, link.index) + line.slice(link.index + 1, link.index + 1 + link[1].length));
  return closeEmphasis(line, bare);
}

/** `line` with its code spans and escapes blanked out, and the run of backticks that is still open, if one is. */
function withoutCode(line) {
  const runs = [...line.matchAll(/`+/g)];
  let bare = line;
  for (let index = 0; index < runs.length; index += 1) {
    const { 0: marks, index: at } = runs[index];
    const close = runs.findIndex((run, later) => later > index && run[0].length === marks.length);
    if (close < 0) return { bare, open: { at, marks, end: at + marks.length } };
    const end = runs[close].index + marks.length;
    bare = bare.slice(0, at) + " ".repeat(end - at) + bare.slice(end);
    index = close;
  }
  return { bare: bare.replace(/\\./g, "  "), open: null };
}

function closeEmphasis(line, bare) {
  const open = [];
  for (const { 0: mark, index: at } of bare.matchAll(/\*{1,3}|__|~~/g)) {
    const before = bare[at - 1] ?? " ";
    const after = bare[at + mark.length] ?? "";
    const last = open.lastIndexOf(mark);
    if (last >= 0 && !/\s/.test(before)) open.length = last;
    else if (!after && !/\w/.test(before)) return closeEmphasis(line.slice(0, at), bare.slice(0, at));
    else if (after && !/\s/.test(after) && !/\w/.test(before)) open.push(mark);
  }
  // A trailing "*" may be half of the "**" that closes what is open.
  const kept = open.includes("**") ? line.replace(/(?<![*\\])\*$/, "") : line;
  return open.length ? kept.trimEnd() + open.reverse().join("") : line;
}
