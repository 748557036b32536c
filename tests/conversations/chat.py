"""`Chat`: one websocket of a test, on the product's own consumer, with frames awaited by what they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Self
from uuid import UUID, uuid4

import orjson
from channels.testing import WebsocketCommunicator
from django.conf import settings
from django.test import Client

from accounts.models import User
from chatui.routing import websocket
from chatui.rows import in_rows

TIMEOUT = 60.0
Frame = dict[str, Any]


class Communicator(WebsocketCommunicator):
    """One that waits for the application longer than a second: it may have to wait for a slow machine itself."""

    async def connect(self, timeout: float = TIMEOUT) -> tuple[bool, Any]:
        return await super().connect(timeout)

    async def disconnect(self, code: int = 1000, timeout: float = TIMEOUT) -> None:
        await super().disconnect(code, timeout)

    async def receive_output(self, timeout: float = TIMEOUT) -> dict[str, Any]:
        return await super().receive_output(timeout)


def cookie_of(user: User) -> str:
    """A session cookie of `user`, signed in now."""
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"


class Closed(Exception):
    """The server closed the socket, with `code`."""

    def __init__(self, code: int) -> None:
        super().__init__(f"closed with {code}")
        self.code = code


class Chat:
    """A socket. `seen` holds every frame in order; what one wait skipped is not looked at again by the next."""

    def __init__(self, organization: str, headers: Mapping[str, str], subprotocols: list[str] | None = None) -> None:
        self.communicator = Communicator(
            websocket,
            f"/ws/o/{organization}/",
            headers=[(name.encode(), value.encode()) for name, value in headers.items()],
            subprotocols=subprotocols,
        )
        self.seen: list[Frame] = []
        self.hello: Frame = {}

    @classmethod
    async def of(cls, user: User, organization: str = "acme", *, origin: str | None = "http://testserver") -> Chat:
        """A connected socket of `user` that has said hello."""
        headers = {"cookie": await in_rows(cookie_of, user), **({"origin": origin} if origin else {})}
        return await cls(organization, headers).connect()

    async def connect(self) -> Self:
        accepted, _ = await self.communicator.connect()
        assert accepted
        self.hello = await self.next()
        assert self.hello["type"] == "hello"
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.communicator.disconnect()

    async def send(self, type: str, **fields: Any) -> None:
        await self.send_text(orjson.dumps({"type": type, **fields}).decode())

    async def send_text(self, text: str) -> None:
        await self.communicator.send_to(text_data=text)

    async def next(self) -> Frame:
        """The next frame. Raises `Closed`."""
        output = await self.communicator.receive_output()
        if output["type"] == "websocket.close":
            raise Closed(output.get("code") or 1000)
        frame: Frame = orjson.loads(output["text"])
        self.seen.append(frame)
        return frame

    async def until(self, type: str, where: Callable[[Frame], bool] = lambda _: True) -> Frame:
        """The first further frame of that type, whatever comes before it."""
        while True:
            frame = await self.next()
            if frame["type"] == type and where(frame):
                return frame

    async def closed(self) -> int:
        """The code with which the server closes, whatever it sends before."""
        while True:
            try:
                await self.next()
            except Closed as closed:
                return closed.code

    async def start(self, text: str = "hi", **fields: Any) -> UUID:
        """Start a turn and return its id, from `turn.started`."""
        fields.setdefault("request_id", str(uuid4()))
        if "conversation_id" not in fields:
            fields.setdefault("agent", "helper")
        await self.send("turn.start", content=[{"type": "text", "text": text}], **fields)
        return UUID((await self.until("turn.started"))["turn_id"])

    async def ask(self, text: str = "hi", **fields: Any) -> Frame:
        """Start a turn and return its `turn.finished`."""
        turn_id = await self.start(text, **fields)
        return await self.until("turn.finished", lambda frame: frame["turn_id"] == str(turn_id))

    def frames(self, turn_id: UUID | str) -> list[Frame]:
        """Every numbered frame of a turn that this socket saw."""
        return [frame for frame in self.seen if frame.get("turn_id") == str(turn_id) and "seq" in frame]

    def text(self, turn_id: UUID | str) -> str:
        """The text that a person saw: the deltas, concatenated."""
        return "".join(frame["text"] for frame in self.frames(turn_id) if frame["type"] == "text.delta")


def gapless(frames: list[Frame]) -> bool:
    """Whether frames of one turn are numbered 1, 2, 3 … each once."""
    return [frame["seq"] for frame in frames] == list(range(1, len(frames) + 1))


async def settled() -> None:
    """Let what is ready run: for 'nothing more happened', never in place of an event."""
    for _ in range(20):
        await asyncio.sleep(0)
