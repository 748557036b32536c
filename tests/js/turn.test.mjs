import assert from "node:assert/strict";
import { test } from "node:test";
import { createTurn, isShort, reduce } from "../../static/js/turn.js";

const empty = { id: "m", parent_id: "q", role: "assistant", parts: [], status: "running", error: null, usage: null };
const fresh = (message = empty, seq = 0) => createTurn("t", seq, message);

/** Fold frames, numbered from the turn's next on. */
function fold(turn, ...frames) {
  return frames.reduce((now, frame, index) => reduce(now, { turn_id: "t", seq: turn.seq + index + 1, at: 1000 + index * 100, ...frame }), turn);
}

const text = (words) => ({ type: "text.delta", text: words });
const started = (id, more = {}) => ({
  type: "call.started", call_id: id, server: "clock", server_title: "Clock", tool: "now", title: "Current time", arguments: { zone: "UTC" }, ...more,
});
const finished = (id, more = {}) => ({
  type: "call.finished", call_id: id, status: "ok", content: [{ type: "text", text: "12:00" }], artifacts: [], duration_ms: 5, ...more,
});
const approval = (id) => ({
  ...started(id), type: "call.approval", question_id: "question", account: null, claims: {}, reason: "no rule", expires_at: "2030-01-01T00:00:00Z", can_edit: false,
});

test("deltas are joined into one text part", () => {
  const turn = fold(fresh(), text("Hel"), text("lo "), text("world"));
  assert.deepEqual(turn.message.parts.map((part) => part.text), ["Hello world"]);
  assert.equal(turn.seq, 3);
});

test("the turn and the message that are folded into stay as they were", () => {
  const before = fresh();
  const copy = structuredClone(before);
  fold(before, text("a"), started("c1"), finished("c1"), text("b"));
  assert.deepEqual(before, copy);
});

test("a frame that was seen before changes nothing", () => {
  const turn = fold(fresh(), text("a"), text("b"));
  assert.equal(reduce(turn, { type: "text.delta", seq: 1, text: "a" }), turn);
  assert.equal(reduce(turn, { type: "text.delta", seq: 2, text: "b" }), turn);
});

test("a gap marks the turn stale, without folding; what is missing heals it", () => {
  const turn = fold(fresh(), text("a"));
  const stale = reduce(turn, { type: "text.delta", seq: 3, text: "c" });
  assert.equal(stale.stale, true);
  assert.equal(stale.message.parts[0].text, "a");
  assert.equal(reduce(stale, { type: "text.delta", seq: 4, text: "d" }), stale);
  const healed = fold(stale, text("b"), text("c"));
  assert.equal(healed.stale, false);
  assert.equal(healed.message.parts[0].text, "abc");
});

test("an unknown frame only counts", () => {
  const turn = fold(fresh(), text("a"), { type: "weather.changed", sun: true }, text("b"));
  assert.equal(turn.message.parts[0].text, "ab");
  assert.equal(turn.seq, 3);
});

test("text before calls becomes a preamble, text after them a part of the next round", () => {
  const turn = fold(fresh(), text("I look."), started("c1"), finished("c1"), text("It is noon."));
  assert.deepEqual(turn.message.parts.map(({ type, kind, round }) => [type, kind, round]), [
    ["text", "preamble", 1], ["call", undefined, 1], ["text", undefined, 2],
  ]);
});

test("parallel calls keep the order of their start and end in any order", () => {
  const turn = fold(fresh(), started("c1"), started("c2"), finished("c2"), finished("c1", { status: "error" }));
  assert.deepEqual(turn.message.parts.map(({ id, status }) => [id, status]), [["c1", "error"], ["c2", "ok"]]);
});

test("a call that was never announced is shown when it ends", () => {
  const turn = fold(fresh(), finished("c9", { status: "denied" }));
  assert.deepEqual(turn.message.parts.map(({ type, id, status }) => [type, id, status]), [["call", "c9", "denied"]]);
});

test("progress is shown while a call runs and gone when it has ended", () => {
  const running = fold(fresh(), started("c1"), { type: "call.progress", call_id: "c1", progress: 2, total: 8, message: "step 2 of 8" });
  assert.deepEqual(running.message.parts[0].progress, { progress: 2, total: 8, message: "step 2 of 8" });
  assert.equal(fold(running, finished("c1")).message.parts[0].progress, null);
});

test("an approval waits with its question; running and ending close the question and say who decided", () => {
  const asked = fold(fresh(), approval("c1"), { type: "turn.waiting", for: "approval", ids: ["question"] });
  assert.equal(asked.status, "waiting");
  assert.equal(asked.message.parts[0].question.state, "open");
  assert.equal(asked.message.parts[0].question.details.reason, "no rule");
  const allowed = fold(asked, { type: "turn.resumed" }, started("c1"));
  assert.equal(allowed.status, "running");
  assert.equal(allowed.message.parts[0].question.state, "answered");
  const done = fold(allowed, finished("c1", { decided_by: "alice", decided_at: "2026-11-30T12:00:00Z" }));
  const { decided_by: by, decided_at: at } = done.message.parts[0];
  assert.deepEqual([by, at], ["alice", "2026-11-30T12:00:00Z"]);
  assert.equal(fold(asked, finished("c1", { status: "expired" })).message.parts[0].question.state, "expired");
});

test("a notice does not split the answer's round, and says what it says", () => {
  const turn = fold(fresh(), { type: "notice", code: "tools_unavailable", message: "No tools.", detail: "why" }, text("Hi"));
  assert.deepEqual(turn.message.parts[0], { type: "notice", code: "tools_unavailable", message: "No tools.", detail: "why" });
  assert.equal(turn.message.parts[1].round, 1);
});

test("reasoning has a duration once something follows it", () => {
  const turn = fold(fresh(), { type: "reasoning.delta", text: "hm" }, { type: "reasoning.delta", text: "m" }, text("Yes"));
  assert.equal(turn.message.parts[0].text, "hmm");
  assert.equal(turn.message.parts[0].duration_ms, 200);
  const again = fold(turn, started("c"), finished("c"), { type: "reasoning.delta", text: "next" });
  assert.equal(again.message.parts.at(-1).round, 2);
});

test("usage is the turn's sum as the server last said", () => {
  const turn = fold(fresh(), { type: "usage", input_tokens: 1, output_tokens: 2, cost: null, estimated: true });
  assert.deepEqual(turn.message.usage, { input_tokens: 1, output_tokens: 2, cost: null, estimated: true });
});

test("the end brings the stored message", () => {
  const message = { ...empty, parts: [{ type: "text", text: "all", round: 1 }], status: "completed" };
  const turn = fold(fresh(), text("al"), { type: "turn.finished", outcome: "completed", message, error: null });
  assert.equal(turn.ended, true);
  assert.equal(turn.message, message);
});

test("an end without a message keeps what was shown and closes open calls", () => {
  const turn = fold(fresh(), text("so far"), started("c1"), { type: "turn.finished", outcome: "stopped", message: null, error: null });
  assert.equal(turn.message.status, "stopped");
  assert.deepEqual(turn.message.parts.map((part) => part.text || part.status), ["so far", "cancelled"]);
});

test("a snapshot replaces what is there and ends what has ended", () => {
  const message = { ...empty, parts: [{ type: "text", text: "whole", round: 1 }], status: "failed", error: { code: "x", message: "y" } };
  const turn = reduce(fold(fresh(), text("wh")), { type: "turn.snapshot", seq: 40, status: "failed", message });
  assert.equal(turn.seq, 40);
  assert.equal(turn.ended, true);
  assert.equal(turn.error.code, "x");
  const open = reduce(fold(fresh(), text("wh")), { type: "turn.snapshot", seq: 4, status: "running", message: { ...message, status: "running" } });
  assert.equal(open.ended, false);
  assert.equal(fold(open, text("!")).message.parts[0].text, "whole!");
});

test("what was seen of a process that died before it was stored is taken back, so that the end is not overheard", () => {
  const seen = fold(fresh(), text("stored"), text(" and"), text(" lost"));
  const message = { ...empty, parts: [{ type: "text", text: "stored", round: 1 }] };
  const back = reduce(seen, { type: "turn.snapshot", seq: 1, status: "running", message });
  assert.deepEqual([back.seq, back.message.parts[0].text], [1, "stored"]);
  const over = fold(back, { type: "turn.finished", outcome: "interrupted", message: { ...message, status: "interrupted" }, error: null });
  assert.deepEqual([over.ended, over.outcome], [true, "interrupted"]);
});

test("a continued answer keeps its earlier parts", () => {
  const before = { ...empty, parts: [{ type: "text", text: "Once", round: 1 }], status: "stopped", error: { code: "e" } };
  const turn = fold(fresh(before), { type: "turn.started", model: "m" }, text(" upon"));
  assert.equal(turn.message.parts[0].text, "Once upon");
  assert.equal(turn.message.error, null);
});

test("a resumed turn goes on from the stored message and its number", () => {
  const stored = { ...empty, parts: [{ type: "call", id: "c1", round: 1, status: "running", question: null }] };
  const turn = fold(createTurn("t", 7, stored), finished("c1"), text("Done"));
  assert.equal(turn.seq, 9);
  assert.deepEqual(turn.message.parts.map(({ type, round }) => [type, round]), [["call", 1], ["text", 2]]);
});

test("two thousand deltas are folded in well under the time of a few frames", () => {
  const began = performance.now();
  let turn = fresh();
  for (let seq = 1; seq <= 2000; seq += 1) turn = reduce(turn, { type: "text.delta", seq, text: "word ", at: seq });
  assert.equal(turn.message.parts[0].text.length, 10_000);
  assert.ok(performance.now() - began < 250);
});

const asking = (more = {}) => ({ type: "call", id: "c1", status: "running", question: { id: "q", kind: "elicitation", state: "open", details: {}, ...more } });

test("while a running call asks, the turn waits for its person, however it was fetched", () => {
  const message = { ...empty, parts: [asking()] };
  assert.equal(createTurn("t", 3, message, "running").status, "waiting");
  const taken = reduce(fresh(), { type: "turn.snapshot", seq: 5, status: "running", message });
  assert.deepEqual([taken.status, taken.ended], ["waiting", false]);
  const answered = { ...empty, parts: [asking({ state: "answered" })] };
  assert.equal(reduce(taken, { type: "turn.snapshot", seq: 6, status: "running", message: answered }).status, "running");
  assert.equal(reduce(taken, { type: "turn.snapshot", seq: 7, status: "stopped", message }).status, "stopped");
});

test("an end whose message would not fit leaves what was written here, and says that the whole is to be fetched", () => {
  const long = "x".repeat(2000);
  const short = { ...empty, status: "completed", parts: [{ type: "text", text: "x", truncated: true, url: "/api/v1/turns/t" }], truncated: true };
  const frame = { type: "turn.finished", outcome: "completed", message: short, error: null };
  const turn = fold(fresh(), text(long), frame);
  assert.equal(turn.message.parts[0].text, long);
  assert.equal(turn.message.status, "completed");
  assert.equal(isShort(frame), true);
  assert.equal(isShort({ type: "turn.finished", message: empty }), false);
  assert.equal(isShort({ type: "call.progress", message: "half way" }), false);
});

test("a snapshot that would not fit is shown as far as it goes until the whole is there", () => {
  const message = { ...empty, parts: [{ type: "text", text: "beg", truncated: true, url: "/api/v1/turns/t" }], truncated: true };
  const turn = reduce(fresh(), { type: "turn.snapshot", turn_id: "t", seq: 9, status: "running", message });
  assert.equal(turn.message.parts[0].text, "beg");
  assert.equal(isShort(turn), true);
});
