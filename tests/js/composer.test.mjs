import assert from "node:assert/strict";
import { test } from "node:test";
import { meaning } from "../../static/js/composer-keys.js";
import { createDrafts, merge } from "../../static/js/drafts.js";
import { createOutbox } from "../../static/js/outbox.js";
import { refusal } from "../../static/js/attachments.js";

const key = (name, more = {}) => ({ key: name, keyCode: name === "Enter" ? 13 : 0, isComposing: false, shiftKey: false, altKey: false, ctrlKey: false, metaKey: false, ...more });

test("Enter sends and Shift+Enter breaks the line", () => {
  assert.equal(meaning(key("Enter")), "send");
  assert.equal(meaning(key("Enter", { shiftKey: true })), null);
  assert.equal(meaning(key("Enter", { altKey: true })), null);
});

test("Enter that accepts a candidate of an input method never sends", () => {
  assert.equal(meaning(key("Enter", { isComposing: true })), null);
  assert.equal(meaning(key("Enter", { keyCode: 229 })), null);
  assert.equal(meaning(key("Enter", { keyCode: 229, ctrlKey: true }), { sendWith: "mod-enter" }), null);
});

test("with the other setting only Ctrl or Cmd and Enter send", () => {
  assert.equal(meaning(key("Enter"), { sendWith: "mod-enter" }), null);
  assert.equal(meaning(key("Enter", { ctrlKey: true }), { sendWith: "mod-enter" }), "send");
  assert.equal(meaning(key("Enter", { metaKey: true }), { sendWith: "mod-enter" }), "send");
});

test("the up arrow edits the last message in an empty field alone", () => {
  assert.equal(meaning(key("ArrowUp"), { empty: true }), "edit-last");
  assert.equal(meaning(key("ArrowUp"), { empty: false }), null);
  assert.equal(meaning(key("ArrowUp", { shiftKey: true }), { empty: true }), null);
});

function storage(items = {}) {
  const map = new Map(Object.entries(items));
  return { getItem: (name) => map.get(name) ?? null, setItem: (name, value) => map.set(name, value), removeItem: (name) => map.delete(name), map };
}

test("each conversation has its own draft, a new chat one as well", () => {
  const drafts = createDrafts("u:o", storage());
  drafts.set("one", "first");
  drafts.set(null, "new");
  assert.deepEqual([drafts.get("one"), drafts.get("two"), drafts.get(null)], ["first", "", "new"]);
});

test("drafts outlive the page, and users and organizations do not share them", () => {
  const kept = storage();
  createDrafts("u:o", kept).set("one", "text");
  assert.equal(createDrafts("u:o", kept).get("one"), "text");
  assert.equal(createDrafts("u:other", kept).get("one"), "");
  assert.equal(createDrafts("v:o", kept).get("one"), "");
});

test("an empty draft leaves nothing behind", () => {
  const kept = storage();
  const drafts = createDrafts("u:o", kept);
  drafts.set("one", "text");
  drafts.set("one", "");
  assert.equal(kept.map.size, 0);
});

test("without storage drafts live in memory", () => {
  const broken = { getItem() { throw new Error("no"); }, setItem() { throw new Error("full"); }, removeItem() { throw new Error("no"); } };
  for (const none of [broken, undefined]) {
    const drafts = createDrafts("u:o", none);
    drafts.set("one", "text");
    assert.equal(drafts.get("one"), "text");
    assert.equal(drafts.get("two"), "");
  }
});

test("what was typed before the script ran is kept beside the draft, and nothing stands there twice", () => {
  assert.equal(merge("", "typed"), "typed");
  assert.equal(merge("draft", ""), "draft");
  assert.equal(merge("draft", "draft and more"), "draft and more");
  assert.equal(merge("draft and more", "draft"), "draft and more");
  assert.equal(merge("draft", "typed"), "draft\ntyped");
});

test("a message that was not taken comes back before what was typed since", () => {
  const drafts = createDrafts("u:o", storage());
  drafts.set("one", "typed since");
  drafts.restore("one", "not sent");
  assert.equal(drafts.get("one"), "not sent\ntyped since");
});

const entry = (id) => ({ frame: { type: "turn.start", request_id: id }, conversation: "c", text: "hello", attachments: [] });

test("a request stays in the outbox until it is answered, through a reload", () => {
  const kept = storage();
  createOutbox("s", kept).add(entry("r1"));
  const later = createOutbox("s", kept);
  assert.equal(later.all().length, 1);
  assert.equal(later.take("r1").text, "hello");
  assert.equal(createOutbox("s", kept).all().length, 0);
});

test("an old request is given back, not sent behind one's back", () => {
  const kept = storage();
  createOutbox("s", kept, () => 0).add(entry("r1"));
  const later = createOutbox("s", kept, () => 11 * 60_000);
  assert.equal(later.all().length, 0);
  assert.deepEqual(later.takeStale().map((one) => one.text), ["hello"]);
  assert.deepEqual(later.takeStale(), []);
});

test("rubbish in the storage is no outbox", () => {
  for (const rubbish of ["{", "{}", "[null]", "[{}]", "7"]) {
    assert.deepEqual(createOutbox("s", storage({ "chatui:outbox:s": rubbish })).all(), []);
  }
});

test("limits of files are told before the upload", () => {
  const limits = { attachments: 2, attachment_bytes: 1024 };
  const file = (size) => ({ name: "a.txt", size });
  assert.equal(refusal(file(10), [], limits), "");
  assert.match(refusal(file(2048), [], limits), /a\.txt.*2 kB.*at most 1 kB/);
  assert.match(refusal(file(0), [], limits), /empty/);
  assert.match(refusal(file(10), [1, 2], limits), /At most 2 files/);
});
