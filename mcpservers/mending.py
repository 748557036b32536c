"""What servers send as JSON, mended: a lone surrogate or a byte that is no UTF-8 costs a character, not the answer.

The SDK's parser refuses both; a server that cuts text in the middle of a character writes them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator

import httpx2
import orjson

logger = logging.getLogger(__name__)
# Escapes of a JSON string from left to right, so that `\\ud83d` (an escaped backslash and text) is left alone.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_REPLACEMENT = rb"\ufffd"


def mended(data: bytes) -> bytes:
    """`data` (JSON text) with lone surrogate escapes and bytes that are no UTF-8 replaced by U+FFFD."""
    if b"\\ud" in data or b"\\uD" in data:
        data = _ESCAPE.sub(lambda found: _REPLACEMENT if found["lone"] else found[0], data)
    try:
        data.decode()
    except UnicodeDecodeError:
        return data.decode(errors="replace").encode()
    return data


class MendedBody(httpx2.AsyncByteStream):
    """A whole JSON body, mended."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield mended(b"".join([chunk async for chunk in self._inner]))

    async def aclose(self) -> None:
        await self._inner.aclose()


class MendedEvents(httpx2.AsyncByteStream):
    """An event stream, each line of data mended.

    With `request_id`, answers to other requests are dropped: the SDK takes any answer on a request's own stream for
    that request's. A line longer than `limit` bytes is passed on in pieces, for the reader to refuse.
    """

    def __init__(self, inner: httpx2.AsyncByteStream, *, limit: int, request_id: object = None) -> None:
        self._inner, self._limit, self._request_id = inner, limit, request_id

    async def __aiter__(self) -> AsyncIterator[bytes]:
        kept: list[bytes] = []
        size = 0
        async for chunk in self._inner:
            end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
            if end:
                yield b"".join(map(self._line, (b"".join(kept) + chunk[:end]).splitlines(keepends=True)))
                kept, size = [], 0
            kept.append(chunk[end:])
            size += len(chunk) - end
            if size > self._limit:
                yield b"".join(kept)
                kept, size = [], 0
        if size:
            yield self._line(b"".join(kept))

    def _line(self, line: bytes) -> bytes:
        if not line.startswith(b"data:"):
            return line
        line = mended(line)
        return b":\n" if self._answers_another(line[5:]) else line

    def _answers_another(self, data: bytes) -> bool:
        if self._request_id is None or b'"id"' not in data:
            return False
        try:
            message = orjson.loads(data)
        except orjson.JSONDecodeError:
            return False
        if not isinstance(message, dict) or "method" in message or message.get("id") is None:
            return False
        another = str(message["id"]) != str(self._request_id)
        if another:
            logger.info("An MCP server answered a request that was not made on this stream.")
        return another

    async def aclose(self) -> None:
        await self._inner.aclose()
