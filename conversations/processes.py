"""Word from one process to the others, over the channel layer: it may be lost, and the heartbeat finds out later."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from channels.layers import get_channel_layer
from django.conf import settings

from chatui.layers import leave_group, tell_group

logger = logging.getLogger(__name__)

GROUP = "processes"
RETRY_SECONDS = 5.0

Hear = Callable[[dict[str, Any]], Awaitable[None]]


async def look_at(turn_id: UUID) -> None:
    """Have whoever runs the turn look at its rows now: it is to be stopped, or something was answered."""
    await _tell({"type": "look", "turn_id": str(turn_id)})


async def cancel_call(turn_id: UUID, call_id: UUID) -> None:
    """Have whoever runs the turn cancel one of its calls."""
    await _tell({"type": "cancel", "turn_id": str(turn_id), "call_id": str(call_id)})


async def _tell(message: dict[str, Any]) -> None:
    if settings.REDIS_URL:  # else there is no other process
        await tell_group(GROUP, message)


async def listen(hear: Hear) -> None:
    """Call `hear` with every message of other processes, and of this one, until cancelled. Never raises else."""
    layer = get_channel_layer()
    assert layer is not None
    while True:
        try:
            channel = await layer.new_channel()
            await layer.group_add(GROUP, channel)
            try:
                while True:
                    await hear(await layer.receive(channel))
            finally:
                await leave_group(GROUP, channel)
        except asyncio.CancelledError:
            raise
        except Exception:  # whatever broke, of Redis or of a row: the heartbeat does the same later
            logger.exception("What other processes say cannot be heard; trying again")
            await asyncio.sleep(RETRY_SECONDS)
