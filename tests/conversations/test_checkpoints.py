"""Checkpoints: together, in order, and never after a turn has settled them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid4

import pytest

from conversations import transitions
from conversations.checkpoints import Checkpoints
from conversations.transitions import Progress

# What crosses to rows looks after the thread's connection, which only a test with a database may do.
pytestmark = pytest.mark.django_db(transaction=True)

Written = list[dict[UUID, int]]


def progress(seq: int) -> Progress:
    return Progress([{"type": "text", "text": "x", "round": 1}], seq, {}, 0.0)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Written:
    """What was stored, in order: the `seq` of each turn of a checkpoint."""
    settings.TURN = {**settings.TURN, "CHECKPOINT_SECONDS": 0.01}
    found: Written = []

    def store(process: str, shown: Mapping[UUID, Progress]) -> set[UUID]:
        found.append({turn_id: item.seq for turn_id, item in shown.items()})
        return set(shown)

    monkeypatch.setattr(transitions, "checkpoint", store)
    return found


class Watched(Checkpoints):
    """Tells when its timer, or the end of the write before, let it look at what is due."""

    def __init__(self) -> None:
        super().__init__("here")
        self.looked = asyncio.Event()

    def _write(self) -> None:
        super()._write()
        self.looked.set()

    async def next_look(self) -> None:
        await self.looked.wait()
        self.looked.clear()


async def finished(checkpoints: Watched) -> None:
    await checkpoints.next_look()
    assert checkpoints.writing is not None
    await checkpoints.writing


async def test_turns_that_are_due_are_stored_together_as_they_are_then(written: Written) -> None:
    checkpoints, one, two = Watched(), uuid4(), uuid4()
    seen = [1]
    checkpoints.due(one, lambda: progress(seen[0]))
    checkpoints.due(two, lambda: progress(7))
    checkpoints.due(one, lambda: progress(seen[0]))
    seen[0] = 5
    await finished(checkpoints)
    assert written == [{one: 5, two: 7}]


async def test_a_settled_turn_is_not_stored_any_more(written: Written) -> None:
    checkpoints, one, two = Watched(), uuid4(), uuid4()
    checkpoints.due(one, lambda: progress(1))
    checkpoints.due(two, lambda: progress(2))
    await checkpoints.settle(one)
    await finished(checkpoints)
    assert written == [{two: 2}]


async def test_settling_waits_for_what_is_being_stored_of_that_turn_alone(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.TURN = {**settings.TURN, "CHECKPOINT_SECONDS": 0.01}
    begun, go = threading.Event(), threading.Event()

    def store(process: str, shown: Mapping[UUID, Progress]) -> set[UUID]:
        begun.set()
        go.wait(60)
        return set()

    monkeypatch.setattr(transitions, "checkpoint", store)
    checkpoints, turn, other = Watched(), uuid4(), uuid4()
    checkpoints.due(turn, lambda: progress(1))
    await asyncio.to_thread(begun.wait, 60)
    await checkpoints.settle(other)
    settling = asyncio.ensure_future(checkpoints.settle(turn))
    await asyncio.sleep(0)
    assert not settling.done()
    go.set()
    await settling
    assert checkpoints.writing is not None
    assert checkpoints.writing.done()


async def test_an_older_state_never_overtakes_a_newer_one(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.TURN = {**settings.TURN, "CHECKPOINT_SECONDS": 0.001}
    begun, go, order = threading.Event(), threading.Event(), list[int]()

    def store(process: str, shown: Mapping[UUID, Progress]) -> set[UUID]:
        begun.set()
        go.wait(60)
        order.extend(item.seq for item in shown.values())
        return set()

    monkeypatch.setattr(transitions, "checkpoint", store)
    checkpoints, turn = Watched(), uuid4()
    checkpoints.due(turn, lambda: progress(1))
    await asyncio.to_thread(begun.wait, 60)
    await checkpoints.next_look()
    first = checkpoints.writing
    checkpoints.due(turn, lambda: progress(2))
    await checkpoints.next_look()  # the second is due while the first is still being written
    assert checkpoints.writing is first
    go.set()
    assert first is not None
    await first
    await finished(checkpoints)
    assert order == [1, 2]


async def test_a_checkpoint_that_fails_does_not_stop_the_next(
    monkeypatch: pytest.MonkeyPatch, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.TURN = {**settings.TURN, "CHECKPOINT_SECONDS": 0.001}
    calls = list[int]()

    def store(process: str, shown: Mapping[UUID, Progress]) -> set[UUID]:
        calls.append(len(calls))
        if len(calls) == 1:
            raise ValueError("the database is away")
        return set()

    monkeypatch.setattr(transitions, "checkpoint", store)
    checkpoints, turn = Watched(), uuid4()
    checkpoints.due(turn, lambda: progress(1))
    await finished(checkpoints)
    checkpoints.due(turn, lambda: progress(2))
    await finished(checkpoints)
    assert calls == [0, 1]
    assert "A checkpoint of 1 turns failed" in caplog.text
