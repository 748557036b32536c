"""Deltas on their way to the feed: the first at once, later ones together, and rarer where many turns run."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import orjson
import pytest

from conversations import coalescing, wire
from conversations.coalescing import Coalescer
from conversations.feed import MemoryFeed


class Clock:
    """The time of a loop that stands still until it is moved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now)


def texts(feed: MemoryFeed, turn_id: UUID) -> list[str]:
    frames = [orjson.loads(frame) for frame in feed._channels[turn_id].frames]
    return [frame["text"] for frame in frames if frame["type"] == "text.delta"]


async def test_the_first_delta_leaves_at_once_and_later_ones_together(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, feed, turn = Clock(monkeypatch), MemoryFeed(60), uuid4()
    feed.open(turn, 0)
    out = Coalescer(turn, feed, 0.02)
    out.text("a")
    assert texts(feed, turn) == ["a"]
    out.text("b")
    clock.now += 0.01
    out.text("c")
    assert texts(feed, turn) == ["a"]
    clock.now += 0.011
    out.text("d")
    assert texts(feed, turn) == ["a", "bcd"]
    out.flush()


async def test_what_was_gathered_leaves_when_its_time_has_come() -> None:
    feed, turn = MemoryFeed(60), uuid4()
    feed.open(turn, 0)
    out = Coalescer(turn, feed, 0.001)
    for text in "ab":
        out.text(text)
    followed = feed.follow(turn, 0)
    assert [orjson.loads(await anext(followed))["text"] for _ in range(2)] == ["a", "b"]
    await followed.aclose()


async def test_another_frame_and_another_kind_push_out_what_was_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    feed, turn = MemoryFeed(60), uuid4()
    feed.open(turn, 0)
    out = Coalescer(turn, feed, 0.02)
    for text in "abc":
        out.text(text)
    out.reasoning("r")
    out.publish(wire.Status(code="thinking", label="Thinking"))
    kinds = [orjson.loads(frame)["type"] for frame in feed._channels[turn].frames]
    assert kinds == ["text.delta", "text.delta", "reasoning.delta", "status"]
    assert texts(feed, turn) == ["a", "bc"]


async def test_with_many_turns_a_turn_pauses_until_its_next_delta_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalescing, "MOST_FRAMES_PER_SECOND", 100)
    clock, feed, turn = Clock(monkeypatch), MemoryFeed(60), uuid4()
    feed.open(turn, 0)
    others = [uuid4() for _ in range(9)]
    for other in others:
        feed.open(other, 0)
    out = Coalescer(turn, feed, 0.02)
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(round(seconds, 3))
        clock.now += seconds

    monkeypatch.setattr(asyncio, "sleep", sleep)
    for text in "ab":
        clock.now += 0.03
        out.text(text)
        await out.breathe()
    assert texts(feed, turn) == ["a", "b"]
    assert slept == [0.1, 0.1]
    for other in others:
        feed.close(other)
    out.text("c")
    await out.breathe()
    out.text("d")
    assert texts(feed, turn) == ["a", "b", "c"]
    assert slept == [0.1, 0.1]
    out.flush()
    feed.aclose()


async def test_with_many_turns_what_was_read_after_a_pause_does_not_wait_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalescing, "MOST_FRAMES_PER_SECOND", 100)
    clock, feed, turn = Clock(monkeypatch), MemoryFeed(60), uuid4()
    feed.open(turn, 0)
    feed.running = 3
    out = Coalescer(turn, feed, 0.02)
    out.text("a")
    clock.now += 0.03
    feed.running = 10  # the pause was over, and now would last longer
    out.text("b")
    assert texts(feed, turn) == ["a", "b"]
    assert out._timer is None


async def test_a_burst_leaves_the_loop_to_others_now_and_then() -> None:
    feed, turn, others = MemoryFeed(60), uuid4(), 0
    feed.open(turn, 0)
    out = Coalescer(turn, feed, 0.02)

    async def other() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    beside = asyncio.ensure_future(other())
    for _ in range(coalescing.BURST * 5):
        out.text("a")
        await out.breathe()
    assert others == 5
    beside.cancel()
    out.flush()


@pytest.mark.parametrize(
    ("running", "seconds"), [(1, 0.018), (45, 0.018), (60, 0.024), (100, 0.04), (200, 0.04), (500, 0.1)]
)
async def test_how_long_a_delta_is_held_back(running: int, seconds: float) -> None:
    feed = MemoryFeed(60)
    feed.running = running
    assert Coalescer(uuid4(), feed, 0.018)._window() == pytest.approx(seconds)


async def test_only_turns_that_run_are_counted() -> None:
    feed, one, two = MemoryFeed(60), uuid4(), uuid4()
    feed.open(one, 0)
    feed.open(two, 0)
    feed.open(two, 0)
    assert feed.running == 2
    feed.rest(two)
    feed.rest(two)
    assert feed.running == 1
    feed.open(two, 0)
    assert feed.running == 2
    feed.close(two)
    feed.close(two)
    assert feed.running == 1
    feed.aclose()
    assert feed.running == 0
