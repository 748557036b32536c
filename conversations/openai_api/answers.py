"""Objects of OpenAI's API as clients expect them: models, completions, chunks, errors. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from chatui.errors import ChatUIError

DONE = b"data: [DONE]\n\n"


class CompletionFailedError(ChatUIError):
    """The turn failed; `code` and `status` are of this failure."""

    def __init__(self, code: str, message: str, status: int) -> None:
        super().__init__(public_message=message)
        self.code, self.status = code, status  # type: ignore[misc]  # of this instance


def failure_of(error: Mapping[str, Any] | None) -> CompletionFailedError:
    """How a failed or interrupted turn is told. Its `error` is `{code, message, …}`."""
    code = str((error or {}).get("code") or "internal")
    message = str((error or {}).get("message") or "The answer could not be completed.")
    match code:
        case "endpoint_rate_limited" | "interrupted" | "draining":
            status = 503
        case "not_found":
            status = 404
        case "permission_denied":
            status = 403
        case _ if code.startswith("endpoint_"):
            status = 502
        case _:
            status = 500
    return CompletionFailedError(code, message, status)


def final_text(message: Mapping[str, Any]) -> str:
    """The agent's final text: that of its last round, without what preceded or followed calls."""
    texts = [part for part in message["parts"] if part["type"] == "text" and part.get("kind") in (None, "refusal")]
    last = max((part.get("round", 0) for part in texts), default=0)
    return "".join(part["text"] for part in texts if part.get("round", 0) == last)


def finish_reason(outcome: str, message: Mapping[str, Any], error: Mapping[str, Any] | None) -> str:
    """What the endpoint's filter cut has a notice of that; what it withheld altogether is an error."""
    filtered = any(part["type"] == "notice" and part.get("code") == "content_filter" for part in message["parts"])
    if filtered or (error or {}).get("code") == "content_filter":
        return "content_filter"
    return "length" if outcome == "truncated" else "stop"


def usage_of(message: Mapping[str, Any]) -> dict[str, int]:
    """The tokens of all rounds of the turn."""
    usage = message.get("usage") or {}
    given, made = int(usage.get("input_tokens") or 0), int(usage.get("output_tokens") or 0)
    return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}


@dataclass(frozen=True, slots=True)
class Shape:
    """What all objects of one completion have in common. `created` is in Unix seconds."""

    turn_id: UUID
    model: str
    created: int

    def completion(self, outcome: str, message: Mapping[str, Any], error: Mapping[str, Any] | None) -> dict[str, Any]:
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": final_text(message), "refusal": None},
            "logprobs": None,
            "finish_reason": finish_reason(outcome, message, error),
        }
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage_of(message)}

    def chunk(self, delta: Mapping[str, Any], finish: str | None = None, *, with_usage: bool = False) -> dict[str, Any]:
        choice = {"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": finish}
        body = {**self._head("chat.completion.chunk"), "choices": [choice]}
        return {**body, "usage": None} if with_usage else body

    def usage_chunk(self, message: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._head("chat.completion.chunk"), "choices": [], "usage": usage_of(message)}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-{self.turn_id.hex}", "object": kind, "created": self.created, "model": self.model}


def model_object(slug: str, name: str, created: int, owner: str) -> dict[str, Any]:
    return {"id": slug, "object": "model", "created": created, "owned_by": owner, "name": name}


def model_list(models: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"object": "list", "data": list(models)}


_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def error_object(error: ChatUIError, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`{"error": {"message", "type", "code", "param"}}`, with `more` beside them."""
    kind = "server_error" if error.status >= 500 else _TYPES.get(error.status, "invalid_request_error")
    told = {"message": error.public_message, "type": kind, "code": error.code, "param": error.param}
    return {"error": {**told, **(more or {})}}
