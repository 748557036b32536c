"""Server-sent events of a streamed completion: bytes, cut anywhere, to JSON documents."""

from __future__ import annotations

import json
from typing import Any, Final

import orjson

MAX_EVENT_BYTES = 16 * 2**20
_BOM = b"\xef\xbb\xbf"


class Sentinel:
    """A document that is none: `DONE` is `[DONE]`, `MALFORMED` stands where JSON was meant and is broken."""


DONE: Final = Sentinel()
MALFORMED: Final = Sentinel()


class EventTooLargeError(ValueError):
    """One event is above `MAX_EVENT_BYTES`."""


class EventDecoder:
    """Decode an event stream incrementally (WHATWG HTML, 9.2.6): CR, LF and CRLF, comments, multi-line data, a BOM.

    Two leniencies that lose nothing: the last event need not be ended by a blank line, and a bare line of JSON that
    holds an error (some proxies write one into the stream) counts as data.
    """

    def __init__(self) -> None:
        self._partial: list[bytes] = []
        self._data: list[bytes] = []
        self._event = b""
        self._pending = 0  # bytes since the last event, for the limit
        self._after_cr = False
        self._first = True

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The events that `data` completes, as (type, data). Raises `EventTooLargeError`."""
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
        self._after_cr = False
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = data.split(b"\n")
        self._pending += len(data)
        if len(lines) == 1:
            self._partial.append(data)
            if self._pending > MAX_EVENT_BYTES:
                raise EventTooLargeError
            return []
        if self._partial:
            lines[0] = b"".join([*self._partial, lines[0]])
        self._partial = [lines.pop()]
        events = self._take(lines)
        if self._pending > MAX_EVENT_BYTES:
            raise EventTooLargeError
        return events

    def flush(self) -> list[tuple[bytes, bytes]]:
        """What the end of the stream leaves: an event without its blank line."""
        last, self._partial = b"".join(self._partial), []
        return self._take([last, b""])

    def _take(self, lines: list[bytes]) -> list[tuple[bytes, bytes]]:
        events: list[tuple[bytes, bytes]] = []
        if self._first and lines:
            self._first = False
            lines[0] = lines[0].removeprefix(_BOM)
        for line in lines:
            if line[:6] == b"data: ":
                self._data.append(line[6:])
            elif not line:
                if self._data:
                    data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                    events.append((self._event, data))
                    self._data = []
                    self._pending = len(self._partial[0]) if self._partial else 0
                self._event = b""
            else:
                self._other(line)
        return events

    def _other(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        elif name == b"event":
            self._event = value.removeprefix(b" ")
        elif line[:1] == b"{" and b'"error"' in line:
            self._data.append(line)


def documents(event: bytes, data: bytes) -> list[Any]:
    """The JSON documents in the data of one event: usually one; none for keep-alives (`: ping`, empty, a word).

    Two documents on two lines of one event are two (an error written into an event that was not ended). Data of an
    event of type `error` is wrapped as `{"error": …}`. See `DONE` and `MALFORMED`.
    """
    if event != b"error" and data[:1] == b"{":
        try:
            return [orjson.loads(data)]
        except orjson.JSONDecodeError:
            return _salvage(data)
    data = data.strip()
    if data == b"[DONE]":
        return [DONE]
    if event == b"error":
        return [_as_error(data)]
    if data[:1] == b"[":
        found = parse_json(data)
        return found if isinstance(found, list) else [MALFORMED]
    if data[:1] == b"{":
        return _salvage(data)
    return []


def parse_json(data: bytes) -> Any:
    """`data` as JSON, leniently: broken UTF-8, lone surrogates and raw control characters pass. Else `MALFORMED`."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            return json.loads(data.decode("utf-8-sig", "replace"), strict=False)
        except (ValueError, RecursionError):
            return MALFORMED


def _salvage(data: bytes) -> list[Any]:
    whole = parse_json(data)
    if whole is not MALFORMED:
        return [whole]
    lines = [line for line in data.split(b"\n") if line.strip()]
    if len(lines) == 1:
        return [MALFORMED]
    found = [parse_json(line) for line in lines]
    good = [document for document in found if document is not MALFORMED]
    return good if len(good) == len(found) else [*good, MALFORMED]


def _as_error(data: bytes) -> Any:
    found = parse_json(data)
    if isinstance(found, dict) and "error" in found:
        return found
    return {"error": found if isinstance(found, dict) else data.decode("utf-8", "replace")}
