"""The layer of one process: who is in a group hears what is sent to it."""

from __future__ import annotations

import time

import pytest

from chatui.layers import LocalLayer

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
