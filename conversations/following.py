"""Following a turn from any door: the frames that are held, a snapshot where they are not, then what comes live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from uuid import UUID

from accounts.doors import Door
from chatui.rows import in_rows
from conversations import commands, feed
from conversations.commands import Snapshot
from conversations.feed import NotHeldError

PAUSE = 0.5  # seconds between two looks at a turn of which the feed holds nothing that follows what is stored


async def frames(door: Door, turn_id: UUID, after: int) -> AsyncGenerator[tuple[int, str]]:
    """(number, encoded frame) after `after`, live until the turn ends.

    Where those are not held, a `turn.snapshot` comes first. Raises what `door` raises for who may not look (any more),
    and `NotFoundError`.
    """
    channel = feed.current()
    looked_after: int | None = None
    try:
        while True:
            try:
                async with aclosing(channel.follow(turn_id, after)) as held:
                    async for text in held:
                        after += 1
                        yield after, text
                return
            except NotHeldError:
                if looked_after == after:  # a mirror with a gap, or a stream that is gone: rows say more in a moment
                    await asyncio.sleep(PAUSE)
            snapshot: Snapshot | None
            if looked_after is None:
                snapshot = await in_rows(door.run, commands.snapshot, turn_id)
            else:
                snapshot = await in_rows(door.run, commands.news, turn_id, after)
            if snapshot is not None:
                yield snapshot.seq, snapshot.frame
                if not snapshot.open:
                    return
                after = snapshot.seq
            looked_after = after
            channel.watch(turn_id, after)
            # It may have ended between that look and this watch, by a hand that publishes to watchers alone.
            again = await in_rows(door.run, commands.news, turn_id, after)
            if again is not None and not again.open:
                yield again.seq, again.frame
                return
    finally:
        channel.unwatch(turn_id)
