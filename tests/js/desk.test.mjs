import assert from "node:assert/strict";
import { test } from "node:test";
import { createDesk } from "../../static/js/desk.js";
import { createFormDrafts } from "../../static/js/form-drafts.js";
import { createStore } from "../../static/js/store.js";

globalThis.document ??= { getElementById: () => null, hidden: false };

const question = { id: "q1", tool: "add_note" };
const failing = (code, message) => () => Promise.reject(Object.assign(new Error(message), { code }));

function deskOf({ post = async () => null, remove = async () => null, looks = [] } = {}) {
  const store = createStore({ approvals: [question], standing: [{ id: "s1", tool: "add_note" }], error: "", news: "", busy: {}, failed: {} }, () => {});
  const posted = [];
  const api = {
    get: (path) => (path === "approvals" ? looks.shift()?.() ?? Promise.resolve({ approvals: [] }) : Promise.resolve({ standing: [] })),
    post: (path, body) => posted.push([path, body]) && post(),
    delete: remove,
  };
  const focused = [];
  const forms = createFormDrafts("u:o", undefined);
  return { ...createDesk({ store, api, forms, focus: (where) => focused.push(where) }), store, posted, focused, forms };
}

test("an answer is posted once, its card goes, and the focus goes on", async () => {
  const desk = deskOf();
  await Promise.all([desk.decide(question, "allow_always", { scope: "agent", args: { a: 1 } }), desk.decide(question, "deny")]);
  assert.deepEqual(desk.posted, [["approvals/q1", { decision: "allow_always", note: "", scope: "agent", arguments: { a: 1 } }]]);
  assert.deepEqual([desk.store.get().approvals, desk.store.get().news, desk.focused], [[], "", ["waiting"]]);
});

test("an answer that failed says so at its card, which can be answered again", async () => {
  const desk = deskOf({ post: failing("offline", "The server could not be reached.") });
  await desk.decide(question, "allow_once");
  const { failed, busy, approvals } = desk.store.get();
  assert.deepEqual([failed.q1, busy.q1, approvals], ["The server could not be reached. Try again.", "", [question]]);
  await desk.decide(question, "allow_once");
  assert.equal(desk.posted.length, 2);
});

test("what was decided elsewhere is told in words that everybody sees, with who decided it", async () => {
  const answered = "alice has answered this already.";
  for (const [code, words] of [["already_answered", answered], ["not_found", "This is not asked about any more."]]) {
    const desk = deskOf({ post: failing(code, answered) });
    await desk.decide(question, "allow_once");
    assert.equal(desk.store.get().news, `Add note: ${words}`);
    assert.deepEqual([desk.store.get().approvals, desk.store.get().failed.q1], [[], ""]);
  }
});

test("what was answered stays away where the others cannot be looked at", async () => {
  const desk = deskOf({ looks: [failing("offline", "The server could not be reached.")] });
  await desk.decide(question, "deny");
  assert.deepEqual([desk.store.get().approvals, desk.store.get().error], [[], "The server could not be reached."]);
});

test("a late answer to an earlier look does not bring back what a later one no longer shows", async () => {
  let late;
  const desk = deskOf({ looks: [() => new Promise((resolve) => (late = resolve)), async () => ({ approvals: [] })] });
  const first = desk.load();
  await desk.load();
  late({ approvals: [question] });
  await first;
  assert.deepEqual(desk.store.get().approvals, []);
});

test("what cannot be taken back says so; what is gone already goes", async () => {
  const refused = deskOf({ remove: failing("draining", "The server is restarting.") });
  await refused.revoke({ id: "s1", tool: "add_note" });
  assert.deepEqual([refused.store.get().failed.s1, refused.store.get().standing.length], ["The server is restarting.", 1]);
  const gone = deskOf({ remove: failing("not_found", "No.") });
  await gone.revoke({ id: "s1", tool: "add_note" });
  assert.deepEqual([gone.store.get().standing, gone.focused], [[], ["always"]]);
});

test("what was written into a card goes with its question, whoever ended it", async () => {
  const note = (desk, id) => desk.forms.get(id, new Map([["note", ""]])).get("note");
  const desk = deskOf({ looks: [failing("offline", "No."), async () => ({ approvals: [{ id: "q2" }] })] });
  for (const id of ["q1", "q2", "q3"]) desk.forms.set(id, new Map([["note", "why"]]));
  await desk.decide(question, "deny", { note: "why" });
  assert.deepEqual(["q1", "q2", "q3"].map((id) => note(desk, id)), ["", "why", "why"], "of one that is looked at in vain, nothing is known");
  await desk.load();
  assert.deepEqual(["q2", "q3"].map((id) => note(desk, id)), ["why", ""]);
});
