"""JSON as servers send it: half characters are replaced, whatever the chunks; everything else stays as it is."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable

import httpx2
import pytest

from mcpservers.mending import MendedBody, MendedEvents, mended

WHOLE = [
    rb'{"a": "\ud83c\udf89 \u4e2d"}',
    rb'{"a": "C:\\ud83d and \\\\ud83d"}',
    rb'{"a": "\"\\\"\n"}',
    '{"a": "🎉 北京"}'.encode(),
    b"not json \\",
    b"",
]


@pytest.mark.parametrize("text", WHOLE)
def test_what_is_whole_stays_as_it_is(text: bytes) -> None:
    assert mended(text) == text


@pytest.mark.parametrize(
    ("text", "means"),
    [
        (rb'"hi \ud83d there"', "hi \ufffd there"),
        (rb'"\uDF89\uD83C"', "\ufffd\ufffd"),
        (rb'"\ud83d\ud83c\udf89"', "\ufffd🎉"),
        (rb'"\\\ud83d"', "\\\ufffd"),
        (rb'"\ud83d\\udf89"', "\ufffd\\udf89"),
        (b'"caf\xe9"', "caf\ufffd"),
        ('"北京'.encode()[:-1] + b'"', "北\ufffd"),
    ],
)
def test_half_a_character_becomes_a_replacement_character(text: bytes, means: str) -> None:
    assert json.loads(mended(text)) == means
    assert mended(mended(text)) == mended(text)


class Chunks(httpx2.AsyncByteStream):
    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.chunks = chunks
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            yield chunk

    async def aclose(self) -> None:
        self.closed = True


async def sent_on(stream: httpx2.AsyncByteStream) -> bytes:
    return b"".join([chunk async for chunk in stream])


ANSWER = b'data: {"jsonrpc":"2.0","id":7,"result":{"text":"\\ud83d \xe5\x8c\x97\xff"}}'
STREAM = b"event: message\r\n" + ANSWER + b"\r\n\r\n: ping\n\ndata: two\ndata: lines\n\n" + ANSWER


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
async def test_events_are_mended_however_they_are_cut(size: int) -> None:
    inner = Chunks([STREAM[at : at + size] for at in range(0, len(STREAM), size)])
    stream = MendedEvents(inner, limit=10_000, request_id=7)
    assert await sent_on(stream) == STREAM.replace(rb"\ud83d", rb"\ufffd").replace(b"\xff", "\ufffd".encode())
    await stream.aclose()
    assert inner.closed


async def test_events_that_answer_another_request_are_dropped_and_questions_are_not() -> None:
    kept = [
        b'data: {"id":7,"result":{}}\n',
        b'data: {"id":"7","result":{}}\n',
        b'data: {"id":8,"method":"ping"}\n',
        b'data: {"id":null,"error":{}}\n',
        b'data: {"method":"notifications/progress","params":{"id":8}}\n',
        b'data: ["id"]\n',
        b'data: {"id":8,\n',
    ]
    dropped = [b'data: {"id":8,"result":{}}\n', b'data:{"error":{},"id":"other"}\n']
    assert await sent_on(MendedEvents(Chunks(kept), limit=1000, request_id=7)) == b"".join(kept)
    assert await sent_on(MendedEvents(Chunks(dropped), limit=1000, request_id=7)) == b":\n:\n"
    assert await sent_on(MendedEvents(Chunks(dropped), limit=1000)) == b"".join(dropped)


async def test_a_line_without_end_is_passed_on_not_kept() -> None:
    stream = MendedEvents(Chunks([b"data: " + b"x" * 50] * 4), limit=100, request_id=7)
    pieces = [piece async for piece in stream]
    assert len(pieces) > 1
    assert b"".join(pieces) == (b"data: " + b"x" * 50) * 4


async def test_a_body_is_mended_whole() -> None:
    inner = Chunks([b'"\xe5\x8c', b"\x97 \\ud8", b'3d"'])
    stream = MendedBody(inner)
    assert json.loads(await sent_on(stream)) == "北 \ufffd"
    await stream.aclose()
    assert inner.closed
