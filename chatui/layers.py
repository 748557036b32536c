"""Channel layers: that of a single process, without what grows with its sockets, and word that may be lost."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import Any

from channels.exceptions import ChannelFull
from channels.layers import InMemoryChannelLayer, get_channel_layer
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

EXPIRY_SECONDS = 5.0  # between two looks for what has expired
WORD_SECONDS = 3.0  # after which a Redis that takes a word and does not answer counts as away


class LocalLayer(InMemoryChannelLayer):
    """Channels' layer looks at every channel's queue whenever a message is sent, and sends in a task for each channel.

    Here it looks now and then, and puts the message in the queues itself. What it promises stays the same: a full
    channel loses the message.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._next_look = 0.0

    def _clean_expired(self) -> None:
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + EXPIRY_SECONDS
            super()._clean_expired()  # type: ignore[misc]  # the stubs know only what is public

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        self.require_valid_group_name(group)
        self._clean_expired()
        for channel in list(self.groups.get(group, ())):
            with suppress(ChannelFull):
                await self.send(channel, message)


async def tell_group(group: str, message: dict[str, Any]) -> None:
    """Send `message` to every channel of the group, in whatever process.

    While Redis is away the word is lost, with a warning: whoever was to hear it finds out at their next look.
    """
    layer = get_channel_layer()
    if layer is None:
        return
    try:
        async with asyncio.timeout(WORD_SECONDS):
            await layer.group_send(group, message)
    except (RedisError, OSError) as error:  # redis' own `ConnectionError` is no `OSError`
        logger.warning("%s could not be told (%s), Redis is away: %r", group, message["type"], error)


async def leave_group(group: str, channel: str) -> None:
    """Take `channel` out of the group. While Redis is away it is enough that nobody listens any more."""
    layer = get_channel_layer()
    if layer is None:
        return
    try:
        async with asyncio.timeout(WORD_SECONDS):
            await layer.group_discard(group, channel)
    except (RedisError, OSError) as error:
        logger.warning("%s could not be left, Redis is away: %r", group, error)
