"""Channel layers: who is in a group hears what is sent to it, and nobody fails for want of being heard."""

from __future__ import annotations

import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from channels.layers import channel_layers

from chatui.layers import LocalLayer
from conversations import hints, processes
from mcpservers import peers

HINT = {"type": "hint", "frame": "{}"}


async def test_everybody_in_the_group_hears_it_and_nobody_else() -> None:
    layer = LocalLayer()
    one, two, other = [await layer.new_channel() for _ in range(3)]
    for channel in (one, two):
        await layer.group_add("user.1", channel)
    await layer.group_add("user.2", other)
    await layer.group_discard("user.1", two)
    await layer.group_add("user.1", two)
    await layer.group_send("user.1", HINT)
    assert [await layer.receive(one), await layer.receive(two)] == [HINT, HINT]
    assert other not in layer.channels


async def test_a_full_channel_loses_the_message_and_the_others_hear_it() -> None:
    layer = LocalLayer(capacity=2)
    one, two = await layer.new_channel(), await layer.new_channel()
    await layer.group_add("user.1", one)
    for _ in range(3):
        await layer.group_send("user.1", HINT)
    await layer.group_add("user.1", two)
    await layer.group_send("user.1", HINT)
    assert layer.channels[one].qsize() == 2
    assert await layer.receive(two) == HINT


async def test_what_nobody_fetches_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = LocalLayer(expiry=0)
    channel = await layer.new_channel()
    await layer.group_add("user.1", channel)
    await layer.group_send("user.1", HINT)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 60)
    await layer.group_send("user.1", HINT)
    assert channel not in layer.groups.get("user.1", {})


async def test_a_group_without_anybody_is_sent_to_in_vain() -> None:
    await LocalLayer().group_send("user.1", HINT)


@pytest.fixture
def away(settings: Any) -> Iterator[None]:
    """The layer of several processes, whose Redis is away."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"redis://127.0.0.1:{taken.getsockname()[1]}/0"
    settings.REDIS_URL = url
    settings.CHANNEL_LAYERS = {
        "default": {"BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer", "CONFIG": {"hosts": [url]}}
    }
    channel_layers.backends.clear()
    yield
    channel_layers.backends.clear()


@pytest.mark.parametrize(
    "tell",
    [
        lambda: hints.tell_user(uuid4(), uuid4(), "{}"),
        lambda: hints.recheck_user(uuid4()),
        lambda: processes.look_at(uuid4()),
        lambda: processes.cancel_call(uuid4(), uuid4()),
        lambda: peers.account_changed(uuid4(), None),
    ],
    ids=["a hint", "a recheck", "a look", "a cancelled call", "a changed account"],
)
async def test_word_that_redis_does_not_take_costs_a_warning_and_nothing_else(
    away: None, caplog: pytest.LogCaptureFixture, tell: Callable[[], Awaitable[None]]
) -> None:
    await tell()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "Redis is away" in caplog.text


async def test_a_redis_that_takes_a_word_and_never_answers_counts_as_away(
    settings: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chatui.layers.WORD_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"redis://127.0.0.1:{mute.getsockname()[1]}/0"
        backend = "channels_redis.pubsub.RedisPubSubChannelLayer"
        settings.CHANNEL_LAYERS = {"default": {"BACKEND": backend, "CONFIG": {"hosts": [url]}}}
        channel_layers.backends.clear()
        await hints.tell_user(uuid4(), uuid4(), "{}")
        await channel_layers["default"].flush()
        channel_layers.backends.clear()
    assert "Redis is away" in caplog.text
