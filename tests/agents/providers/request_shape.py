"""A strict endpoint's view of a request: everything that some provider refuses, as one check."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
ID = re.compile(r"[a-zA-Z0-9_-]{1,40}\Z")
KEYS = {
    "system": {"role", "content"},
    "developer": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls", "reasoning_content", "prefix"},
    "tool": {"role", "content", "tool_call_id"},
}


def check_request(body: dict[str, Any], *, alternating: bool = False, extras: bool = True) -> None:
    """Raise `AssertionError` for a body that a strict Chat Completions endpoint would answer with 400."""
    json.dumps(body, allow_nan=False).encode()
    json.dumps(body, ensure_ascii=False).encode()  # no lone surrogate
    assert "\\u0000" not in json.dumps(body)
    assert all(value is not None for value in body.values())
    messages = body["messages"]
    assert messages
    rest = messages[1:] if messages[0]["role"] in ("system", "developer") else messages
    assert rest
    assert rest[0]["role"] == "user"
    assert all(message["role"] in ("user", "assistant", "tool") for message in rest)
    open_ids: list[str] = []
    seen: set[str] = set()
    for message in messages:
        _check_message(message, extras=extras)
        if message["role"] == "tool":
            assert open_ids, "an orphan tool message"
            assert message["tool_call_id"] == open_ids.pop(0), "results in call order"
            continue
        assert not open_ids, "a call without its result"
        if message["role"] == "assistant":
            open_ids = [call["id"] for call in message.get("tool_calls", [])]
            assert not seen & set(open_ids)
            assert len(set(open_ids)) == len(open_ids)
            seen |= set(open_ids)
    assert not open_ids
    if alternating:
        _check_alternation(rest)


def _check_message(message: dict[str, Any], *, extras: bool) -> None:
    role, content = message["role"], message["content"]
    assert set(message) <= KEYS[role]
    assert all(value is not None and value != [] for value in message.values())
    if role == "user" and isinstance(content, list):
        for part in content:
            assert part["type"] in ("text", "image_url")
            if part["type"] == "image_url":
                assert re.match(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+=*\Z", part["image_url"]["url"])
            else:
                assert part["text"]
    else:
        assert isinstance(content, str)
        assert content.strip() or message.get("tool_calls")
    assert message.get("reasoning_content") != ""
    for call in message.get("tool_calls", []):
        assert set(call) == {"id", "type", "function"} or (extras and "extra_content" in call)
        assert ID.match(call["id"])
        assert call["type"] == "function"
        assert NAME.match(call["function"]["name"])
        assert isinstance(json.loads(call["function"]["arguments"]), dict)


def _check_alternation(messages: list[dict[str, Any]]) -> None:
    """As chat templates and Mistral demand: a user message never follows a tool message, no role but tool repeats."""
    for before, after in pairwise(messages):
        assert (before["role"], after["role"]) in {
            ("user", "assistant"),
            ("assistant", "user"),
            ("assistant", "tool"),
            ("tool", "tool"),
            ("tool", "assistant"),
        }
