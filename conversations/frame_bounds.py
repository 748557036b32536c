"""What keeps every frame within 256 KiB: fields are cut and messages shortened, with the address of the whole. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from chatui.jsontext import encoded

FRAME_LIMIT = 256 * 1024  # bytes of any frame
FIELD_LIMIT = 64 * 1024  # bytes of one field as JSON; the whole is at /api/v1/calls/<id>
BEGINNING = 2000  # bytes that are shown of a field that is cut
SMALL = 500  # bytes of a field where many parts share a frame

Part = dict[str, Any]


def call_url(call_id: UUID | str) -> str:
    return f"/api/v1/calls/{call_id}"


def turn_url(turn_id: UUID | str) -> str:
    return f"/api/v1/turns/{turn_id}"


def bounded(value: Any, call_id: UUID | str) -> Any:
    """`value`, or `{truncated, url}` with its beginning where it is above `FIELD_LIMIT`."""
    return bounded_at(value, call_url(call_id))


def bounded_at(value: Any, url: str, limit: int = FIELD_LIMIT) -> Any:
    """As `bounded`, where the whole is at `url`."""
    text = encoded(value)
    if len(text) <= limit:
        return value
    return {"truncated": text[: min(BEGINNING, limit)].decode("utf-8", "ignore"), "url": url}


def shortened_content(
    content: Sequence[Mapping[str, Any]], call_id: UUID | str, room: int = FIELD_LIMIT
) -> list[dict[str, Any]]:
    """The parts of a result up to `room` bytes; what does not fit is cut, and says where the whole is."""
    parts: list[dict[str, Any]] = []
    for part in content:
        size = len(encoded(part))
        if size > room:
            parts.append(_cut(part, max(0, room), call_url(call_id)))
            break
        parts.append(dict(part))
        room -= size
    return parts


def _cut(part: Mapping[str, Any], room: int, url: str) -> dict[str, Any]:
    text = part.get("text")
    if not isinstance(text, str):
        return {"truncated": encoded(part)[: min(BEGINNING, room)].decode("utf-8", "ignore"), "url": url}
    bare = {**part, "text": "", "truncated": True, "url": url}
    return {**bare, "text": beginning(text, room - len(encoded(bare)))}


def beginning(text: str, room: int) -> str:
    """As much of `text` as JSON writes in `room` bytes."""
    size = len(encoded(text)) - 2
    while size > room:
        text = text[: min(len(text) - 1, len(text) * max(0, room) // size)]
        size = len(encoded(text)) - 2
    return text


# --- Whole frames -------------------------------------------------------------------------------------------------


def fitted(body: Mapping[str, Any]) -> bytes:
    """The frame as JSON, at most `FRAME_LIMIT` bytes: its message shortened, or its largest fields cut."""
    text = encoded(body)
    if len(text) <= FRAME_LIMIT:
        return text
    message = body.get("message")
    if isinstance(message, Mapping) and "parts" in message:
        url = turn_url(body["turn_id"])
        bare = {**message, "parts": [], "truncated": True, "url": url}
        room = FRAME_LIMIT - len(encoded({**body, "message": bare}))
        return encoded({**body, "message": {**bare, "parts": _shared(message["parts"], room, url)}})
    short = dict(body)
    for name in sorted(short, key=lambda name: len(encoded(short[name])), reverse=True):
        short[name] = _field(short[name], call_url(body["call_id"]) if "call_id" in body else "")
        text = encoded(short)
        if len(text) <= FRAME_LIMIT:
            break
    return text


def _field(value: Any, url: str) -> Any:
    """A field cut to `BEGINNING` bytes; texts and lists stay such."""
    match value:
        case str():
            return beginning(value, BEGINNING)
        case list():
            return list(_first(value, BEGINNING))
    return bounded_at(value, url, BEGINNING)


def _first(items: Iterable[Any], room: int) -> Iterable[Any]:
    for item in items:
        room -= len(encoded(item)) + 1
        if room < 0:
            return
        yield item


def _shared(parts: Sequence[Part], room: int, url: str) -> list[Part]:
    """The parts in `room` bytes: small ones whole, the others as much as is left for each; at last the first ones."""
    sizes = [len(encoded(part)) + 1 for part in parts]
    each, left, waiting = 0, room, len(parts)
    for size in sorted(sizes):
        each = left // waiting
        if size > each:
            break
        left, waiting = left - size, waiting - 1
    shortened = (
        part if size <= each else _shortened(part, each - 1, url) for part, size in zip(parts, sizes, strict=True)
    )
    return list(_first(shortened, room))


def _shortened(part: Part, room: int, url: str) -> Part:
    match part["type"]:
        case "text" | "reasoning":
            return _cut(part, room, url)
        case "call":
            return _shortened_call(part, room)
    return {name: beginning(value, SMALL) if isinstance(value, str) else value for name, value in part.items()}


def _shortened_call(part: Part, room: int) -> Part:
    whole = call_url(part["id"])
    bare = {**part, "arguments": bounded_at(part["arguments"], whole, SMALL), "content": []}
    if len(encoded(bare)) > room:
        question = part["question"]
        bare |= {"artifacts": [], "question": question and {**question, "details": {}}}
    return {**bare, "content": shortened_content(part["content"], part["id"], room - len(encoded(bare)))}
