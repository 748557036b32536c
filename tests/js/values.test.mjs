// What a closed line says of a call's arguments.
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
