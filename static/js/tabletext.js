// Rows of cells as text for other programs. Pure.

/** RFC 4180, with what a spreadsheet would run as a formula made plain text. */
export function toCsv(rows) {
  return rows.map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";
}

function csvCell(text) {
  const formula = /^[=+@\t\r]/.test(text) || (text.startsWith("-") && !/^-[\d.,]+\s*%?$/.test(text));
  const safe = formula ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll("\"", "\"\"")}"` : safe;
}

export function toMarkdown([head = [], ...rows]) {
  const line = (row) => `| ${row.map((text) => text.replaceAll("|", "\\|").replace(/\r?\n/g, "<br>")).join(" | ")} |`;
  return [line(head), `|${head.map(() => " --- ").join("|")}|`, ...rows.map(line)].join("\n") + "\n";
}
