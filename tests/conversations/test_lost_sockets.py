"""Sockets that go without a word: the servers say so by raising when something is sent, each in its own way."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import orjson
import pytest
from autobahn.exception import Disconnected
from django.db import OperationalError
from uvicorn.protocols.utils import ClientDisconnected

from accounts.models import Organization, User
from chatui.routing import websocket
from chatui.rows import in_rows
from conversations import consumers, hints
from tests.conversations.chat import Chat, cookie_of
from tests.fakes.endpoint import Endpoint, text

GONE = pytest.mark.parametrize("gone", [ClientDisconnected, Disconnected], ids=["uvicorn", "daphne"])


class Line:
    """A client at the server's side of the socket, which can go without its `websocket.disconnect`."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[Any] = asyncio.Queue()
        self.sent: asyncio.Queue[Any] = asyncio.Queue()
        self.gone: Exception | None = None
        self.tried = asyncio.Event()  # something was sent after it had gone

    async def send(self, event: Any) -> None:
        if self.gone is not None:
            self.tried.set()
            raise self.gone
        self.sent.put_nowait(event)

    async def open(self, owner: User) -> asyncio.Task[None]:
        headers = {"cookie": await in_rows(cookie_of, owner), "origin": "http://testserver"}
        scope: Any = {
            "type": "websocket",
            "path": "/ws/o/acme/",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "subprotocols": [],
        }
        running = asyncio.ensure_future(websocket(scope, self.incoming.get, self.send))
        self.incoming.put_nowait({"type": "websocket.connect"})
        await self.until("hello")
        return running

    def says(self, type: str, **fields: Any) -> None:
        self.incoming.put_nowait({"type": "websocket.receive", "text": orjson.dumps({"type": type, **fields}).decode()})

    def leaves(self) -> None:
        self.incoming.put_nowait({"type": "websocket.disconnect", "code": 1006})

    async def until(self, type: str) -> Any:
        while True:
            frame = orjson.loads((await self.sent.get()).get("text") or b"{}")
            if frame.get("type") == type:
                return frame


@GONE
async def test_a_reader_that_goes_in_mid_answer_costs_neither_the_answer_nor_a_line_in_the_log(
    owner: User, endpoint: Endpoint, house: Any, caplog: pytest.LogCaptureFixture, gone: type[Exception]
) -> None:
    first, second = asyncio.Event(), asyncio.Event()
    endpoint.script(text("one", first, " two", second, " three"))
    line = Line()
    async with await Chat.of(owner) as chat:
        running = await line.open(owner)
        turn_id = await chat.start()
        await chat.until("text.delta")
        line.says("turn.follow", turn_id=str(turn_id), after=0)
        await line.until("text.delta")
        line.gone = gone()
        first.set()
        await line.tried.wait()
        second.set()
        assert (await chat.until("turn.finished"))["outcome"] == "completed"
        assert chat.text(turn_id) == "one two three"
        line.leaves()
        await running
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@GONE
async def test_a_hint_to_a_socket_that_has_gone_leaves_nothing_behind(
    owner: User, organization: Organization, house: Any, gone: type[Exception]
) -> None:
    line = Line()
    running = await line.open(owner)
    line.gone = gone()
    await hints.tell_user(owner.pk, organization.pk, "{}")
    await line.tried.wait()
    assert not running.done()  # the server still says that it has gone, and that is its end
    line.leaves()
    await running
    assert not consumers.open_sockets()
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("socket-watch")]


async def test_nothing_is_sent_after_a_socket_was_closed_by_us(
    owner: User, organization: Organization, endpoint: Endpoint, house: Any
) -> None:
    gate = asyncio.Event()
    endpoint.script(text("one", gate, "two"))
    line = Line()
    running = await line.open(owner)
    line.says("turn.start", request_id="6f2c1f3e-6d7d-4f0f-8f5e-0d3f8c3a9b11", agent="helper",
              content=[{"type": "text", "text": "hi"}])  # fmt: skip
    await line.until("text.delta")
    await in_rows(lambda: User.objects.filter(pk=owner.pk).update(is_active=False))
    line.says("ping")
    while (event := await line.sent.get())["type"] != "websocket.close":
        pass
    assert event["code"] == 4401
    gate.set()
    await hints.tell_user(owner.pk, organization.pk, "{}")
    while house._running:
        await asyncio.wait({running_turn.task for running_turn in house._running.values()})
    line.leaves()
    await running
    assert line.sent.empty()


async def test_a_database_that_is_away_for_a_moment_closes_no_socket(
    owner: User, house: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await Chat.of(owner) as chat:
        away = asyncio.Event()

        def refuse(*_: Any) -> None:
            away.set()
            raise OperationalError("the connection is lost")

        with monkeypatch.context() as patch:
            patch.setattr("accounts.doors.Door.run", refuse)
            await hints.recheck_user(owner.pk)
            await away.wait()
        await chat.send("ping")
        await chat.until("pong")
