"""A time limit on each of many short waits of one task, at the cost of one timer for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")
_RETRY_SECONDS = 0.05


class Patience:
    """First every wait ends at `deadline` (of the loop's clock); after `per_wait(s)` each may take `s` seconds.

    `asyncio.timeout` makes and cancels a timer for each wait: dear where a wait is one token. Here a timer looks from
    time to time whether the present wait is too old.
    """

    def __init__(self, deadline: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadline: float | None = deadline
        self._seconds = 0.0
        self._since: float | None = None  # when the present wait began
        self._task: asyncio.Task[Any] | None = None
        self._expired = False
        self._timer: asyncio.TimerHandle | None = self._loop.call_at(deadline, self._look)

    def per_wait(self, seconds: float) -> None:
        """From the next wait on, the limit is this."""
        if self._deadline is not None or seconds != self._seconds:
            self._deadline, self._seconds = None, seconds
            self._arm(self._loop.time() + seconds)

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """The result of `awaitable`, or `TimeoutError`; a cancellation from outside stays one."""
        task = asyncio.current_task()
        assert task is not None
        cancelling = task.cancelling()
        self._task, self._since = task, self._loop.time()
        try:
            return await awaitable
        except asyncio.CancelledError:
            if self._expired and task.uncancel() <= cancelling:
                raise TimeoutError from None
            raise
        finally:
            self._since = None

    def close(self) -> None:
        """No wait follows."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, when: float) -> None:
        self.close()
        self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        if self._since is None or self._task is None:
            # Nobody waits: the consumer is busy, and that is not the endpoint's fault.
            self._arm(now + (self._seconds or _RETRY_SECONDS))
            return
        due = self._deadline if self._deadline is not None else self._since + self._seconds
        if now >= due:
            self._timer = None
            self._expired = True
            self._task.cancel()
        else:
            self._arm(due)
