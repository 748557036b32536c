import assert from "node:assert/strict";
import { test } from "node:test";
import { answer } from "../../static/js/answering.js";
import { stateWords } from "../../static/js/approval.js";
import { cancelCall, decide, settled } from "../../static/js/deciding.js";
import { onFrame } from "../../static/js/frames.js";
import { createFormDrafts } from "../../static/js/form-drafts.js";
import { answerTo, change, forget, giveBack, requestRefused, sendAgain } from "../../static/js/requests.js";
import { initialState } from "../../static/js/state.js";
import { createStore } from "../../static/js/store.js";

globalThis.document = { getElementById: () => null, hidden: false };

const call = { id: "c1", question: { id: "q1", kind: "approval", state: "open" } };

function chatOf({ connected = true } = {}) {
  const sent = [];
  const chat = {
    sent, toasts: [], loaded: [], connected, forms: createFormDrafts("u:o", memory()),
    store: createStore(initialState({ conversation: null }), () => {}),
    socket: { send: (frame) => chat.connected && Boolean(sent.push(frame)) }, outbox: { all: () => [], take: () => null },
    list: { reload() {} }, toast: (words) => chat.toasts.push(words),
    api: { get: async (path) => chat.loaded.push(path) && Promise.reject(new Error("not here")) },
  };
  chat.of = (id) => answerTo(chat.store.get(), id);
  return chat;
}
function memory() {
  const kept = new Map();
  return { getItem: (name) => kept.get(name) ?? null, setItem: (name, value) => kept.set(name, value), removeItem: (name) => kept.delete(name) };
}
const refusal = (chat, more) => ({ type: "error", request_id: chat.sent.at(-1).request_id, message: "No.", ...more });

test("an answer is sent once, and what was entered stays when it does not fit", () => {
  const chat = chatOf();
  change(chat, "q1", { values: new Map([["name", "A"]]) });
  answer(chat, "q1", "accept", { name: "A" });
  answer(chat, "q1", "decline");
  assert.equal(chat.sent.length, 1);
  const error = refusal(chat, { code: "invalid_answer", fields: { name: "too short" } });
  assert.equal(requestRefused(chat, error), true);
  assert.equal(requestRefused(chat, error), false);
  const { state, values, errors } = chat.of("q1");
  assert.deepEqual([state, values.get("name"), errors.get("name")], ["failed", "A", "too short"]);
  answer(chat, "q1", "decline");
  assert.deepEqual([chat.sent[1].action, chat.sent[1].content], ["decline", undefined]);
});

test("a decision is sent once, and can be made again when it was refused", () => {
  const chat = chatOf();
  decide(chat, call, "allow_once", { note: " ", args: { a: 1 } });
  decide(chat, call, "deny");
  assert.equal(chat.sent.length, 1);
  const { request_id: _, ...frame } = chat.sent[0];
  assert.deepEqual(frame, { type: "call.decide", call_id: "c1", question_id: "q1", decision: "allow_once", arguments: { a: 1 } });
  requestRefused(chat, refusal(chat, { code: "invalid_request" }));
  assert.deepEqual([chat.of("q1").state, chat.of("q1").message], ["failed", "No."]);
  decide(chat, call, "deny", { note: "why" });
  assert.equal(chat.sent[1].note, "why");
  assert.equal(chat.of("q1").message, "");
});

test("without a connection nothing is lost, and the card says so", () => {
  const chat = chatOf({ connected: false });
  change(chat, "q1", { values: new Map([["name", "A"]]) });
  answer(chat, "q1", "accept", {});
  assert.match(chat.of("q1").message, /no connection/);
  assert.equal(chat.of("q1").values.get("name"), "A");
  cancelCall(chat, "c9");
  assert.match(chat.toasts[0], /The call goes on/);
});

test("what was on its way when the connection died is sent again over the next one, as the same request", () => {
  const chat = chatOf();
  change(chat, "q2", { values: new Map([["name", "A"]]) });
  decide(chat, call, "allow_once");
  answer(chat, "q2", "accept", { name: "A" });
  cancelCall(chat, "c3");
  onFrame(chat, { type: "hello", turns: [] });
  assert.deepEqual(chat.sent.slice(3), chat.sent.slice(0, 3));
  assert.deepEqual(["q1", "q2", "c3"].map((id) => chat.of(id).state), ["sending", "sending", "sending"]);
  assert.equal(chat.sent[3].question_id, "q1");
  requestRefused(chat, { ...refusal(chat, { code: "already_answered" }), request_id: chat.sent[3].request_id });
  settled(chat, "q2", "answered");
  onFrame(chat, { type: "hello", turns: [] });
  assert.deepEqual(chat.sent.slice(6), [chat.sent[2]]);
});

test("what is too old to be sent unasked, or cannot be sent any more, is given back with words", () => {
  const chat = chatOf();
  decide(chat, call, "allow_once");
  sendAgain(chat, Date.now() + 11 * 60_000);
  assert.equal(chat.sent.length, 1);
  assert.deepEqual([chat.of("q1").state, chat.of("q1").message], ["failed", "The connection was lost before this was sent. Answer again."]);
  decide(chat, call, "allow_once");
  change(chat, "q2", { values: new Map([["name", "A"]]) });
  answer(chat, "q2", "accept", { name: "A" });
  giveBack(chat);
  assert.deepEqual(["q1", "q2"].map((id) => chat.of(id).state), ["failed", "failed"]);
  assert.equal(chat.of("q2").values.get("name"), "A");
  sendAgain(chat);
  assert.equal(chat.sent.length, 3);
});

test("what was answered elsewhere is looked at again, and is no error", () => {
  const chat = chatOf();
  chat.store.set({ conversation: { id: "conversation" }, view: "ready" });
  chat.forms.set("q1", new Map([["name", "A"]]));
  decide(chat, call, "allow_once");
  assert.equal(requestRefused(chat, refusal(chat, { code: "already_answered" })), true);
  assert.equal(chat.of("q1"), undefined);
  assert.equal(chat.forms.get("q1", new Map([["name", ""]])).get("name"), "", "nothing that was entered is kept either");
  assert.deepEqual(chat.loaded, ["conversations/conversation/messages"]);
});

test("once a question is settled nothing of it is kept", () => {
  const chat = chatOf();
  decide(chat, call, "allow_once");
  settled(chat, "q1", "open");
  assert.equal(chat.of("q1").state, "sending");
  settled(chat, "q1", "answered");
  assert.equal(chat.of("q1"), undefined);
  assert.equal(requestRefused(chat, refusal(chat, {})), false);
});

test("a second question about the same call is not locked by the answer to the first", () => {
  const chat = chatOf();
  decide(chat, call, "allow_once");
  const signIn = { ...call, question: { id: "q2", kind: "authorization", state: "open" } };
  decide(chat, signIn, "deny");
  assert.deepEqual(chat.sent.map(({ decision }) => decision), ["allow_once", "deny"]);
  forget(chat, "q2");
  assert.deepEqual([chat.of("q1").state, chat.of("q2")], ["sending", undefined]);
});

test("what was entered in a form survives a reload, until its question is settled", () => {
  const storage = memory();
  const initial = new Map([["name", ""], ["tags", []], ["agree", false]]);
  createFormDrafts("u:o", storage).set("q1", new Map([["name", "A"], ["tags", "no list"], ["agree", true], ["gone", "B"]]));
  const forms = createFormDrafts("u:o", storage);
  assert.deepEqual([...forms.get("q1", initial)], [["name", "A"], ["tags", []], ["agree", true]]);
  assert.deepEqual(createFormDrafts("other:o", storage).get("q1", initial), initial);
  const chat = { ...chatOf(), forms };
  settled(chat, "q1", "answered");
  assert.deepEqual(createFormDrafts("u:o", storage).get("q1", initial), initial);
  for (let number = 0; number < 30; number += 1) forms.set(`f${number}`, initial);
  assert.equal(JSON.parse(storage.getItem("chatui:forms:u:o")).length, 20);
  storage.setItem("chatui:forms:u:o", "{broken");
  assert.deepEqual(createFormDrafts("u:o", storage).get("q1", initial), initial);
  assert.deepEqual(createFormDrafts("u:o", undefined).get("q1", initial), initial);
});

test("the card of an approval says what became of it, and that somebody decided only where somebody did", () => {
  const words = (state, more = {}) => stateWords({ live: true, left: "5 min", ...more, call: { question: { state }, decided_by: more.by } });
  assert.deepEqual(["open", "answered", "expired", "void"].map((state) => words(state)), ["Open for 5 min", "Decided", "Expired", "Closed"]);
  assert.deepEqual([words("answered", { by: "bob" }), words("open", { left: "" }), words("open", { live: false })], ["Decided by bob", "Expired", "No longer open"]);
  assert.equal(words("open", { decision: { state: "sending", decision: "deny" } }), "Denying");
});
