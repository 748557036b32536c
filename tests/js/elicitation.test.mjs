import assert from "node:assert/strict";
import { test } from "node:test";
import { answerOf, fieldsOf, initialValues, safeAddress } from "../../static/js/elicitation-form.js";
import { isAsking, waitingCalls } from "../../static/js/state.js";
import { createTurn, reduce } from "../../static/js/turn.js";

const option = (value, title = value) => ({ const: value, title });
const details = (properties, { required = [], order = Object.keys(properties) } = {}) => ({ schema: { type: "object", properties, required }, order });
const filled = (fields, entries) => new Map([...initialValues(fields), ...Object.entries(entries)]);
const answered = (properties, entries, more) => {
  const fields = fieldsOf(details(properties, more));
  const { content, errors } = answerOf(fields, filled(fields, entries));
  return { content, errors: Object.fromEntries(errors) };
};

test("every kind of field has its own entry, and none is for passwords", () => {
  const kinds = (part) => fieldsOf(details({ it: part }))[0].kind;
  assert.equal(kinds({ type: "string" }), "line");
  assert.equal(kinds({ type: "string", maxLength: 500 }), "lines");
  assert.equal(kinds({ type: "string", format: "password" }), "line");
  assert.equal(kinds({ type: "integer" }), "number");
  assert.equal(kinds({ type: "boolean" }), "yes-no");
  assert.equal(kinds({ type: "string", oneOf: [option("a")] }), "radio");
  assert.equal(kinds({ type: "string", oneOf: Array.from({ length: 9 }, (_, index) => option(`${index}`)) }), "select");
  assert.equal(kinds({ type: "array", items: { anyOf: [option("a")] } }), "several");
  assert.deepEqual(["email", "uri", "date", "date-time"].map((format) => kinds({ type: "string", format })), ["email", "uri", "date", "date-time"]);
});

test("fields stand in the server's order, which a stored schema does not have", () => {
  const fields = fieldsOf(details({ ape: { type: "string" }, zebra: { type: "string" } }, { order: ["zebra", "ape"], required: ["ape"] }));
  assert.deepEqual(fields.map(({ name, required }) => [name, required]), [["zebra", false], ["ape", true]]);
});

test("defaults stand in the fields", () => {
  const fields = fieldsOf(details({
    text: { type: "string", default: "x" }, size: { type: "integer", default: 0 }, sure: { type: "boolean", default: true },
    tags: { type: "array", items: { anyOf: [option("a"), option("b")] }, default: ["b"] }, none: { type: "string" },
  }));
  assert.deepEqual([...initialValues(fields).values()], ["x", "0", true, ["b"], ""]);
});

test("an answer has the types of the form; what is empty is left out, or null where there was a default", () => {
  const properties = {
    name: { type: "string" }, size: { type: "integer" }, ratio: { type: "number", default: 2 }, sure: { type: "boolean" },
    tags: { type: "array", items: { anyOf: [option("a")] } }, colour: { type: "string", oneOf: [option("r")] },
  };
  assert.deepEqual(answered(properties, { name: "Ada", size: "4", colour: "r" }).content, { name: "Ada", size: 4, ratio: 2, sure: false, colour: "r" });
  assert.deepEqual(answered(properties, { ratio: "", tags: ["a"] }).content, { ratio: null, sure: false, tags: ["a"] });
});

test("a time is sent with its zone", () => {
  const { content } = answered({ when: { type: "string", format: "date-time" } }, { when: "2026-07-28T12:00" });
  assert.match(content.when, /^2026-07-2\dT\d\d:\d\d:00Z$/);
  const fields = fieldsOf(details({ when: { type: "string", format: "date-time", default: content.when } }));
  assert.equal(initialValues(fields).get("when"), "2026-07-28T12:00");
});

test("what is wrong is said at each field", () => {
  const properties = {
    name: { type: "string", minLength: 2 }, size: { type: "integer", minimum: 1, maximum: 9 }, needed: { type: "string" },
    tags: { type: "array", items: { anyOf: [option("a"), option("b")] }, maxItems: 1 }, word: { type: "string", maxLength: 1 },
  };
  const { errors } = answered(properties, { name: "x", size: "2.5", tags: ["a", "b"], word: "👍" }, { required: ["needed"] });
  assert.deepEqual(errors, {
    name: "Enter at least 2 characters.", size: "Enter a whole number.", needed: "This is required.", tags: "Choose at most 1.",
  });
});

test("a field may have any name", () => {
  const properties = JSON.parse('{"__proto__": {"type": "string", "default": "x"}, "constructor": {"type": "string"}}');
  const fields = fieldsOf(details(properties));
  const { content } = answerOf(fields, new Map([...initialValues(fields), ["constructor", "y"]]));
  assert.equal(JSON.stringify(content), '{"__proto__":"x","constructor":"y"}');
});

test("only addresses of the web are opened", () => {
  assert.equal(safeAddress("https://pay.example/x"), "https://pay.example/x");
  for (const url of ["javascript:alert(1)", "data:text/html,x", "https://user@evil.example/", "/relative", "", null]) assert.equal(safeAddress(url), null);
});

// --- What frames do

const requested = (seq, more = {}) => ({
  type: "elicitation.requested", turn_id: "t", seq, elicitation_id: "q1", call_id: "c1", server: "s", title: "S", mode: "form", message: "Which?",
  schema: { type: "object", properties: {}, required: [] }, order: [], url: null, host: "", step: 1, steps: 1, expires_at: "2030-01-01T00:00:00Z", ...more,
});
const turn = (parts) => createTurn("t", 0, { id: "m", role: "assistant", parts, status: "running" });
const running = { type: "call", id: "c1", round: 1, status: "running", question: null };

test("a question makes the call ask, and its answer ends that", () => {
  const asked = reduce(turn([running]), requested(1));
  const [part] = asked.message.parts;
  assert.deepEqual([part.question.kind, part.question.state, part.question.details.message], ["elicitation", "open", "Which?"]);
  assert.equal(isAsking(part), true);
  assert.equal(waitingCalls({ turn: asked }).length, 1);
  const other = reduce(asked, { type: "elicitation.resolved", turn_id: "t", seq: 2, elicitation_id: "q0", call_id: "c1", action: "accept" });
  assert.equal(isAsking(other.message.parts[0]), true);
  const resolved = reduce(other, { type: "elicitation.resolved", turn_id: "t", seq: 3, elicitation_id: "q1", call_id: "c1", action: "accept" });
  assert.equal(isAsking(resolved.message.parts[0]), false);
});

test("a stored question that is answered leaves the card", () => {
  const stored = { ...running, status: "waiting", question: { id: "q1", kind: "elicitation", state: "open", details: {} } };
  const resolved = reduce(turn([stored]), { type: "elicitation.resolved", turn_id: "t", seq: 1, elicitation_id: "q1", call_id: "c1", action: "decline" });
  assert.deepEqual([resolved.message.parts[0].status, resolved.message.parts[0].question.state], ["pending", "answered"]);
});
