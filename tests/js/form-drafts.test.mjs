import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "../../static/js/conversation.js";
import { createFormDrafts, holdsSecret, looksSecret } from "../../static/js/form-drafts.js";
import { onFrame } from "../../static/js/frames.js";
import { initialState } from "../../static/js/state.js";
import { createStore } from "../../static/js/store.js";
import { createTurn } from "../../static/js/turn.js";

globalThis.document = { getElementById: () => null, hidden: false };

function tab() {
  const kept = new Map();
  return {
    get length() { return kept.size; }, key: (index) => [...kept.keys()][index] ?? null, names: () => [...kept.keys()],
    getItem: (name) => kept.get(name) ?? null, setItem: (name, value) => kept.set(name, value), removeItem: (name) => kept.delete(name),
  };
}
const NOTE = new Map([["note", "why"]]);
const asked = (id, state = "open", kind = "approval") => ({ type: "call", id: `c-${id}`, status: "waiting", question: { id, kind, state } });
const answer = (id, parts, status) => ({ id, role: "assistant", parent_id: null, parts, status, seq: 1, turn_id: "t1" });

function chatOf(storage, messages = []) {
  const chat = {
    forms: createFormDrafts("u:o", storage), socket: { send: () => true }, outbox: { all: () => [], take: () => null },
    store: createStore(initialState({ conversation: null }), () => {}), list: { touched() {}, reload() {} },
    api: { get: async () => ({ conversation: { id: "conversation", current_leaf: null }, messages, turn: { id: "t1", status: "waiting" } }) },
  };
  for (const id of ["open", "other", "gone"]) chat.forms.set(id, NOTE);
  return chat;
}
const left = (storage) => JSON.parse(storage.getItem("chatui:forms:u:o") || "[]").map(([id]) => id);

test("a conversation that is opened takes along what was written for questions that have ended meanwhile", async () => {
  const storage = tab();
  const chat = chatOf(storage, [
    answer("m0", [asked("other")], "interrupted"),
    answer("m1", [{ type: "text", text: "x" }, asked("open"), asked("gone", "void")], "waiting"),
  ]);
  await load(chat, "conversation");
  assert.deepEqual(left(storage), ["open"]);
});

test("a call's end, and that of its turn, end what was written for it, though no word of the question comes", () => {
  const storage = tab();
  const chat = chatOf(storage);
  const message = answer("m1", [asked("open"), asked("gone")], "waiting");
  chat.store.set({ conversation: { id: "conversation" }, turn: createTurn("t1", 1, message, "waiting") });
  onFrame(chat, { type: "call.finished", turn_id: "t1", seq: 2, call_id: "c-gone", status: "expired" });
  assert.deepEqual(left(storage), ["open", "other"]);
  onFrame(chat, { type: "turn.finished", turn_id: "t1", seq: 3, outcome: "stopped", message: { ...message, status: "stopped" } });
  assert.deepEqual(left(storage), ["other"]);
});

test("whoever signs in next in this tab finds nothing of the person before; another organization's is kept", () => {
  const storage = tab();
  createFormDrafts("u:o", storage).set("q1", NOTE);
  createFormDrafts("u:other", storage).set("q2", NOTE);
  storage.setItem("chatui:outbox:u:o", "[]");
  createFormDrafts("user:o", storage);
  assert.deepEqual(storage.names(), ["chatui:outbox:u:o"]);
});

test("what looks like a secret is known by its name, in a form and in arguments that are being edited", () => {
  for (const name of ["password", "userPassword", "API key", "apiKey", "x_api_key", "client-secret", "access_token", "PIN", "card_pin"]) {
    assert.equal(looksSecret(name), true, name);
  }
  for (const name of ["Authorization", "sessionCookie", "bearer", "pwd", "pass", "ssh_key", "jwt", "cvc2", "credit card", "mfa_code", "one-time code"]) {
    assert.equal(looksSecret(name), true, name);
  }
  for (const name of ["passage", "author", "postcode", "session", "title", "opinion", "shipping", "key", "compass", "", undefined]) assert.equal(looksSecret(name), false, name);
  assert.equal(looksSecret("field1", "Your password"), true);
  assert.equal(holdsSecret('{"title": "my password"}'), false);
  assert.equal(holdsSecret('{"url": "x", "headers": {"Authorization": "Bearer x"}}'), true);
  assert.equal(holdsSecret('{"title": "x", "login": {"pass\\"word" : 1, "password": "hun'), true);
});
