// Errors in plain words. The server's message is for people already; the code says what one can do about it. Pure.

const ADVICE = {
  endpoint_unavailable: "The model could not be reached. It may be back in a moment.",
  endpoint_unauthorized: "The model's endpoint did not accept its key. An administrator has to look at it.",
  rate_limited: "The model is being asked too much at the moment. Wait a little, then try again.",
  model_timeout: "The model did not answer in time.",
  context_length: "The conversation is too long for this model. Start a new chat, or ask a shorter question.",
};

/** `{title, text, code, requestId}` of an error `{code, message, request_id}`. */
export function failure(error) {
  const code = error?.code || "error";
  return {
    title: TITLES[code] || "That did not work.",
    text: error?.message || ADVICE[code] || "Something went wrong on the server.",
    code,
    requestId: error?.request_id || "",
  };
}

const TITLES = {
  turn_running: "An answer is still being written.",
  queue_full: "Too many messages are waiting.",
  too_many_turns: "Too many answers at once.",
  too_large: "This is too long.",
  draining: "The server is restarting.",
  not_found: "This is not there any more.",
  not_offered: "The agent does not offer that.",
  permission_denied: "You may not do that.",
};
