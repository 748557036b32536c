// The websocket: reconnects with jitter, notices dead connections, and says in which state it is.

const PING_AFTER = 25_000; // of silence; well under the idle limits of common proxies
const DEAD_AFTER = 10_000; // without an answer to a ping
const FIRST_RETRY = 500;
const LAST_RETRY = 30_000;
// Closed for a reason that trying again does not cure.
const REFUSALS = { 4401: "signed_out", 4403: "removed", 4409: "outdated" };
const RESTART = 1012;
const TOO_MANY = 4429;

/** How long to wait before the `attempt`th try (0, 1, 2 …) after close code `code`, in milliseconds. */
export function retryDelay(attempt, code, random = Math.random) {
  if (code === TOO_MANY) return 10_000 + random() * 20_000;
  // A restart sends everybody away at the same moment: come back spread out.
  if (code === RESTART && attempt === 0) return 300 + random() * 2_700;
  const most = Math.min(LAST_RETRY, FIRST_RETRY * 2 ** attempt);
  return most / 2 + random() * (most / 2);
}

/** Where the page's organization is reached. */
export function socketAddress(organization, { protocol, host } = location) {
  return `${protocol === "https:" ? "wss" : "ws"}://${host}/ws/o/${organization}/`;
}

/**
 * `onFrame(frame)` gets each frame with `at` (its arrival); `onState(state, {retryAt})` one of `connecting`, `open`,
 * `waiting`, `offline`, `signed_out`, `removed`, `outdated`. The state is `open` only after the server's `hello`.
 */
export class ChatSocket {
  constructor(url, { onFrame, onState, connect = (address) => new WebSocket(address, ["chatui.1"]), page = globalThis }) {
    Object.assign(this, { url, onFrame, onState, connect, page });
    this.state = "closed";
    this.attempt = 0;
    this.timers = new Set();
    this.heard = 0;
    page.addEventListener?.("online", () => this.retryNow());
    page.addEventListener?.("offline", () => this._lost(0));
    page.document?.addEventListener("visibilitychange", () => {
      // Timers sleep in hidden tabs: look at once whether the connection is still there.
      if (!page.document.hidden) this.state === "open" ? this._ping() : this.retryNow();
    });
  }

  open() {
    this._clear();
    this._drop();
    this._become("connecting");
    let socket;
    try {
      socket = this.connect(this.url);
    } catch {
      this._lost(0);
      return;
    }
    this.socket = socket;
    socket.onmessage = (event) => socket === this.socket && this._message(event.data);
    socket.onclose = (event) => socket === this.socket && this._lost(event.code);
    this._after(15_000, () => this._lost(0));
  }

  /** Try again now, unless it is open or was refused for good. */
  retryNow() {
    if (!["waiting", "offline"].includes(this.state)) return;
    this.attempt = 0;
    this.open();
  }

  /** Send now; false if there is no connection (nothing is kept here). */
  send(frame) {
    if (this.state !== "open" || this.socket.readyState !== 1) return false;
    this.socket.send(JSON.stringify(frame));
    return true;
  }

  close() {
    this._clear();
    this._drop();
    this.state = "closed";
  }

  _message(data) {
    this.heard = Date.now();
    let frame;
    try {
      frame = JSON.parse(data);
    } catch {
      return;
    }
    frame.at = this.heard;
    if (frame.type === "hello") {
      this._clear();
      this.attempt = 0;
      this._become("open");
      this._watch();
    }
    this.onFrame(frame);
  }

  _watch() {
    this._after(PING_AFTER, () => {
      if (Date.now() - this.heard >= PING_AFTER - 1000) this._ping();
      this._watch();
    });
  }

  _ping() {
    const asked = Date.now();
    this.send({ type: "ping" });
    this._after(DEAD_AFTER, () => {
      if (this.state === "open" && this.heard < asked) this._lost(0);
    });
  }

  _lost(code) {
    if (this.state === "closed" || Object.values(REFUSALS).includes(this.state)) return;
    this._clear();
    this._drop();
    if (REFUSALS[code]) {
      this._become(REFUSALS[code]);
      return;
    }
    if (this.page.navigator?.onLine === false) {
      this._become("offline");
      return;
    }
    const delay = retryDelay(this.attempt, code);
    this.attempt += 1;
    this._become("waiting", { retryAt: Date.now() + delay });
    this._after(delay, () => this.open());
  }

  _drop() {
    const socket = this.socket;
    this.socket = null;
    if (!socket) return;
    socket.onmessage = socket.onclose = null;
    socket.close();
  }

  _become(state, more = {}) {
    this.state = state;
    this.onState(state, more);
  }

  _after(delay, action) {
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      action();
    }, delay);
    this.timers.add(timer);
  }

  _clear() {
    for (const timer of this.timers) clearTimeout(timer);
    this.timers.clear();
  }
}
