"""`TurnFeed`: the numbered, replayable events of each turn; in memory here, behind the interface of a shared one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Protocol
from uuid import UUID

from django.conf import settings

from conversations.wire import TurnFrame


class NotHeldError(LookupError):
    """The frames after the asked one are no longer (or not) held: send a snapshot, then follow after its `seq`."""


class TurnFeed(Protocol):
    """Frames of a turn are numbered 1, 2, 3 … without gap, across parking and resuming."""

    def open(self, turn_id: UUID, seq: int) -> None:
        """Begin (or go on with) a turn whose last published number is `seq`."""
        ...

    def publish(self, turn_id: UUID, frame: TurnFrame) -> int:
        """Number, keep and hand out `frame`; returns its `seq`. Never waits: a shared feed queues and pipelines."""
        ...

    def last_seq(self, turn_id: UUID) -> int | None:
        """The number of the last frame published, None for a turn that this feed does not know."""
        ...

    @property
    def running(self) -> int:
        """How many turns are being published by this process: opened, and neither resting nor closed."""
        ...

    def follow(self, turn_id: UUID, after: int) -> AsyncGenerator[str]:
        """Encoded frames from `after` + 1 on, live, until the turn ends. Raises `NotHeldError` at the first step."""
        ...

    def rest(self, turn_id: UUID) -> None:
        """The turn is parked: followers stay, held frames may go after a while."""
        ...

    def watch(self, turn_id: UUID, seq: int) -> None:
        """Keep a place for what comes after `seq` of a turn that does not run here, to be followed at once."""
        ...

    def unwatch(self, turn_id: UUID) -> None:
        """Give up a place that nobody follows."""
        ...

    def end(self, turn_id: UUID, frame: TurnFrame) -> None:
        """Publish the last frame of a turn that has no task (any more), if anybody follows it, and close it."""
        ...

    def close(self, turn_id: UUID) -> None:
        """The turn ended: followers finish, frames are kept for `FEED_KEEP_SECONDS` more."""
        ...


class _Channel:
    """One turn's frames, `first` being the number of the oldest held; how many follow, and who waits for the next."""

    __slots__ = ("closed", "first", "followers", "frames", "running", "timer", "waiters")

    def __init__(self, seq: int) -> None:
        self.first = seq + 1
        self.frames: list[str] = []
        self.followers = 0
        self.closed = False
        self.running = True
        self.timer: asyncio.TimerHandle | None = None
        self.waiters: set[asyncio.Future[None]] = set()

    @property
    def last(self) -> int:
        return self.first + len(self.frames) - 1

    def wake(self) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)
        self.waiters.clear()

    def go_on_after(self, seq: int) -> None:
        """Hold nothing up to `seq`; who has not seen it all is told so."""
        self.first, self.frames = seq + 1, []
        self.wake()

    def keep_no_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class MemoryFeed:
    """A `TurnFeed` of one process and one event loop."""

    def __init__(self, keep_seconds: float) -> None:
        self._keep_seconds = keep_seconds
        self._channels: dict[UUID, _Channel] = {}
        self.running = 0

    def open(self, turn_id: UUID, seq: int) -> None:
        channel = self._channels.get(turn_id)
        if channel is None:
            self._channels[turn_id] = _Channel(seq)
            self.running += 1
            return
        if not channel.running:
            channel.running = True
            self.running += 1
        channel.keep_no_timer()
        if channel.last < seq:  # another process published meanwhile: what is held here has a gap
            channel.go_on_after(seq)

    def watch(self, turn_id: UUID, seq: int) -> None:
        channel = self._channels.get(turn_id)
        if channel is None:
            channel = self._channels[turn_id] = _Channel(seq)
            channel.running = False
        elif not channel.running and channel.last < seq:  # it went on elsewhere
            channel.go_on_after(seq)

    def unwatch(self, turn_id: UUID) -> None:
        channel = self._channels.get(turn_id)
        if channel is not None and not (channel.followers or channel.running or channel.timer):
            del self._channels[turn_id]

    def end(self, turn_id: UUID, frame: TurnFrame) -> None:
        if turn_id in self._channels:
            self.publish(turn_id, frame)
            self.close(turn_id)

    def publish(self, turn_id: UUID, frame: TurnFrame) -> int:
        channel = self._channels[turn_id]
        seq = channel.first + len(channel.frames)
        channel.frames.append(frame.encode(turn_id, seq))
        if channel.waiters:
            channel.wake()
        return seq

    def last_seq(self, turn_id: UUID) -> int | None:
        channel = self._channels.get(turn_id)
        return None if channel is None else channel.last

    async def follow(self, turn_id: UUID, after: int) -> AsyncGenerator[str]:
        channel = self._channels.get(turn_id)
        if channel is None or not channel.first - 1 <= after <= channel.last:
            raise NotHeldError(turn_id)
        seq = after
        self._joined(turn_id, channel)
        try:
            while True:
                while channel.first - 1 <= seq < channel.last:  # while it is being sent, frames may go
                    yield channel.frames[seq + 1 - channel.first]
                    seq += 1
                if seq < channel.first - 1:
                    raise NotHeldError(turn_id)
                if channel.closed:
                    return
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                channel.waiters.add(waiter)
                try:
                    await waiter
                finally:
                    channel.waiters.discard(waiter)
        finally:
            self._left(turn_id, channel)

    def _joined(self, turn_id: UUID, channel: _Channel) -> None:
        channel.followers += 1

    def _left(self, turn_id: UUID, channel: _Channel) -> None:
        channel.followers -= 1
        if self._channels.get(turn_id) is channel:
            self.unwatch(turn_id)

    def rest(self, turn_id: UUID) -> None:
        channel = self._channels.get(turn_id)
        if channel is not None:
            self._runs_no_more(channel)
            channel.keep_no_timer()
            channel.timer = asyncio.get_running_loop().call_later(self._keep_seconds, self._forget_frames, turn_id)

    def close(self, turn_id: UUID) -> None:
        channel = self._channels.get(turn_id)
        if channel is None or channel.closed:
            return
        channel.closed = True
        self._runs_no_more(channel)
        channel.wake()
        channel.keep_no_timer()
        channel.timer = asyncio.get_running_loop().call_later(self._keep_seconds, self._channels.pop, turn_id, None)

    def _runs_no_more(self, channel: _Channel) -> None:
        if channel.running:
            channel.running = False
            self.running -= 1

    def _forget_frames(self, turn_id: UUID) -> None:
        channel = self._channels.get(turn_id)
        if channel is None:
            return
        channel.timer = None
        if channel.followers:  # keep the number, drop the frames; who is still being sent some looks at the rows
            channel.go_on_after(channel.last)
        else:
            del self._channels[turn_id]

    def aclose(self) -> None:
        """End every follower and cancel every timer: the process stops."""
        for channel in self._channels.values():
            channel.closed = True
            channel.keep_no_timer()
            channel.wake()
        self._channels.clear()
        self.running = 0

    async def disconnect(self) -> None:
        """Leave what the feed is shared over, once it is closed."""


def _made() -> MemoryFeed:
    keep: float = settings.TURN["FEED_KEEP_SECONDS"]
    if not settings.REDIS_URL:
        return MemoryFeed(keep)
    from conversations.feed_shared import SharedFeed

    return SharedFeed(settings.REDIS_URL, keep, stored_seconds=settings.TURN["FEED_STORED_SECONDS"])


_feeds: dict[asyncio.AbstractEventLoop, MemoryFeed] = {}


def current() -> MemoryFeed:
    """The feed of the running event loop (one per process in production; one per test)."""
    loop = asyncio.get_running_loop()
    feed = _feeds.get(loop)
    if feed is None:
        for other in [other for other in _feeds if other.is_closed()]:
            del _feeds[other]
        feed = _feeds[loop] = _made()
    return feed
