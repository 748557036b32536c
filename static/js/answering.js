// Answers to what servers ask.
import { announce } from "./announce.js";
import { request } from "./requests.js";

/** Answer with "accept", "decline" or "cancel"; `content` is that of the form. */
export function answer(chat, questionId, action, content) {
  const frame = { type: "elicitation.answer", elicitation_id: questionId, action };
  if (content) frame.content = content;
  if (request(chat, questionId, frame, { action })) announce({ accept: "Sent.", decline: "Declined.", cancel: "Cancelled." }[action]);
}
