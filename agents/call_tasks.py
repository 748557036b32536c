"""The tasks of one tool loop: started with a name, and none outlives it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0  # a cancelled call may use them to tell its server


class Tasks:
    """The tasks of one loop. None outlives `close`, but for one that resists being cancelled for `CLOSE_SECONDS`."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            _, pending = await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
            for task in pending:
                logger.warning("%s did not end within %g s of being cancelled", task.get_name(), CLOSE_SECONDS)
