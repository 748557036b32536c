import assert from "node:assert/strict";
import { test } from "node:test";
import { accountFor, chosenAccounts } from "../../static/js/accounts.js";
import { changesOf, missingWith } from "../../static/js/setup-dialog.js";
import { beginAddress, beginOf, heard, outcome } from "../../static/js/sign-in.js";
import { initialState, serverOf } from "../../static/js/state.js";
import { createStore } from "../../static/js/store.js";
import { createTurn, reduce } from "../../static/js/turn.js";

globalThis.location = { origin: "https://chat.example", pathname: "/o/acme/c/1/" };
globalThis.document = { getElementById: () => null };

const started = { type: "call.started", call_id: "c1", server: "notes", server_title: "Notes", tool: "list_notes", title: "List notes", arguments: {} };
const required = {
  type: "authorization.required", call_id: "c1", question_id: "q1", server: "notes", title: "Notes", url: "/o/acme/connections/notes/begin?scopes=read",
  scopes: ["read", "write"], new_scopes: ["write"], account: null, host: "login.example", expires_at: "2030-01-01T00:00:00Z",
};
const fold = (...frames) => {
  const turn = createTurn("t", 0, { id: "m", parts: [], status: "running" });
  return frames.reduce((now, frame, index) => reduce(now, { turn_id: "t", seq: index + 1, ...frame }), turn);
};
const part = (turn) => turn.message.parts[0];

test("a call that needs an account waits with what its card shows, as the stored message has it", () => {
  const turn = fold(started, required, { type: "turn.waiting", for: "authorization", ids: ["c1"] });
  assert.equal(part(turn).status, "waiting");
  const { id, kind, state, details } = part(turn).question;
  assert.deepEqual({ id, kind, state }, { id: "q1", kind: "authorization", state: "open" });
  assert.deepEqual(details, { server: "notes", title: "Notes", url: required.url, scopes: ["read", "write"], new_scopes: ["write"], account: null, host: "login.example" });
  assert.equal(part(turn).title, "List notes");
});

test("after the sign-in the question is answered and the call goes on", () => {
  const turn = fold(started, required, { type: "turn.waiting" }, { type: "turn.resumed" },
    { type: "authorization.completed", call_id: "c1", server: "notes", account: "ada" });
  assert.equal(part(turn).question.state, "answered");
  assert.equal(part(turn).status, "pending");
  const ended = reduce(turn, { turn_id: "t", seq: 6, type: "call.finished", call_id: "c1", status: "ok", content: [] });
  assert.equal(part(ended).status, "ok");
});

test("a sign-in that the turn does not wait for is no part of the answer", () => {
  const turn = fold({ ...required, call_id: null, question_id: null });
  assert.deepEqual(turn.message.parts, []);
  assert.equal(turn.seq, 1);
});

test("a card leads to our own page only, whatever its address says", () => {
  const card = "/o/acme/connections/notes/begin?scopes=read";
  assert.equal(beginAddress(card, { popup: true, back: "/o/acme/c/1/" }), `${card}&back=%2Fo%2Facme%2Fc%2F1%2F&window=1`);
  assert.equal(beginAddress(beginOf("acme", "notes")), "/o/acme/connections/notes/begin");
  for (const foreign of ["https://evil.example/", "//evil.example/x", "javascript:alert(1)", "\\\\evil.example"]) {
    assert.equal(beginAddress(foreign), "", foreign);
  }
});

function chatOf() {
  const store = createStore(initialState({ conversation: null }), () => {});
  const chat = { store, config: { organization: { slug: "acme" } }, loaded: 0 };
  chat.loadAgents = () => { chat.loaded += 1; };
  return chat;
}

test("a sign-in is heard once, though the socket and the other window both tell of it", () => {
  const chat = chatOf();
  heard(chat, { type: "signed-in", organization: "acme", server: "notes", account: "ada" });
  heard(chat, { type: "connection.changed", organization: "acme", server: "notes", state: "connected", account: "ada" });
  assert.deepEqual(chat.store.get().signIns.notes, { state: "done", account: "ada", message: "" });
  assert.equal(chat.loaded, 1);
  heard(chat, { type: "connection.changed", organization: "acme", server: "notes", state: "disconnected", account: "ada" });
  assert.equal(chat.store.get().signIns.notes.state, "gone");
});

test("what another organization's page says, and what is no news, changes nothing", () => {
  const chat = chatOf();
  heard(chat, { type: "signed-in", organization: "globex", server: "notes", account: "eve" });
  heard(chat, { type: "weather", organization: "acme", server: "notes" });
  assert.deepEqual(chat.store.get().signIns, {});
  assert.equal(outcome({ type: "sign-in-failed", message: "Declined." }).message, "Declined.");
});

test("a server is found in whichever agent has it", () => {
  const agents = [{ servers: [{ slug: "a" }] }, { servers: [{ slug: "b", title: "B" }] }];
  assert.equal(serverOf({ agents }, "b").title, "B");
  assert.equal(serverOf({ agents: null }, "b"), undefined);
});

const notes = { slug: "notes", accounts: [{ id: "1", name: "ada" }, { id: "2", name: "grace", default: true }] };

test("the account of a chat is the one chosen, else the one it kept, else the default", () => {
  const state = { accounts: {}, conversation: null };
  assert.equal(accountFor(state, notes).name, "grace");
  assert.equal(accountFor({ ...state, conversation: { accounts: { notes: "1" } } }, notes).name, "ada");
  assert.equal(accountFor({ accounts: { notes: "2" }, conversation: { accounts: { notes: "1" } } }, notes).name, "grace");
  assert.equal(accountFor({ ...state, conversation: { accounts: { notes: "gone" } } }, notes), null);
  assert.equal(accountFor(state, { slug: "clock" }), null);
});

test("only choices that the agent has are sent", () => {
  const state = { accounts: { notes: "1", clock: "7" } };
  assert.deepEqual(chosenAccounts(state, { servers: [notes, { slug: "clock", accounts: [] }] }), { notes: "1" });
  assert.deepEqual(chosenAccounts(state, null), {});
});

test("values are replaced by what is typed, kept where nothing is, and cleared where one says so", () => {
  const variables = [{ name: "A", set: true }, { name: "B", set: false }];
  assert.deepEqual(changesOf({ A: " ", B: "b" }, []), { B: "b" });
  assert.deepEqual(changesOf({ A: "typed before", B: "b" }, ["A"]), { A: null, B: "b" });
  assert.deepEqual(missingWith(variables, {}), ["B"]);
  assert.deepEqual(missingWith(variables, { A: null, B: "b" }), ["A"]);
});
