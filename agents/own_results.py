"""Results that are ours: what the model is told of a call that no tool answered."""

from __future__ import annotations

import json
from dataclasses import replace

from agents.parts import Decision, JSONObject, PreparedCall, ToolResult, ToolStatus

INTERRUPTED = ToolResult(ToolStatus.INTERRUPTED, "interrupted: it may have taken effect")
CANCELLED = ToolResult(ToolStatus.CANCELLED, "cancelled by the user: it may have taken effect")
CANCELLED_UNSTARTED = ToolResult(ToolStatus.CANCELLED, "cancelled by the user before it was run")
SIGN_IN_DECLINED = ToolResult(
    ToolStatus.DENIED, "not run: the user was asked to sign in at this server for it, and declined"
)
EXPIRED = ToolResult(ToolStatus.EXPIRED, "not run: nobody allowed this call in time")
INTERNAL_ERROR = ToolResult(ToolStatus.ERROR, "internal error: the call could not be completed")
OUT_OF_TIME = ToolResult(ToolStatus.TIMEOUT, "stopped: the turn's time limit was reached; it may have taken effect")
OUT_OF_TIME_UNSTARTED = ToolResult(ToolStatus.ERROR, "not run: the turn's time limit was reached")
CUT_OFF = ToolResult(
    ToolStatus.ERROR,
    "not run: the call was cut off before it was complete. Make a smaller call, or split it into several.",
)
WITHHELD = ToolResult(ToolStatus.ERROR, "not run: the provider's content filter stopped the answer")
NO_TOOLS = ToolResult(ToolStatus.ERROR, "not run: no tools are available. Answer without them.")
TOO_MANY = ToolResult(ToolStatus.ERROR, "not run: the limit of tool calls for one turn was reached")


CHANGED = "It was allowed before, but the tool, its arguments or who may allow it have changed since then."


def denied(note: str = "") -> ToolResult:
    """A person denied the call; `note` is what the person wants the model to know."""
    text = "denied: the user did not allow this call."
    return ToolResult(ToolStatus.DENIED, f"{text} The user's note: {note}" if note.strip() else text)


def denied_by_rule(reason: str) -> ToolResult:
    """A rule denies the call. Its words are for people too: a person may have allowed it a moment before."""
    text = f"denied: {reason or 'this call is not allowed'}"
    return ToolResult(ToolStatus.DENIED, text, ({"type": "text", "text": text},))


def edited(result: ToolResult, arguments: JSONObject) -> ToolResult:
    """`result` of a call whose arguments a person changed, saying so: the model knows only its own."""
    changed = json.dumps(arguments, ensure_ascii=False)
    return replace(result, text=f"(The user changed the arguments to {changed} and allowed the call.)\n\n{result.text}")


def asked_again(result: ToolResult) -> ToolResult:
    """`result` of a call whose first approval became void, saying so."""
    told = (
        "(After this call was allowed, the tool, its arguments or who may allow it changed: it was asked about again.)"
    )
    return replace(result, text=f"{told}\n\n{result.text}")


def unrun(call: PreparedCall, reason: str, result: ToolResult) -> PreparedCall:
    """`call`, finished before it began."""
    return replace(call, decision=Decision.DENY, reason=reason, result=result)
