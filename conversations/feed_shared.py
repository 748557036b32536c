"""`SharedFeed`: the frames of a turn in Redis Streams too, so that it can be followed from any process.

What is published here is kept in memory as ever, followers in this process read it there, and a writer carries it to
Redis behind them. Followers of a turn that runs elsewhere read a mirror, which one reader per process keeps. The ids
of a stream's entries are the frames' numbers (`<seq>-0`), and `<seq>-1` marks the end.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from redis import asyncio as redis
from redis.exceptions import RedisError, ResponseError

from conversations.feed import MemoryFeed, NotHeldError, _Channel
from conversations.wire import TurnFrame

logger = logging.getLogger(__name__)

RUNNING_SECONDS = 24 * 3600  # a stream whose process died goes after this
BLOCK_MILLISECONDS = 5_000
LOST_SECONDS = 5.0  # between two looks for streams that are gone
BATCH = 500  # entries of one pipeline
MOST_QUEUED = 50_000  # entries that wait while Redis is away; then the oldest are given up
RETRY_SECONDS = 1.0
TIMEOUT = 15.0  # seconds; longer than a read may block
_FRAME, _END = "frame", "end"


@dataclass(frozen=True, slots=True)
class _Entry:
    """What is to be written: a frame, the end (`text` None), or only how long the stream is kept."""

    turn_id: UUID
    seq: int
    text: str | None = None
    end: bool = False
    expire: float | None = None
    elsewhere: TurnFrame | None = None  # the last frame of a turn that nobody publishes any more

    @property
    def is_expiry(self) -> bool:
        return self.text is None and not self.end


class SharedFeed(MemoryFeed):
    """A `TurnFeed` of all processes that use one Redis. While Redis is away, each process serves its own turns."""

    def __init__(
        self, url: str, keep_seconds: float, *, stored_seconds: float = 600, prefix: str = "chatui:feed:"
    ) -> None:
        super().__init__(keep_seconds)
        self._stored_seconds, self._prefix = stored_seconds, prefix
        self._client: Any = redis.Redis.from_url(
            url, decode_responses=True, socket_connect_timeout=3, socket_timeout=TIMEOUT
        )
        self._queue: deque[_Entry] = deque()
        self._written = asyncio.Event()
        self._written.set()
        self._work = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._mirrored: set[UUID] = set()  # what is followed here and does not run here
        self._mirroring = asyncio.Event()
        self._away = False
        self._wake = f"{prefix}wake:{uuid4().hex}"
        self._waking: set[asyncio.Task[None]] = set()

    # --- Publishing -----------------------------------------------------------------------------------------------

    def open(self, turn_id: UUID, seq: int) -> None:
        self._mirrored.discard(turn_id)
        super().open(turn_id, seq)

    def publish(self, turn_id: UUID, frame: TurnFrame) -> int:
        seq = super().publish(turn_id, frame)
        self._put(_Entry(turn_id, seq, self._channels[turn_id].frames[-1]))
        return seq

    def rest(self, turn_id: UUID) -> None:
        super().rest(turn_id)
        channel = self._channels.get(turn_id)
        if channel is not None:
            self._put(_Entry(turn_id, channel.last, expire=RUNNING_SECONDS))
            if channel.followers:
                self._mirror(turn_id)  # whoever goes on with it may be another process

    def close(self, turn_id: UUID) -> None:
        channel = self._channels.get(turn_id)
        if channel is not None and not channel.closed:
            self._mirrored.discard(turn_id)
            self._put(_Entry(turn_id, channel.last, end=True, expire=self._stored_seconds))
        super().close(turn_id)

    def end(self, turn_id: UUID, frame: TurnFrame) -> None:
        channel = self._channels.get(turn_id)
        if channel is not None and (channel.running or turn_id in self._mirrored):
            super().end(turn_id, frame)
        else:  # what is held here may be behind
            self._put(_Entry(turn_id, 0, elsewhere=frame))

    def _put(self, entry: _Entry) -> None:
        self._queue.append(entry)
        while len(self._queue) > MOST_QUEUED:
            self._queue.popleft()
        self._written.clear()
        self._work.set()
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._writing(), name="feed-writer")

    async def written(self) -> None:
        """Wait until everything that was published is in Redis."""
        await self._written.wait()

    def _redis_is_away(self, error: Exception) -> None:
        """Say so, once until it is back."""
        if not self._away:
            logger.warning("Turns cannot be followed from other processes, Redis is away: %s", error)
        self._away = True

    async def _writing(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            while self._queue:
                batch = [self._queue[number] for number in range(min(BATCH, len(self._queue)))]
                try:
                    await self._write(batch)
                except (RedisError, OSError) as error:
                    self._redis_is_away(error)
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                self._away = False
                for entry in batch:
                    if self._queue and self._queue[0] is entry:  # given up meanwhile, else
                        self._queue.popleft()
            self._written.set()

    async def _write(self, batch: list[_Entry]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        sent = []
        for entry in batch:
            if entry.elsewhere is not None:
                await self._write_end(entry.turn_id, entry.elsewhere)
                continue
            key = self._key(entry.turn_id)
            if not entry.is_expiry:
                pipeline.xadd(key, _fields(entry), id=_id(entry))
                sent.append(entry)
            seconds = entry.expire if entry.expire is not None else RUNNING_SECONDS if entry.seq == 1 else None
            if seconds is not None:
                pipeline.expire(key, max(1, round(seconds)))
                sent.append(entry)
        answers = await pipeline.execute(raise_on_error=False)
        refused: dict[UUID, int] = {}
        for number, (entry, answer) in enumerate(zip(sent, answers, strict=True)):
            if isinstance(answer, ResponseError):
                refused.setdefault(entry.turn_id, number)
            elif isinstance(answer, Exception):
                raise answer
        for turn_id, number in refused.items():
            entries = {_id(entry): entry for entry in sent[number:] if entry.turn_id == turn_id and not entry.is_expiry}
            await self._begin_again(list(entries.values()))

    async def _begin_again(self, entries: list[_Entry]) -> None:
        """Numbers that are taken: a process that died had published more than it stored, or these were written already.

        In the first case what it left goes, and the stream begins with these.
        """
        key = self._key(entries[0].turn_id)
        held = dict(await self._client.xrange(key, f"{entries[0].seq}-0"))
        if all(held.get(_id(entry)) == _fields(entry) for entry in entries):
            return
        pipeline = self._client.pipeline(transaction=True)
        pipeline.delete(key)
        for entry in entries:
            pipeline.xadd(key, _fields(entry), id=_id(entry))
        pipeline.expire(key, max(1, round(entries[-1].expire or RUNNING_SECONDS)))
        await pipeline.execute()

    async def _write_end(self, turn_id: UUID, frame: TurnFrame) -> None:
        key = self._key(turn_id)
        newest = await self._client.xrevrange(key, count=1)
        if not newest or _END in newest[0][1]:
            return  # nobody can follow it
        seq = _seq(newest[0][0]) + 1
        pipeline = self._client.pipeline(transaction=False)
        pipeline.xadd(key, {_FRAME: frame.encode(turn_id, seq)}, id=f"{seq}-0")
        pipeline.xadd(key, {_END: "1"}, id=f"{seq}-1")
        pipeline.expire(key, max(1, round(self._stored_seconds)))
        await pipeline.execute(raise_on_error=False)

    # --- Following ------------------------------------------------------------------------------------------------

    async def follow(self, turn_id: UUID, after: int) -> AsyncGenerator[str]:
        channel = self._channels.get(turn_id)
        if channel is None or not channel.first - 1 <= after <= channel.last:
            await self._fetch(turn_id, after)
        async with aclosing(super().follow(turn_id, after)) as held:
            async for text in held:
                yield text

    def _joined(self, turn_id: UUID, channel: _Channel) -> None:
        super()._joined(turn_id, channel)
        if not channel.running and not channel.closed:
            self._mirror(turn_id)

    def _left(self, turn_id: UUID, channel: _Channel) -> None:
        super()._left(turn_id, channel)
        if not channel.followers and self._channels.get(turn_id, channel) is channel:
            self._mirrored.discard(turn_id)  # what runs elsewhere is not mirrored for nobody

    async def _fetch(self, turn_id: UUID, after: int) -> None:
        """Bring the frames after `after` here. Raises `NotHeldError`."""
        try:
            entries = await self._client.xrange(self._key(turn_id), f"{after}-0")
        except (RedisError, OSError) as error:
            self._redis_is_away(error)
            raise NotHeldError(turn_id) from None
        self._away = False
        frames = [fields[_FRAME] for _, fields in entries if _FRAME in fields]
        numbers = [_seq(id) for id, fields in entries if _FRAME in fields]
        if not numbers or numbers[0] > after + 1:
            raise NotHeldError(turn_id)
        if numbers[0] == after:
            frames, numbers = frames[1:], numbers[1:]
        channel = self._channels.get(turn_id)
        if channel is not None and channel.last > after + len(frames):
            raise NotHeldError(turn_id)  # what is held here is newer, and has a gap before it
        if channel is None:
            channel = self._channels[turn_id] = _Channel(after)
            channel.running = False
        held = channel.last
        channel.first, channel.frames = after + 1, frames
        if channel.last > held:
            channel.wake()
        if any(_END in fields for _, fields in entries):
            self._ended(turn_id, channel)

    # --- The mirror -----------------------------------------------------------------------------------------------

    def _mirror(self, turn_id: UUID) -> None:
        if turn_id in self._mirrored:
            return
        self._mirrored.add(turn_id)
        self._mirroring.set()
        if self._reader is None:
            self._reader = asyncio.get_running_loop().create_task(self._reading(), name="feed-reader")
        else:
            self._put_wake()

    def _put_wake(self) -> None:
        task = asyncio.get_running_loop().create_task(self._interrupt(), name="feed-wake")
        self._waking.add(task)
        task.add_done_callback(self._waking.discard)

    async def _interrupt(self) -> None:
        """End the reader's waiting, so that it waits for the new stream as well."""
        try:
            await self._client.xadd(self._wake, {"": ""}, maxlen=1)
            await self._client.expire(self._wake, 60)
        except (RedisError, OSError):  # the reader finds out itself
            return

    async def _reading(self) -> None:
        woken, loop = "0-0", asyncio.get_running_loop()
        look_at = loop.time() + LOST_SECONDS
        while True:
            self._mirroring.clear()
            streams = {self._key(turn_id): turn_id for turn_id in self._mirrored if turn_id in self._channels}
            if not streams:
                await self._mirroring.wait()
                continue
            positions = {key: f"{self._channels[turn_id].last}-0" for key, turn_id in streams.items()}
            try:
                found = await self._client.xread({**positions, self._wake: woken}, block=BLOCK_MILLISECONDS)
                # By time, since there may always be something to read; what waits to be written is not lost.
                if loop.time() >= look_at and self._written.is_set():
                    await self._look_for_the_lost(streams)
                    look_at = loop.time() + LOST_SECONDS
            except (RedisError, OSError) as error:
                self._redis_is_away(error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._away = False
            for key, entries in found:
                if key == self._wake:
                    woken = entries[-1][0]
                elif streams[key] in self._mirrored:
                    self._take(streams[key], entries)

    def _take(self, turn_id: UUID, entries: list[tuple[str, dict[str, str]]]) -> None:
        channel = self._channels.get(turn_id)
        if channel is None:
            return
        for id, fields in entries:
            if _END in fields:
                self._ended(turn_id, channel)
                return
            seq = _seq(id)
            if seq > channel.last + 1:  # there is a gap: followers get a snapshot
                channel.go_on_after(seq - 1)
            if seq == channel.last + 1:
                channel.frames.append(fields[_FRAME])
        channel.wake()

    def _ended(self, turn_id: UUID, channel: _Channel) -> None:
        self._mirrored.discard(turn_id)
        super().close(turn_id)

    async def _look_for_the_lost(self, streams: dict[str, UUID]) -> None:
        """Streams that are gone, or were begun again with lower numbers, have nothing more for who follows them."""
        for key, turn_id in streams.items():
            newest = await self._client.xrevrange(key, count=1)
            channel = self._channels.get(turn_id)
            if channel is None or turn_id not in self._mirrored:
                continue
            if not newest or _seq(newest[0][0]) < channel.last:
                self._mirrored.discard(turn_id)
                del self._channels[turn_id]
                channel.go_on_after(channel.last + 1)

    # --- The end --------------------------------------------------------------------------------------------------

    def _key(self, turn_id: UUID) -> str:
        return f"{self._prefix}{turn_id.hex}"

    async def disconnect(self) -> None:
        """Write what waits, for a second at most, and leave Redis."""
        if self._queue:
            try:
                await asyncio.wait_for(self._written.wait(), 1)
            except TimeoutError:
                logger.warning("%d frames could not be handed to other processes", len(self._queue))
        tasks = [task for task in (self._writer, self._reader, *self._waking) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._client.aclose()


def _id(entry: _Entry) -> str:
    return f"{entry.seq}-{int(entry.end)}"


def _fields(entry: _Entry) -> dict[str, str]:
    return {_END: "1"} if entry.text is None else {_FRAME: entry.text}


def _seq(id: str) -> int:
    return int(id.partition("-")[0])
