"""Answers for the scripted endpoint, and builders of them: `text("Hello")`, `calls(("add", {"a": 1}))`, …"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Step = dict[str, Any] | str | bytes | asyncio.Event
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


@dataclass(frozen=True)
class Answer:
    """What one request is answered with.

    A step that is a dict is sent as one `data:` event, text and bytes as they are (one socket write each), an
    `asyncio.Event` is waited for. The end: `done` sends `[DONE]`, `eof` ends the body without it, `reset` resets the
    connection. `completion` is sent instead of the steps where the request does not ask to stream.
    """

    steps: Sequence[Step] = ()
    end: Literal["done", "eof", "reset"] = "done"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    completion: dict[str, Any] | None = None


def chunk(choice: dict[str, Any] | None, **fields: Any) -> dict[str, Any]:
    """One chunk; without a choice its `choices` are empty."""
    head = {"id": "cmpl-1", "object": "chat.completion.chunk", "created": 1700000000, "model": "test-model"}
    return {**head, "choices": [] if choice is None else [{"index": 0, "finish_reason": None, **choice}], **fields}


def delta(content: Any = None, *, finish: str | None = None, usage: Any = None, **fields: Any) -> dict[str, Any]:
    """One chunk with `content` (left out if None) and `fields` in its delta."""
    inner = {**({} if content is None else {"content": content}), **fields}
    return chunk({"delta": inner, "finish_reason": finish}, **({} if usage is None else {"usage": usage}))


def chunks(*steps: Step, end: Literal["done", "eof", "reset"] = "done") -> Answer:
    """An answer of just these chunks."""
    return Answer(steps, end)


def reads(*steps: str | bytes | asyncio.Event, end: Literal["done", "eof", "reset"] = "eof") -> Answer:
    """The raw body, one socket write per item."""
    return Answer(steps, end)


def text(*pieces: str | asyncio.Event, reasoning: str = "", finish: str = "stop", usage: Any = USAGE) -> Answer:
    """A whole answer of text, one chunk per piece; an event among the pieces is a gate."""
    steps: list[Step] = [delta("", role="assistant")]
    if reasoning:
        steps.append(delta(reasoning_content=reasoning))
    steps += [piece if isinstance(piece, asyncio.Event) else delta(piece) for piece in pieces]
    steps.append(delta(finish=finish))
    if usage is not None:
        steps.append(chunk(None, usage=usage))
    whole = "".join(piece for piece in pieces if isinstance(piece, str))
    message = {"role": "assistant", "content": whole, **({"reasoning_content": reasoning} if reasoning else {})}
    return Answer(steps, completion=_completion(message, finish, usage))


def calls(*requests: tuple[str, Any], text: str = "", usage: Any = USAGE, ids: Sequence[str] = ()) -> Answer:
    """A whole answer of tool calls `(name, arguments)`; arguments are an object, or text sent as it is."""
    made = [
        {
            "id": ids[number] if ids else f"call_{number + 1}",
            "type": "function",
            "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)},
        }
        for number, (name, given) in enumerate(requests)
    ]
    steps: list[Step] = [delta(text, role="assistant")]
    for number, call in enumerate(made):
        function: Any = call["function"]
        head = {**call, "index": number, "function": {**function, "arguments": ""}}
        steps.append(delta(tool_calls=[head]))
        steps.append(delta(tool_calls=[{"index": number, "function": {"arguments": function["arguments"]}}]))
    steps.append(delta(finish="tool_calls"))
    if usage is not None:
        steps.append(chunk(None, usage=usage))
    message = {"role": "assistant", "content": text, "tool_calls": made}
    return Answer(steps, completion=_completion(message, "tool_calls", usage))


def failure(status: int, message: str = "scripted failure", *, body: Any = None, **headers: str) -> Answer:
    """An error as OpenAI words it, or with `body` (text, bytes or JSON); `retry_after="1"` is a header."""
    if body is None:
        body = {"error": {"message": message, "type": "scripted", "code": status}}
    raw = body if isinstance(body, str | bytes) else json.dumps(body)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer([raw], "eof", status, {"content-type": "application/json", **named})


def document(body: Any, **headers: str) -> Answer:
    """A whole JSON (or other) document with status 200, whatever was asked for."""
    return failure(200, body=body, **headers)


def never() -> Answer:
    """No answer at all: not even a status line."""
    return Answer([asyncio.Event()])


def _completion(message: dict[str, Any], finish: str, usage: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    head = {"id": "cmpl-1", "object": "chat.completion", "created": 1700000000, "model": "test-model"}
    return {**head, "choices": [choice], **({} if usage is None else {"usage": usage})}
