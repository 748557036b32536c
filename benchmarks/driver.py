"""People at their websockets: each sends `turn.start` with an API key's socket and takes note of what arrives when."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from uuid import uuid4

import orjson
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

DEADLINE = 180.0  # seconds for one answer
now = time.monotonic  # the clock of the endpoint's stamps


class AnswerError(Exception):
    """An answer that failed, or that is not what the endpoint sent."""


@dataclass(slots=True)
class Answer:
    """One turn as the reader met it. Times are of `now`, in seconds; `lags` are (arrival, seconds late) of tokens."""

    asked: float
    ended: asyncio.Future[None]
    conversation_id: str = ""
    turn_id: str = ""
    started: float = 0.0
    first: float = 0.0
    last: float = 0.0
    finished: float = 0.0
    frames: int = 0
    calls: int = 0
    texts: list[str] = field(default_factory=list)
    lags: list[tuple[float, float]] = field(default_factory=list)
    message: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def tokens(self) -> int:
        return self.text.count(" ")

    def take(self, frame: dict[str, Any], at: float) -> None:
        self.frames += 1
        match frame["type"]:
            case "text.delta":
                text = frame["text"]
                self.first, self.last = self.first or at, at
                self.texts.append(text)
                if ":" in text:
                    self.lags.extend((at, at - int(token.partition(":")[2]) / 1e9) for token in text.split())
            case "turn.started":
                self.started, self.turn_id = at, frame["turn_id"]
                self.conversation_id = frame["conversation_id"]
            case "call.finished":
                self.calls += 1
            case "turn.finished":
                self.finished, self.message = at, frame["message"]
                if frame["outcome"] == "completed":
                    self.ended.set_result(None)
                else:
                    self.fail(f"{frame['outcome']}: {frame['error']}")

    def fail(self, why: str) -> None:
        if not self.ended.done():
            self.ended.set_exception(AnswerError(why))

    def check(self, tokens: int) -> None:
        """Raise `AnswerError` unless every token came, in order, and what was stored is what was sent."""
        if self.tokens != tokens:
            raise AnswerError(f"{self.tokens} tokens instead of {tokens}")
        if self.lags and [int(token.partition(":")[0]) for token in self.text.split()] != list(range(tokens)):
            raise AnswerError("tokens are out of order")
        stored = "".join(part["text"] for part in self.message["parts"] if part["type"] == "text")
        if stored != self.text:
            raise AnswerError("what was stored is not what was sent")


class Person(WSListener):
    """One socket. One answer at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.get_running_loop()
        self.hello: asyncio.Future[dict[str, Any]] = self.loop.create_future()
        self.answer: Answer | None = None
        self.transport: WSTransport | None = None
        self.partial = b""

    @classmethod
    async def at(cls, url: str, organization: str, key: str) -> Self:
        """Connect and wait for `hello`."""
        address = f"{url.replace('http', 'ws', 1)}/ws/o/{organization}/"
        headers = {"Authorization": f"Bearer {key}"}
        _, person = await ws_connect(cls, address, extra_headers=headers, websocket_handshake_timeout=60)
        await asyncio.wait_for(person.hello, 60)
        return person

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.transport = transport

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        at = now()
        if frame.msg_type == WSMsgType.CLOSE:
            self._lost(f"closed with {frame.get_close_code()}")
            transport.disconnect()
            return
        data = self.partial + frame.get_payload_as_bytes()
        self.partial = b"" if frame.fin else data
        if frame.fin and frame.msg_type in (WSMsgType.TEXT, WSMsgType.CONTINUATION):
            self._take(orjson.loads(data), at)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._lost("disconnected")

    def _take(self, frame: dict[str, Any], at: float) -> None:
        answer = self.answer
        if frame["type"] == "hello":
            self.hello.set_result(frame)
        elif answer is None:
            pass
        elif frame["type"] == "error":
            answer.fail(f"{frame['code']}: {frame['message']}")
        elif "seq" in frame and answer.turn_id in ("", frame["turn_id"]):
            answer.take(frame, at)

    def _lost(self, why: str) -> None:
        if not self.hello.done():
            self.hello.set_exception(ConnectionError(why))
        if self.answer is not None:
            self.answer.fail(why)

    def start(self, agent: str, conversation_id: str = "", text: str = "How are you?") -> Answer:
        """Send a question, of a new chat unless `conversation_id` says which, and return at once."""
        assert self.transport is not None
        where = {"conversation_id": conversation_id} if conversation_id else {"agent": agent}
        frame = {"type": "turn.start", "request_id": str(uuid4()), "content": [{"type": "text", "text": text}], **where}
        data = orjson.dumps(frame)
        self.answer = Answer(now(), self.loop.create_future())
        self.transport.send(WSMsgType.TEXT, data)
        return self.answer

    async def ask(self, agent: str, tokens: int | None = None, conversation_id: str = "") -> Answer:
        """A whole answer. Raises `AnswerError` when it fails, or is not the `tokens` that the endpoint sent."""
        answer = self.start(agent, conversation_id)
        async with asyncio.timeout(DEADLINE):
            await answer.ended
        if tokens is not None:
            answer.check(tokens)
        return answer

    def leave(self) -> None:
        if self.transport is not None:
            self.transport.disconnect()


async def people(url: str, organization: str, keys: Sequence[str]) -> list[Person]:
    """One socket a key, opened a few at a time."""
    slots = asyncio.Semaphore(8)

    async def one(key: str) -> Person:
        async with slots:
            return await Person.at(url, organization, key)

    return list(await asyncio.gather(*(one(key) for key in keys)))
