"""`Coalescer`: one turn's way to the feed. Deltas are gathered for some milliseconds; their order never changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

from conversations import wire
from conversations.feed import TurnFeed

DELTA_LIMIT = 40 * 1024  # characters of one delta frame, of which JSON writes each in six bytes at most
# Delta frames a second, of all turns of a process. Above it each turn's come less often, which no reader sees: at
# first not below every 40 ms, with very many turns as seldom as it takes.
FRAMES_PER_SECOND = 2500
MOST_FRAMES_PER_SECOND = 5000
HELD_SECONDS = 0.04
BURST = 20  # deltas in a row after which other turns get the loop


class Coalescer:
    """The first delta leaves at once, later ones every `seconds`; any other frame pushes out what was gathered.

    With many turns at once the time between two deltas grows with their number.
    """

    def __init__(self, turn_id: UUID, feed: TurnFeed, seconds: float) -> None:
        self._turn_id, self._feed, self._seconds = turn_id, feed, seconds
        self._loop = asyncio.get_running_loop()
        self._gathered: list[str] = []
        self._kind: Callable[..., wire.TurnFrame] = wire.TextDelta
        self._flushed_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._deltas = 0

    def text(self, text: str) -> None:
        self._gather(wire.TextDelta, text)

    def reasoning(self, text: str) -> None:
        self._gather(wire.ReasoningDelta, text)

    async def breathe(self) -> None:
        """Leave the loop to others after a delta: in a burst now and then, and with many turns until the next is due.

        What an endpoint sends meanwhile is then read and sent on as one.
        """
        window = self._window()
        if window > self._seconds:
            await asyncio.sleep(self._flushed_at + window - self._loop.time())
            return
        self._deltas += 1
        if self._deltas % BURST == 0:
            await asyncio.sleep(0)

    def publish(self, frame: wire.TurnFrame) -> None:
        self.flush()
        self._feed.publish(self._turn_id, frame)

    def flush(self) -> None:
        """Publish what was gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._gathered:
            return
        text = "".join(self._gathered)
        self._gathered = []
        self._flushed_at = self._loop.time()
        for start in range(0, len(text), DELTA_LIMIT):
            self._feed.publish(self._turn_id, self._kind(text=text[start : start + DELTA_LIMIT]))

    @property
    def last_seq(self) -> int:
        """The number of the last frame that left; what is only gathered is not in it."""
        return self._feed.last_seq(self._turn_id) or 0

    def _gather(self, kind: Callable[..., wire.TurnFrame], text: str) -> None:
        if kind is not self._kind:
            self.flush()
            self._kind = kind
        self._gathered.append(text)
        window = self._window()
        due = self._flushed_at + window
        # With many turns the pause was made before this was read: held back as well, it would wait twice.
        if window > self._seconds or self._loop.time() >= due:
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_at(due, self.flush)

    def _window(self) -> float:
        """Seconds between two deltas of this turn."""
        running = self._feed.running
        held = min(running / FRAMES_PER_SECOND, HELD_SECONDS)
        return max(self._seconds, held, running / MOST_FRAMES_PER_SECOND)
