"""How long a request may take: counted from the last sign of life, and not while a person is asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PARTING_SECONDS = 0.1  # for a request to hear itself that its connection has ended


class Clock:
    """Two deadlines: since the last sign of life, and in all."""

    def __init__(self, idle: float, limit: float) -> None:
        self._idle, self._limit = idle, limit
        self._start = self._heard = time.monotonic()
        self._stopped: float | None = None

    def heard(self) -> None:
        self._heard = time.monotonic()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let no time pass meanwhile: a person is asked, and takes it. One pause at a time."""
        self.heard()
        self._stopped = began = time.monotonic()
        try:
            yield
        finally:
            self._stopped = None
            self._start += time.monotonic() - began
            self.heard()

    def remaining(self) -> float:
        if self._stopped is not None:  # the least that is left when time goes on; to be looked at again then
            return max(1.0, min(self._idle, self._start + self._limit - self._stopped))
        return min(self._heard + self._idle, self._start + self._limit) - time.monotonic()

    def verdict(self) -> str:
        if self._heard + self._idle <= self._start + self._limit:
            return f"no answer within {self._idle:g} s"
        return f"no result within {self._limit:g} s"


async def settled(over: asyncio.Future[None], task: asyncio.Task[Any], owner: asyncio.Task[None], clock: Clock) -> None:
    """Until `task` says that it is `over`, its connection's `owner` has ended, or time is up."""
    # By hand rather than by `asyncio.wait`, which takes one turn of the loop more, of every call.
    timer: asyncio.TimerHandle | None = None

    def look() -> None:
        nonlocal timer
        seconds = clock.remaining()
        if seconds > 0:
            timer = over.get_loop().call_later(seconds, look)
        else:
            settle(over)

    def ended(_: object) -> None:
        settle(over)

    look()
    owner.add_done_callback(ended)
    try:
        await over
    finally:
        owner.remove_done_callback(ended)
        if timer is not None:
            timer.cancel()
    if owner.done() and not task.done():
        await asyncio.wait({task}, timeout=PARTING_SECONDS)


def settle(over: asyncio.Future[None]) -> None:
    """`over` is so now, if it was not yet."""
    if not over.done():
        over.set_result(None)
