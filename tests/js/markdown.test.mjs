import assert from "node:assert/strict";
import { test } from "node:test";
import { render, settledUpTo, target } from "../../static/js/markdown.js";
import { complete } from "../../static/js/markdown-tail.js";

const html = (text, options) => render(text, options).map((block) => block.html).join("");

test("prices are never maths", () => {
  assert.equal(html("It costs $5 and then $10."), "<p>It costs $5 and then $10.</p>\n");
});

test("what was typed is not prettified", () => {
  assert.equal(html("\"ms\" -- a^2 (c) ..."), "<p>&quot;ms&quot; -- a^2 (c) ...</p>\n");
});

test("HTML in the text is shown, not taken", () => {
  for (const attack of ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<svg/onload=alert(1)>", "a <b onclick=x>b</b>", "<iframe src=\"javascript:alert(1)\">", "<!-- x -->", "<style>*{}</style>", "<a href=\"javascript:x\">y</a>"]) {
    assert.doesNotMatch(html(attack), /<(script|img|svg|b|iframe|style|a|!)/, attack);
  }
});

test("only http, https and mail addresses become links, opened apart from us", () => {
  const link = html("[docs](https://docs.example.org/x)");
  assert.match(link, /href="https:\/\/docs\.example\.org\/x"/);
  assert.match(link, /target="_blank" rel="noopener noreferrer nofollow"/);
  for (const scheme of ["javascript:alert(1)", "JaVaScRiPt:alert(1)", "java&#x09;script:alert(1)", "vbscript:x", "data:text/html;base64,AA", "vscode://open", "file:///etc/passwd", "/admin/", "//evil.example", "#top", "ms-word:ofe|u|https://x"]) {
    assert.doesNotMatch(html(`[x](${scheme})`), /href=/i, scheme);
  }
});

test("an address that is no link is still shown", () => {
  assert.match(html("[run](vscode://evil)"), /run<\/span> <span class="address">\(vscode:\/\/evil\)/);
});

test("the host is shown where the words do not say it, and only there", () => {
  assert.match(html("[bank.com](https://evil.example/)"), /<span class="host">evil\.example<\/span>/);
  assert.doesNotMatch(html("[evil.example/x](https://evil.example/x)"), /class="host"/);
  assert.doesNotMatch(html("https://example.org/a"), /class="host"/);
});

test("names before the host and look-alike letters do not deceive", () => {
  assert.equal(target("https://bank.com@evil.example/").kind, "text");
  assert.equal(target("https://bаnk.com/").host.startsWith("xn--"), true);
});

test("names of files and hosts in running text are not links", () => {
  assert.doesNotMatch(html("See README.md at example.com, mail a@example.com"), /<a /);
});

test("foreign pictures are named, never loaded", () => {
  for (const image of ["![x](https://evil.example/p.png?leak=1)", "![x](http://evil.example/p)", "![x](//evil.example/p)", "![x](data:image/svg+xml;base64,AA)", "![x](/accounts/logout/)", "![x][r]\n\n[r]: https://evil.example/p.png"]) {
    assert.doesNotMatch(html(image), /<img/, image);
  }
  assert.match(html("![a cat](https://pics.example/p.png)"), /class="remote-image".*a cat.*pics\.example/);
});

test("our own attachments are shown", () => {
  const address = "/api/v1/attachments/0b6a4a36-6f0a-4d6e-9f7e-3e1f9d1c2a11/content";
  assert.match(html(`![chart](${address})`), new RegExp(`<img src="${address}" alt="chart" loading="lazy">`));
  assert.match(html(`[file](${address})`), /download/);
});

test("headings stand below the heading of the turn", () => {
  assert.match(html("# One\n\n## Two\n\n### Three"), /<h3 class="level-1">One<\/h3>[^]*<h3 class="level-2">Two<\/h3>[^]*<h4 class="level-3">Three<\/h4>/);
});

test("br breaks a line in a table and no other tag does anything", () => {
  assert.match(html("| a |\n|---|\n| x<br>y<hr> |"), /x<br>\s*y&lt;hr&gt;/);
});

test("task lists say whether a task is done", () => {
  assert.match(html("- [ ] a\n- [x] b"), /aria-label="to do"[^]*aria-label="done"/);
});

test("table cells are aligned by class, without inline style", () => {
  const table = html("| a | b |\n|:--|--:|\n| 1 | 2 |");
  assert.doesNotMatch(table, /style=/);
  assert.match(table, /<td class="align-right">2/);
});

test("a fence is open until its last line has come", () => {
  assert.equal(render("```js\nlet a", { streaming: true })[0].open, true);
  assert.equal(render("```js\nlet a\n```", { streaming: true })[0].open, false);
  assert.equal(render("````md\n```\n", { streaming: true })[0].open, true);
  assert.equal(render("```js\nlet a\n```", { streaming: true })[0].code, "let a\n");
});

const HALVES = [
  ["**bo", "<strong>bo</strong>"], ["**bold*", "<strong>bold</strong>"], ["a `co", "<code>co</code>"], ["x ~~y", "<s>y</s>"],
  ["*it", "<em>it</em>"], ["中文**粗", "<strong>粗</strong>"], ["- a\n- **b", "<strong>b</strong>"],
];
for (const [half, shown] of HALVES) {
  test(`half-written ${JSON.stringify(half)} is shown as what it is about to be`, () => {
    assert.ok(html(half, { streaming: true }).includes(shown));
  });
}

const PLAIN = ["2 * 3", "2*3", "foo__bar", "a_b", "$5 and then $10", "- ", "1.", "\\*a", "a [b] c", "5 ~ 6"];
for (const text of PLAIN) {
  test(`${JSON.stringify(text)} is left as it is`, () => assert.equal(complete(text), text));
}

test("half a link is its words, half an image is nothing", () => {
  assert.equal(complete("see [the docs](https://exa"), "see the docs");
  assert.equal(complete("![alt](https://e"), "");
  assert.equal(complete("`[a](b"), "`[a](b`");
});

test("a table is one from its first line on", () => {
  for (const half of ["| a | b", "| a | b |", "| a | b |\n|--", "| a | b |\n|---|---|", "| a | b |\n|---|---|\n| 1"]) {
    assert.equal(render(`Text\n\n${half}`, { streaming: true }).at(-1).kind, "table", half);
  }
});

test("code that streams in is not touched", () => {
  const code = "```py\na = **b\n| c";
  assert.equal(complete(code), code);
  const listed = "- x\n\n  ```py\n  a = **b";
  assert.equal(complete(listed), listed);
});

/** Stream `text` by `size` characters the way the page does, and return the blocks' HTML. */
function streamed(text, size) {
  const env = {};
  let offset = 0;
  let settled = [];
  let last = [];
  for (let end = size; ; end = Math.min(text.length, end + size)) {
    const tail = text.slice(offset, end);
    const blocks = render(tail, { streaming: end < text.length, env });
    last = blocks.map((block) => block.html);
    if (end >= text.length) return [...settled, ...last];
    const { offset: more, count } = settledUpTo(tail, blocks);
    settled = [...settled, ...last.slice(0, count)];
    offset += more;
  }
}

const DOCUMENT = [
  "# Title", "A paragraph with **bold** and `code`\nthat goes on.", "- one\n- two\n\n  more of two\n- three", "| a | b |\n|---|---|\n| 1 | 2 |",
  "```js\nconst a = 1;\n\n# not a heading\n```", "Setext\n===", "> quote\nlazy", "1. x\n2. y", "text\n```inline``` more", "* * *", "Last [link](https://example.org) here.",
].join("\n\n");

for (const size of [1, 2, 3, 7, 50]) {
  test(`what is settled while streaming by ${size} is what the whole text gives`, () => {
    assert.deepEqual(streamed(DOCUMENT, size), render(DOCUMENT).map((block) => block.html));
  });
}

test("hostile lengths do not take long", () => {
  const began = performance.now();
  for (const text of ["`".repeat(20_000), "`a ``b ".repeat(3000), "*a ".repeat(10_000), "[a](b".repeat(5000), "![a".repeat(5000), "| ".repeat(10_000), "> ".repeat(2000), "\\".repeat(20_000)]) complete(text);
  assert.ok(performance.now() - began < 1500);
});
