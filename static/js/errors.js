// Errors in plain words. The server's message is for people already; the title says what kind of thing happened. Pure.
import { wordsOf } from "./words.js";

const TITLES = {
  already_answered: "This was decided already.",
  budget: "A limit is reached.",
  budget_exceeded: "A limit is reached.",
  connection_lost: "The connection was lost.",
  draining: "The server is restarting.",
  endpoint_authentication: "The model refused our key.",
  endpoint_error: "The model failed.",
  endpoint_rate_limited: "The model is busy.",
  endpoint_request: "The model did not accept the request.",
  endpoint_timeout: "The model took too long.",
  endpoint_unavailable: "The model is not available.",
  endpoint_unreachable: "The model could not be reached.",
  model_not_found: "The model is not there.",
  not_found: "This is not there any more.",
  not_offered: "The agent does not offer that.",
  offline: "There is no connection.",
  permission_denied: "You may not do that.",
  queue_full: "Too many messages are waiting.",
  too_large: "This is too long.",
  too_many_turns: "Too many answers at once.",
  turn_running: "An answer is still being written.",
};

/** `{title, text, code, requestId}` of an error `{code, message, request_id}`. */
export function failure(error) {
  const code = error?.code || "error";
  return {
    title: TITLES[code] || "That did not work.",
    text: wordsOf({ code, message: error?.message }) || "Something went wrong on the server.",
    code,
    requestId: error?.request_id || "",
  };
}
