"""Checkpoints of running turns: what is due within a second is written together, in one transaction."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from uuid import UUID

from django.conf import settings

from chatui.rows import in_rows
from conversations import transitions
from conversations.transitions import Progress

logger = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of one process and event loop. `CHECKPOINT_SECONDS` after a turn is due it has been written."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._due: dict[UUID, Callable[[], Progress]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.writing: asyncio.Task[None] | None = None
        self._in_writing: frozenset[UUID] = frozenset()

    def due(self, turn_id: UUID, take: Callable[[], Progress]) -> None:
        """Something was shown that is not stored; `take` is asked when the time comes, for all that there is then."""
        self._due.setdefault(turn_id, take)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(settings.TURN["CHECKPOINT_SECONDS"], self._write)

    async def settle(self, turn_id: UUID) -> None:
        """After this nothing more is written of the turn: what is due is dropped, what is being written awaited."""
        self._due.pop(turn_id, None)
        if turn_id in self._in_writing and self.writing is not None:
            await asyncio.wait({self.writing})

    def _write(self) -> None:
        self._timer = None
        if not self._due:
            return
        if self.writing is not None and not self.writing.done():
            self.writing.add_done_callback(lambda _: self._write())  # an older state must not overtake a newer one
            return
        progress = {turn_id: take() for turn_id, take in self._due.items()}
        self._due.clear()
        self._in_writing = frozenset(progress)
        self.writing = asyncio.get_running_loop().create_task(self._store(progress), name="checkpoints")

    async def _store(self, progress: Mapping[UUID, Progress]) -> None:
        try:
            await in_rows(transitions.checkpoint, self._process, progress)
        except Exception:  # the next checkpoint, or the end, stores it all
            logger.exception("A checkpoint of %d turns failed", len(progress))
        finally:
            self._in_writing = frozenset()
