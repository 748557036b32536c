// The turn that is being written, folded from its frames by a pure function. A message has the server's shape.

const OPEN_CALLS = new Set(["pending", "waiting", "running"]);

/** A turn whose `message` includes every frame up to `seq`. */
export function createTurn(id, seq, message, status = "running") {
  return { id, seq, message, status: shownStatus(status, message), stale: false, label: "", code: "", ended: false, outcome: null, error: null };
}

/**
 * The turn after `frame`. A frame seen before changes nothing; a gap marks the turn `stale` (ask for what is missing);
 * unknown types only count. `frame.at` is when it arrived, in milliseconds, for how long reasoning took.
 */
export function reduce(turn, frame) {
  if (frame.type === "turn.snapshot") return snapshot(turn, frame);
  if (frame.seq <= turn.seq) return turn;
  if (frame.seq !== turn.seq + 1) return turn.stale ? turn : { ...turn, stale: true };
  const next = { ...turn, seq: frame.seq, stale: false };
  const fold = FOLDS[frame.type];
  if (fold) fold(next, frame);
  return next;
}

/** Whether the frame's message would not fit into it: the whole is to be fetched. */
export function isShort(frame) {
  return Boolean(frame.message?.truncated);
}

export function isOpen(status) {
  return status === "running" || status === "waiting";
}

/** Whether a running call asks its person meanwhile. */
export function asksMeanwhile(part) {
  return part.status === "running" && part.question?.kind === "elicitation" && part.question.state === "open";
}

/** The server's turn runs on while a running call asks; for its person it waits. */
function shownStatus(status, message) {
  return status === "running" && message.parts.some(asksMeanwhile) ? "waiting" : status;
}

/** It counts also where more was seen here: that was lost with the process that wrote it, or comes again. */
function snapshot(turn, frame) {
  const status = shownStatus(frame.status || frame.message.status, frame.message);
  const ended = !isOpen(status);
  return {
    ...turn, seq: frame.seq, stale: false, status, message: frame.message, label: "", code: "", ended,
    outcome: ended ? status : null, error: ended ? frame.message.error : null,
  };
}

const FOLDS = {
  "turn.started"(turn, frame) {
    turn.status = "running";
    turn.message = { ...turn.message, status: "running", error: null, model: frame.model || turn.message.model };
  },
  "status"(turn, frame) {
    turn.code = frame.code;
    turn.label = frame.label;
  },
  "text.delta"(turn, frame) {
    grow(turn, "text", frame);
  },
  "reasoning.delta"(turn, frame) {
    grow(turn, "reasoning", frame);
  },
  "call.started"(turn, frame) {
    call(turn, frame, { ...described(frame), status: "running", started_at: frame.at }, answered);
  },
  "call.approval"(turn, frame) {
    const { question_id: id, reason, claims, account, can_edit, can_remember, can_decide, approvers, expires_at } = frame;
    const details = { reason, claims, account, can_edit, can_remember, can_decide, approvers };
    const question = { id, kind: "approval", state: "open", details, expires_at };
    call(turn, frame, { ...described(frame), status: "waiting", reason, question });
  },
  "authorization.required"(turn, frame) {
    if (!frame.call_id) return; // the turn goes on without that server; a notice says so
    const { server, title, url, scopes, new_scopes, account, host, expires_at } = frame;
    const question = {
      id: frame.question_id, kind: "authorization", state: "open", details: { server, title, url, scopes, new_scopes, account, host },
      expires_at,
    };
    call(turn, frame, { status: "waiting", question });
  },
  "authorization.completed"(turn, frame) {
    if (!frame.call_id) return;
    call(turn, frame, { status: "pending" }, answered);
  },
  "elicitation.requested"(turn, frame) {
    const { server, title, mode, message, schema, order, url, host, step, steps, expires_at } = frame;
    const details = { server, title, mode, message, schema, order, url, host, step, steps };
    call(turn, frame, { question: { id: frame.elicitation_id, kind: "elicitation", state: "open", details, expires_at } });
  },
  "elicitation.resolved"(turn, frame) {
    call(turn, frame, {}, (part) => {
      if (part.question?.id !== frame.elicitation_id) return part;
      return answered({ ...part, status: part.status === "waiting" ? "pending" : part.status });
    });
  },
  "call.progress"(turn, frame) {
    const { progress, total, message } = frame;
    call(turn, frame, { progress: { progress, total, message } });
  },
  "call.finished"(turn, frame) {
    const { status, content, artifacts, duration_ms } = frame;
    const fields = { status, content: content || [], artifacts: artifacts || [], duration_ms, progress: null };
    if (frame.decided_by) Object.assign(fields, { decided_by: frame.decided_by, decided_at: frame.decided_at });
    call(turn, frame, fields, (part) => closed(part, status === "expired" ? "expired" : "answered"));
  },
  "notice"(turn, frame) {
    const { code, message, detail } = frame;
    addParts(turn, frame, { type: "notice", code, message, detail });
  },
  "usage"(turn, frame) {
    const { input_tokens, output_tokens, cost, estimated } = frame;
    turn.message = { ...turn.message, usage: { input_tokens, output_tokens, cost, estimated } };
  },
  "turn.waiting"(turn, frame) {
    turn.status = "waiting";
    turn.code = frame.for;
    turn.label = "";
    turn.message = { ...turn.message, status: "waiting" };
  },
  "turn.resumed"(turn) {
    turn.status = "running";
    turn.code = turn.label = "";
    turn.message = { ...turn.message, status: "running" };
  },
  "turn.finished"(turn, frame) {
    turn.ended = true;
    turn.status = turn.outcome = frame.outcome;
    turn.error = frame.error || null;
    turn.code = turn.label = "";
    turn.message = frame.message && !isShort(frame) ? frame.message : ended(turn.message, frame);
  },
};

/** Append to the last part where it is of that kind and of this round, else begin a part. */
function grow(turn, type, frame) {
  const parts = turn.message.parts;
  const last = parts[parts.length - 1];
  turn.code = type === "text" ? "" : turn.code;
  turn.label = "";
  if (last && last.type === type && !last.kind && !(type === "reasoning" && last.duration_ms !== undefined)) {
    const grown = { ...last, text: last.text + frame.text };
    turn.message = { ...turn.message, parts: [...parts.slice(0, -1), grown] };
    return;
  }
  addParts(turn, frame, { type, text: frame.text, round: nextRound(parts), began: frame.at });
}

function addParts(turn, frame, ...added) {
  turn.message = { ...turn.message, parts: [...settled(turn.message.parts, frame.at), ...added] };
}

/** A new part ends the reasoning before it. */
function settled(parts, at) {
  const last = parts[parts.length - 1];
  if (!last || last.type !== "reasoning" || last.duration_ms !== undefined || last.began === undefined) return parts;
  return [...parts.slice(0, -1), { ...last, duration_ms: Math.max(0, (at ?? last.began) - last.began) }];
}

function round(parts) {
  return parts.reduce((most, part) => Math.max(most, part.round || 0), 0);
}

/** What follows a call belongs to the next round. */
function nextRound(parts) {
  const last = parts.findLast((part) => part.type !== "notice");
  return last && last.type === "call" ? round(parts) + 1 : round(parts) || 1;
}

function described({ server, server_title, tool, title, arguments: given }) {
  return { server, server_title, tool, title, arguments: given };
}

/** Change the call's part, or add it: a call that was never announced is shown all the same. */
function call(turn, frame, fields, change = (part) => part) {
  const parts = turn.message.parts;
  const at = parts.findIndex((part) => part.type === "call" && part.id === frame.call_id);
  if (at >= 0) {
    const changed = [...parts];
    changed[at] = change({ ...parts[at], ...fields });
    turn.message = { ...turn.message, parts: changed };
    return;
  }
  const last = parts.findLast((part) => part.type !== "notice");
  const now = last && last.type === "call" ? last.round : round(parts) || 1;
  const preamble = settled(parts, frame.at).map((part) =>
    part.type === "text" && part.round === now && !part.kind ? { ...part, kind: "preamble" } : part);
  const bare = {
    type: "call", id: frame.call_id, round: now, server: "", server_title: "", tool: "", title: "", arguments: {},
    content: [], artifacts: [], duration_ms: null, decided_by: null, decided_at: null, question: null, reason: "",
  };
  turn.message = { ...turn.message, parts: [...preamble, change({ ...bare, ...fields })] };
}

function closed(part, state) {
  return part.question && part.question.state === "open" ? { ...part, question: { ...part.question, state } } : part;
}

function answered(part) {
  return closed(part, "answered");
}

/** The message as it stands when the end came without one: nothing that was shown is lost. */
function ended(message, frame) {
  const parts = message.parts.map((part) =>
    part.type === "call" && OPEN_CALLS.has(part.status)
      ? closed({ ...part, status: frame.outcome === "stopped" ? "cancelled" : "interrupted", progress: null }, "void")
      : part);
  return { ...message, parts, status: frame.outcome, error: frame.error || null };
}
