"""Event streams as endpoints write them: cut anywhere, with comments, in any line ending."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.parts import Finish, TextChunk
from agents.providers.chat_model import EndpointUnavailableError
from agents.providers.sse import (
    DONE,
    MALFORMED,
    MAX_EVENT_BYTES,
    EventDecoder,
    EventTooLargeError,
    documents,
)
from tests.agents.providers.conftest import Reply, ask
from tests.fakes.endpoint import Endpoint, delta, reads


def event(content: str | None = None, **fields: Any) -> str:
    return f"data: {json.dumps(delta(content, **fields), ensure_ascii=False)}\n\n"


STOP = event(finish="stop")
DONE_EVENT = "data: [DONE]\n\n"


@pytest.mark.parametrize(
    "steps",
    [
        [": OPENROUTER PROCESSING\n\n", ":\n\n", event("ok"), ": ping\n\n", STOP, DONE_EVENT],
        ["id: 1\n" + event("ok"), ": ping\n\n", "id: 2\n" + STOP, DONE_EVENT],
        ["id: 7\n\n", event("ok"), "id: 8\n\n", STOP, DONE_EVENT],
        ["data: : keepalive\n\n", event("ok"), "data: : OPENROUTER PROCESSING\n\n", STOP, DONE_EVENT],
        ["data: ping\n\n", event("ok"), "data:\n\n", "data\n\n", "event: ping\ndata: {}\n\n", STOP, DONE_EVENT],
        ["retry: 3000\n\n", event("ok"), STOP, DONE_EVENT],
        ["\ufeff" + event("ok"), STOP, DONE_EVENT],
        [event("ok").replace("\n", "\r\n"), STOP.replace("\n", "\r"), DONE_EVENT.replace("\n", "\r\n")],
        [event("ok").replace("\n", "\r\n")[:-1], "\n" + STOP.replace("\n", "\r\n"), DONE_EVENT],
        [event("ok").replace("data: ", "data:"), STOP.replace("data: ", "data:"), "data:[DONE]\n\n"],
        [event("ok"), STOP, "data: [DONE] \n\n"],
        [event("ok"), STOP, "data: [DONE]"],
        [event("ok"), STOP.rstrip()],
        ["event: error\n\n", event("ok"), STOP, DONE_EVENT],
        [event("ok").replace('{"id"', '\ndata: {"id"'), STOP, DONE_EVENT],
        ["event: message\n" + event("ok"), STOP, DONE_EVENT],
        ["\n\n\n", event("ok"), "\n\n" + STOP, DONE_EVENT],
        [event("ok"), STOP, DONE_EVENT, "anything after it", event("no")],
    ],
)
async def test_whatever_surrounds_the_chunks_is_passed_over(
    endpoint: Endpoint, model_of: Any, steps: list[str]
) -> None:
    endpoint.script(reads(*steps))
    answered = await ask(model_of())
    assert answered.text == "ok"
    assert answered.completion.finish is Finish.STOP


async def test_events_may_be_split_and_joined_by_the_network(endpoint: Endpoint, model_of: Any) -> None:
    body = event("Hello ") + event("there") + STOP + DONE_EVENT
    for cuts in ([20, 60], [len(body) - 5], [1, 2, 3]):
        pieces = [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
        endpoint.script(reads(*pieces))
        assert (await ask(model_of())).text == "Hello there"


async def test_a_character_split_between_two_reads_is_whole(endpoint: Endpoint, model_of: Any) -> None:
    body = (event("北京 🦀") + STOP + DONE_EVENT).encode()
    first, second = body.index("京".encode()) + 1, body.index("🦀".encode()) + 2
    gates = [asyncio.Event(), asyncio.Event()]
    endpoint.script(reads(body[:first], gates[0], body[first:second], gates[1], body[second:]))
    running = asyncio.create_task(ask(model_of()))
    await endpoint.received(1)
    for gate in gates:
        await asyncio.sleep(0)
        gate.set()
    assert (await running).text == "北京 🦀"


async def test_an_error_written_into_an_unfinished_event_is_that_error(endpoint: Endpoint, model_of: Any) -> None:
    broken = (
        'data: {"id":"x","choices":[{"index":0,"del\ndata: {"type":"error","error":{"message":"stream_read_error"}}'
    )
    endpoint.script(reads(event("A"), broken + "\n\n"))
    answered = await ask(model_of())
    assert answered.text == "A"
    assert isinstance(answered.error, EndpointUnavailableError)
    assert answered.error.detail == "stream_read_error"


async def test_an_event_that_the_end_cut_is_no_event(endpoint: Endpoint, model_of: Any) -> None:
    endpoint.script(reads(event("A"), event("B")[:40]))
    answered = await ask(model_of())
    assert (answered.text, answered.completion.finish) == ("A", Finish.CUT)


async def test_chunks_after_done_are_not_part_of_the_answer(reply: Reply) -> None:
    answered = await reply(event("A"), DONE_EVENT + event("B"), end="eof")
    assert answered.text == answered.completion.text == "A"


async def test_what_came_together_is_one_event(endpoint: Endpoint, model_of: Any) -> None:
    endpoint.script(reads(event("Hel") + event("lo") + STOP + DONE_EVENT))
    assert [found for found in (await ask(model_of())).events if isinstance(found, TextChunk)] == [TextChunk("Hello")]


async def test_an_endless_event_is_an_error_before_it_fills_the_memory(endpoint: Endpoint, model_of: Any) -> None:
    piece = b"x" * 2**20
    endpoint.script(reads(event("A"), b"data: ", *[piece] * (MAX_EVENT_BYTES // len(piece) + 2)))
    answered = await ask(model_of())
    assert isinstance(answered.error, EndpointUnavailableError)
    assert answered.text == "A"


def test_the_size_of_events_is_limited_and_of_streams_not() -> None:
    decoder = EventDecoder()
    for _ in range(40):
        decoder.feed(b"data: " + b"x" * 2**20 + b"\n\n")
    for _ in range(15):
        decoder.feed(b"data: " + b"x" * 2**20 + b"\n")
    with pytest.raises(EventTooLargeError):
        decoder.feed((b"data: " + b"x" * 2**20 + b"\n") * 2)


@given(st.lists(st.text(max_size=12), min_size=1, max_size=6), st.data(), st.sampled_from(["\n", "\r\n", "\r"]))
def test_every_cut_of_a_stream_gives_the_same_events(texts: list[str], data: st.DataObject, ending: str) -> None:
    lines = [f": c{ending}data: [{ending}data: {json.dumps(text)}]{ending}id: 1{ending}{ending}" for text in texts]
    body = "".join(lines).encode()
    decoder = EventDecoder()
    found = []
    while body:
        size = data.draw(st.integers(1, len(body)))
        found += decoder.feed(body[:size])
        body = body[size:]
    found += decoder.flush()
    assert [json.loads(piece) for _, piece in found] == [[text] for text in texts]


def test_documents_of_one_event() -> None:
    assert documents(b"", b'{"a":1}') == [{"a": 1}]
    assert documents(b"", b"[DONE]") == [DONE]
    assert documents(b"", b"") == documents(b"", b": ping") == documents(b"", b"ping") == []
    assert documents(b"", b'{"a":1}\n{"b":2}') == [{"a": 1}, {"b": 2}]
    assert documents(b"", b'{"a":') == [MALFORMED]
    assert documents(b"", b'{"a":1}\n{"b":') == [{"a": 1}, MALFORMED]
    assert documents(b"", b'[{"a":1}]') == [{"a": 1}]
    assert documents(b"error", b'{"message":"x"}') == [{"error": {"message": "x"}}]


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a":"\\ud83d"}', {"a": "\ud83d"}),
        (b'{"a":"x\xff"}', {"a": "x\ufffd"}),
        (b'{"a":"x\ty"}', {"a": "x\ty"}),
        (b'{"a":NaN}', None),
    ],
)
def test_json_that_a_strict_parser_refuses_is_still_read(data: bytes, value: Any) -> None:
    (found,) = documents(b"", data)
    assert found == value if value is not None else isinstance(found["a"], float)
