import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { ChatSocket, retryDelay } from "../../static/js/socket.js";

class FakeSocket {
  constructor() {
    this.readyState = 1;
    this.sent = [];
  }

  send(text) {
    this.sent.push(JSON.parse(text));
  }

  close() {
    this.closed = true;
  }

  receive(frame) {
    this.onmessage({ data: typeof frame === "string" ? frame : JSON.stringify(frame) });
  }
}

function setUp(t, { online = true } = {}) {
  mock.timers.enable({ apis: ["setTimeout", "Date"] });
  t.after(() => mock.timers.reset());
  const made = [];
  const states = [];
  const frames = [];
  const listeners = {};
  const page = { navigator: { onLine: online }, addEventListener: (type, listener) => { listeners[type] = listener; } };
  const socket = new ChatSocket("ws://x/", {
    onFrame: (frame) => frames.push(frame), onState: (state) => states.push(state), page,
    connect: () => made[made.push(new FakeSocket()) - 1],
  });
  return { socket, made, states, frames, listeners, page, last: () => made[made.length - 1] };
}

test("it is open after the server's hello and not before", (t) => {
  const { socket, states, last } = setUp(t);
  socket.open();
  assert.equal(socket.send({ type: "ping" }), false);
  last().receive({ type: "hello", turns: [] });
  assert.deepEqual(states, ["connecting", "open"]);
  assert.equal(socket.send({ type: "ping" }), true);
});

test("a lost connection is tried again, each time later, and at once when asked", (t) => {
  const { socket, made, states, last } = setUp(t);
  socket.open();
  last().receive({ type: "hello", turns: [] });
  last().onclose({ code: 1006 });
  assert.equal(states.at(-1), "waiting");
  mock.timers.tick(500);
  assert.equal(made.length, 2);
  last().onclose({ code: 1006 });
  mock.timers.tick(400);
  assert.equal(made.length, 2);
  socket.retryNow();
  assert.equal(made.length, 3);
});

test("delays grow to a bound, are spread, and longer where there are too many of us", () => {
  assert.ok(retryDelay(0, 1006, () => 1) <= 500);
  assert.equal(retryDelay(20, 1006, () => 1), 30_000);
  assert.equal(retryDelay(20, 1006, () => 0), 15_000);
  assert.notEqual(retryDelay(0, 1012, () => 0), retryDelay(0, 1012, () => 1));
  assert.ok(retryDelay(0, 4429, () => 0) >= 10_000);
});

for (const [code, state] of [[4401, "signed_out"], [4403, "removed"], [4409, "outdated"]]) {
  test(`close code ${code} means ${state} and is not tried again`, (t) => {
    const { socket, made, states, last } = setUp(t);
    socket.open();
    last().onclose({ code });
    mock.timers.tick(120_000);
    socket.retryNow();
    assert.equal(states.at(-1), state);
    assert.equal(made.length, 1);
  });
}

test("a silent connection is asked, and given up when it does not answer", (t) => {
  const { socket, states, last } = setUp(t);
  socket.open();
  last().receive({ type: "hello", turns: [] });
  const first = last();
  mock.timers.tick(25_000);
  assert.equal(first.sent.at(-1).type, "ping");
  mock.timers.tick(10_000);
  assert.equal(states.at(-1), "waiting");
  assert.equal(first.closed, true);
});

test("an answered ping keeps it", (t) => {
  const { socket, states, last } = setUp(t);
  socket.open();
  last().receive({ type: "hello", turns: [] });
  for (let round = 0; round < 3; round += 1) {
    mock.timers.tick(25_000);
    mock.timers.tick(5);
    last().receive({ type: "pong" });
  }
  mock.timers.tick(9_000);
  assert.equal(states.at(-1), "open");
});

test("offline it waits for the network and returns with it", (t) => {
  const { socket, made, states, listeners, page, last } = setUp(t);
  socket.open();
  last().receive({ type: "hello", turns: [] });
  page.navigator.onLine = false;
  listeners.offline();
  assert.equal(states.at(-1), "offline");
  mock.timers.tick(60_000);
  assert.equal(made.length, 1);
  page.navigator.onLine = true;
  listeners.online();
  assert.equal(made.length, 2);
});

test("a handshake that never ends is given up", (t) => {
  const { socket, states } = setUp(t);
  socket.open();
  mock.timers.tick(15_000);
  assert.equal(states.at(-1), "waiting");
});

test("frames of a connection that was given up are not heard, rubbish is passed over", (t) => {
  const { socket, frames, last } = setUp(t);
  socket.open();
  const first = last();
  const late = first.onmessage;
  first.receive("{");
  socket.open();
  late({ data: "{\"type\":\"late\"}" });
  assert.deepEqual(frames, []);
  last().receive({ type: "pong" });
  assert.equal(frames[0].type, "pong");
  assert.equal(typeof frames[0].at, "number");
});
