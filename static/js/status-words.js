// The line under an answer that is being written. Pure.
import { anyOf } from "./approval-view.js";
import { isMine } from "./state.js";
import { PROGRESS } from "./words.js";

/** What is going on, in words; "" while the text itself shows it. */
export function statusWords({ message, turn, stopping, connected }) {
  if (!connected) return "Waiting for the connection";
  if (stopping) return "Stopping";
  if (!turn) return "Sending";
  const last = message.parts[message.parts.length - 1];
  if (turn.status === "waiting") {
    const open = message.parts.filter((part) => part.question?.state === "open");
    const asked = open.find(isMine) || open[0];
    if (asked && !isMine(asked)) return `Waiting for the approval of ${anyOf(asked.question.details.approvers || [])}`;
    return PROGRESS[asked?.question.kind] || PROGRESS[turn.code] || "Waiting for you";
  }
  if (turn.label) return turn.label;
  if (last?.type === "call" && last.status === "running") return "";
  if (last?.type === "reasoning" && last.duration_ms === undefined) return "";
  if (last?.type === "text" && !turn.code) return "";
  return PROGRESS[turn.code] || "Thinking";
}
