"""A scripted OpenAI-compatible endpoint over real HTTP on loopback: any bytes, in any rhythm, one answer per request.

    async def test_something(endpoint):
        endpoint.script(calls(("clock__now", {"zone": "UTC"})), text("It is ", "noon."))
        model = OpenAIChatModel(ModelSettings(base_url=endpoint.base_url, model="test-model"))

A step between chunks may be an `asyncio.Event`: the answer waits for it (a gate that is never set never answers).
Import the fixture `endpoint` in a conftest; it also closes the pooled clients of the product.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import pytest_asyncio

from tests.fakes.endpoint_answers import (
    Answer,
    Step,
    calls,
    chunk,
    chunks,
    delta,
    document,
    failure,
    never,
    reads,
    text,
)

__all__ = [
    "Answer",
    "Endpoint",
    "RecordedRequest",
    "calls",
    "chunk",
    "chunks",
    "delta",
    "document",
    "endpoint",
    "failure",
    "never",
    "reads",
    "text",
]


@dataclass(eq=False)
class RecordedRequest:
    """What the endpoint received; `disconnected` is set when the client went away before the answer was whole."""

    method: str
    path: str
    headers: Mapping[str, str]  # names in lower case
    raw: bytes
    connection: int  # equal for requests on one connection
    disconnected: asyncio.Event = field(default_factory=asyncio.Event)
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    @property
    def messages(self) -> list[dict[str, Any]]:
        return list(self.body["messages"])

    @property
    def tools(self) -> list[str]:
        return [tool["function"]["name"] for tool in self.body.get("tools", [])]


Script = Callable[[RecordedRequest], Answer]


class Endpoint:
    """Answers the requests to `/chat/completions` from its script, in order; one too many is a 500 that says so.

    `fallback` answers when the script is empty. `requests` holds the requests for completions, `listings` the rest.
    """

    def __init__(self, *answers: Answer | Script, models: Sequence[str] = ("test-model",)) -> None:
        self.answers: deque[Answer | Script] = deque(answers)
        self.models = list(models)
        self.fallback: Answer | Script | None = None
        self.listing: Answer | None = None  # what GET /models answers, if not `models`
        self.requests: list[RecordedRequest] = []
        self.listings: list[RecordedRequest] = []
        self.connections = 0
        self._arrived = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def last(self) -> RecordedRequest:
        return self.requests[-1]

    def script(self, *answers: Answer | Script) -> None:
        """Append to what is answered."""
        self.answers.extend(answers)

    async def received(self, count: int) -> RecordedRequest:
        """Wait until `count` completions were asked for; the newest of these."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)
        return self.requests[count - 1]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self, port: int = 0) -> None:
        """Listen, again if it was stopped; 0 takes any port."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", port, limit=2**26)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close everything: from now on connections are refused."""
        if self._server is None:
            return
        self._server.close()
        await self.drop_connections()
        await self._server.wait_closed()
        self._server = None

    async def drop_connections(self) -> None:
        """Close every connection, also those that answer."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        number = self.connections
        try:
            while (request := await _read_request(reader, number)) is not None:
                if not await self._answer(request, reader, writer):
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass  # the connection is closed below either way, and a handler's task has nobody to tell
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(
        self, request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Whether the connection lives on."""
        if request.path.split("?")[0].endswith("/chat/completions"):
            if self.answers:
                answer = self.answers.popleft()
            else:
                answer = self.fallback or failure(500, "no answer is scripted for this request")
            async with self._arrived:
                self.requests.append(request)
                self._arrived.notify_all()
        else:
            self.listings.append(request)
            listing = {"object": "list", "data": [{"id": name, "object": "model"} for name in self.models]}
            answer = self.listing or document(listing)
        if callable(answer):
            answer = answer(request)
        return await _write(answer, request, reader, writer)


async def _read_request(reader: asyncio.StreamReader, connection: int) -> RecordedRequest | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").rstrip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    raw = await reader.readexactly(int(headers.get("content-length", 0)))
    return RecordedRequest(method, path, headers, raw, connection)


async def _write(
    answer: Answer, request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    leaving = asyncio.create_task(reader.read(1), name="watch the client")
    writing = asyncio.create_task(_send(answer, request, writer), name="answer")
    try:
        await asyncio.wait({leaving, writing}, return_when=asyncio.FIRST_COMPLETED)
        if not writing.done():
            request.disconnected.set()
            return False
        writing.result()
        request.answered.set()
        return answer.end not in ("reset", "eof_unframed")
    except ConnectionError:
        request.disconnected.set()
        return False
    finally:
        for task in (leaving, writing):
            task.cancel()
        await asyncio.gather(leaving, writing, return_exceptions=True)


async def _send(answer: Answer, request: RecordedRequest, writer: asyncio.StreamWriter) -> None:
    asked_to_stream = not request.raw or request.body.get("stream", False)
    steps: Sequence[Step] = answer.steps
    headers = {"content-type": "text/event-stream", **{k.lower(): v for k, v in answer.headers.items()}}
    if answer.completion is not None and not asked_to_stream:
        steps, headers["content-type"] = [json.dumps(answer.completion)], "application/json"
    started = False
    for step in [*steps, *([b"data: [DONE]\n\n"] if answer.end == "done" and steps is answer.steps else [])]:
        if isinstance(step, asyncio.Event):
            await step.wait()
            continue
        if not started:
            _send_head(answer.status, headers, writer)
            started = True
        data = _encode(step)
        if data:
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await writer.drain()
            await asyncio.sleep(0)  # one socket write per step
    if not started:
        _send_head(answer.status, headers, writer)
    if answer.end == "reset":
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
    else:
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def _send_head(status: int, headers: Mapping[str, str], writer: asyncio.StreamWriter) -> None:
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join([*lines, "transfer-encoding: chunked", "", ""]).encode("latin-1"))


def _encode(step: Step) -> bytes:
    match step:
        case bytes():
            return step
        case str():
            return step.encode()
        case _:
            return b"data: " + json.dumps(step, ensure_ascii=False).encode() + b"\n\n"


@pytest_asyncio.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    """A running endpoint with an empty script; afterwards the product's pooled clients of this loop are closed."""
    from agents.providers.openai_chat import aclose_clients

    async with Endpoint() as running:
        try:
            yield running
        finally:
            await aclose_clients()
