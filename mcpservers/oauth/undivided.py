"""What must not be left half done: a token that was redeemed has to be stored, whoever stopped waiting for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_running: set[asyncio.Task[Any]] = set()


async def undivided(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end, even if the caller is cancelled meanwhile, and return what it returns."""
    task = asyncio.create_task(work)
    _running.add(task)
    task.add_done_callback(_done)
    return await asyncio.shield(task)


def _done(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled():
        task.exception()  # seen, even if nobody waits any more
