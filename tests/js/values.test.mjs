// What a closed line says of a call's arguments.
import { wordsOf } from "../../static/js/words.js";
import assert from "node:assert/strict";
import { test } from "node:test";
import { gist } from "../../static/js/values.js";

test("the short values stand in one line", () => {
  assert.equal(gist({ zone: "Asia/Shanghai", deep: { a: 1 }, list: [1], count: 3, exact: true, none: null }), "Asia/Shanghai, 3, true");
});

test("what is long is cut, what hides is written out", () => {
  assert.equal(gist({ text: "a\u202eb\nc" }), "a\\u{202e}b c");
  assert.equal(Array.from(gist({ text: "😀".repeat(100) })).length, 61);
});

test("what is not an object of arguments has no gist", () => {
  for (const value of [null, "text", [1], {}, { truncated: "{", url: "/x" }]) assert.equal(gist(value), "");
});

test("a budget's end is told in the reader's own time too", () => {
  const message = "The tokens are used up. This ends at 2026-12-01 00:00 UTC.";
  const before = process.env.TZ;
  process.env.TZ = "Asia/Tokyo";
  assert.match(wordsOf({ code: "budget_exceeded", message }), /at 2026-12-01 00:00 UTC \(.*9:00.* your time\)\.$/);
  process.env.TZ = "UTC";
  assert.equal(wordsOf({ code: "budget_exceeded", message }), message);
  process.env.TZ = before ?? "";
  assert.equal(wordsOf({ code: "model_error", message }), message);
});
