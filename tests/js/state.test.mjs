import assert from "node:assert/strict";
import { test } from "node:test";
import { dateGroups } from "../../static/js/dategroups.js";
import { statusWords } from "../../static/js/status-words.js";
import { initialState, isBusy, lastAnswer, loaded, shownPath, waitingCalls } from "../../static/js/state.js";
import { createStore } from "../../static/js/store.js";
import { toCsv, toMarkdown } from "../../static/js/tabletext.js";
import { newestLeaf, pathTo, siblingsOf } from "../../static/js/tree.js";
import { createTurn } from "../../static/js/turn.js";

let minute = 0;
const message = (id, parent_id, role, more = {}) => ({
  id, parent_id, role, parts: [], status: "completed", created_at: new Date(Date.UTC(2026, 0, 1, 0, minute++)).toISOString(), ...more,
});
const list = [
  message("q1", null, "user"), message("a1", "q1", "assistant"), message("a1b", "q1", "assistant"), message("q2", "a1", "user"),
  message("a2", "q2", "assistant"), message("q2b", "a1", "user"), message("a2b", "q2b", "assistant"),
];
const messages = Object.fromEntries(list.map((one) => [one.id, one]));
const ids = (path) => path.map((one) => one.id);

test("the path leads from the root to the leaf", () => {
  assert.deepEqual(ids(pathTo(messages, "a2")), ["q1", "a1", "q2", "a2"]);
  assert.deepEqual(pathTo(messages, null), []);
});

test("a circle among parents does not hang the page", () => {
  const circle = { x: { id: "x", parent_id: "y" }, y: { id: "y", parent_id: "x" } };
  assert.equal(pathTo(circle, "x").length, 2);
});

test("alternatives are of the same role under the same parent, oldest first", () => {
  assert.deepEqual(siblingsOf(messages, messages.a1b), ["a1", "a1b"]);
  assert.deepEqual(siblingsOf(messages, messages.q2), ["q2", "q2b"]);
});

test("choosing an alternative goes along its newest branch", () => {
  assert.equal(newestLeaf(messages, "a1"), "a2b");
  assert.equal(newestLeaf(messages, "a1b"), "a1b");
});

test("the chosen leaf is shown after loading, the newest where none was chosen", () => {
  assert.equal(loaded({ conversation: { current_leaf: "a2" }, messages: list, turn: null }).leaf, "a2");
  assert.equal(loaded({ conversation: { current_leaf: null }, messages: list, turn: null }).leaf, "a1b");
  assert.equal(loaded({ conversation: { current_leaf: "gone" }, messages: [], turn: null }).leaf, null);
});

const state = (more) => ({ ...initialState({ conversation: null }), messages, leaf: "a2", ...more });

test("a question that is being sent stands at the end at once, with its answer to come", () => {
  const pending = { requestId: "r", type: "turn.start", parentId: "a2", parts: [{ type: "text", text: "hi" }], at: 0 };
  const path = shownPath(state({ pending }));
  assert.deepEqual(ids(path), ["q1", "a1", "q2", "a2", "r", "pending-answer"]);
  assert.equal(path.at(-2).pending, true);
});

test("an edited question replaces what followed its parent", () => {
  const pending = { requestId: "r", type: "turn.start", parentId: "a1", parts: [], at: 0 };
  assert.deepEqual(ids(shownPath(state({ pending }))), ["q1", "a1", "r", "pending-answer"]);
  assert.deepEqual(ids(shownPath(state({ pending: { ...pending, parentId: null } }))), ["r", "pending-answer"]);
});

test("a regenerated answer is awaited in its place, a continued one stays", () => {
  const pending = { requestId: "r", type: "turn.regenerate", parentId: "q2", messageId: "a2", parts: [], at: 0 };
  assert.deepEqual(ids(shownPath(state({ pending }))), ["q1", "a1", "q2", "pending-answer"]);
  assert.deepEqual(ids(shownPath(state({ pending: { ...pending, type: "turn.continue" } }))), ["q1", "a1", "q2", "a2"]);
});

test("what is being written is shown in its newest form", () => {
  const turn = createTurn("t", 3, { ...messages.a2, parts: [{ type: "text", text: "new" }] });
  assert.equal(shownPath(state({ turn })).at(-1).parts[0].text, "new");
  assert.equal(isBusy(state({ turn })), true);
  assert.equal(isBusy(state({})), false);
});

const waiting = (id, details, kind = "approval") => ({
  type: "call", id, status: "waiting", question: { id: `q-${id}`, kind, state: "open", details },
});

test("what only others may decide does not wait for this person", () => {
  const theirs = waiting("c1", { can_decide: false, approvers: ["bob"] });
  const own = waiting("c2", { can_decide: true });
  const shown = (...parts) => state({ turn: createTurn("t", 3, { ...messages.a2, parts }, "waiting") });
  assert.deepEqual(waitingCalls(shown(theirs)), []);
  assert.deepEqual(ids(waitingCalls(shown(theirs, own, waiting("c3", undefined)))), ["c2", "c3"]);
  const words = (...parts) => statusWords({ ...shown(...parts), message: { parts }, connected: true });
  assert.equal(words(theirs), "Waiting for the approval of bob");
  assert.equal(words(theirs, own), "Waiting for your approval");
  assert.equal(words(theirs, waiting("c4", {}, "authorization")), "Waiting for your sign-in");
});

test("a new question follows the last answer shown", () => {
  assert.equal(lastAnswer(state({})), "a2");
  assert.equal(lastAnswer(state({ leaf: "q2" })), "a1");
  assert.equal(lastAnswer(state({ leaf: null })), null);
});

test("however many changes there are, watchers are told once", () => {
  const flushes = [];
  const store = createStore({ count: 0 }, (flush) => flushes.push(flush));
  const seen = [];
  const end = store.watch(({ count }) => seen.push(count));
  for (let step = 0; step < 5; step += 1) store.set(({ count }) => ({ count: count + 1 }));
  store.set(() => null);
  assert.equal(flushes.length, 1);
  flushes[0]();
  assert.deepEqual(seen, [5]);
  end();
  store.set({ count: 9 });
  flushes[1]();
  assert.deepEqual(seen, [5]);
});

test("chats are grouped by day, pinned ones first, without empty groups", () => {
  const now = new Date(2026, 10, 30, 12);
  const chat = (id, days, pinned = false) => ({ id, pinned, active_at: new Date(2026, 10, 30 - days, 11).toISOString() });
  const groups = dateGroups([chat("a", 0), chat("b", 1), chat("c", 40, true), chat("d", 6), chat("e", 20), chat("f", 45), chat("g", 400)], now, "en");
  assert.deepEqual(groups.map(({ label, items }) => [label, items.map(({ id }) => id).join()]), [
    ["Pinned", "c"], ["Today", "a"], ["Yesterday", "b"], ["Previous 7 days", "d"], ["Previous 30 days", "e"], ["October", "f"], ["October 2025", "g"],
  ]);
});

test("an hour that is missing in spring does not move a day", () => {
  const now = new Date(2026, 2, 30, 0, 30);
  assert.equal(dateGroups([{ id: "a", active_at: new Date(2026, 2, 29, 23).toISOString() }], now)[0].label, "Yesterday");
});

test("a table as CSV is quoted, and no cell runs as a formula", () => {
  assert.equal(toCsv([["a", "b,c"], ["say \"x\"", "1\n2"]]), "a,\"b,c\"\r\n\"say \"\"x\"\"\",\"1\n2\"\r\n");
  assert.equal(toCsv([["=1+1", "-5.5", "-x", "@a", "+1"]]), "'=1+1,-5.5,'-x,'@a,'+1\r\n");
});

test("a table as Markdown can be read as one", () => {
  assert.equal(toMarkdown([["a", "b|c"], ["1\n2", "3"]]), "| a | b\\|c |\n| --- | --- |\n| 1<br>2 | 3 |\n");
});
