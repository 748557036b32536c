"""Whether a loop is idle: what waits for something takes no turns of it, whatever the machine does beside."""

from __future__ import annotations

import asyncio
from typing import Any


async def turns_of_the_loop(seconds: float) -> int:
    """How many turns the running loop takes in so much time in which the caller does nothing."""
    loop: Any = asyncio.get_running_loop()
    turns, turn = 0, loop._run_once

    def counted() -> None:
        nonlocal turns
        turns += 1
        turn()

    loop._run_once = counted
    nothing = asyncio.create_task(asyncio.Event().wait())
    try:
        await asyncio.wait([nothing], timeout=seconds)
    finally:
        del loop._run_once
        nothing.cancel()
    return turns
