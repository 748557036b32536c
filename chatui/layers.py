"""The channel layer of a single process: Channels' own in memory, without what grows with the number of sockets."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from channels.exceptions import ChannelFull
from channels.layers import InMemoryChannelLayer

EXPIRY_SECONDS = 5.0  # between two looks for what has expired


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
