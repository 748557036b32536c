"""How many connections there may be, of one user and in all, and which one makes room for another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from uuid import UUID

from django.conf import settings

from mcpservers.connection import Connection
from mcpservers.errors import BusyError
from mcpservers.transports import ConnectionKey, ConnectionTarget

HANDED_OVER_SECONDS = 1.0  # for those who wait for an opening to take what was opened


def _is_idle(connection: Connection) -> bool:
    """Whether nobody uses it, nor is about to: one that was just opened is still on its way to whoever wanted it."""
    handed_over = connection.lent or time.monotonic() - connection.opened_at > HANDED_OVER_SECONDS
    return not connection.leases and handed_over


class Places:
    """The places of one manager. An opening `take`s one before it connects, and `leave`s it when it is over.

    `evict` ends a connection that nobody uses; `connections` are those that there are.
    """

    def __init__(self, connections: Callable[[], Iterable[Connection]], evict: Callable[[Connection], None]) -> None:
        self._connections, self._evict = connections, evict
        self._openings: dict[ConnectionKey, UUID | None] = {}
        self._waiting: set[asyncio.Future[None]] = set()

    async def take(self, target: ConnectionTarget) -> None:
        """Make room: the longest idle goes first; if every one is in use, wait. Raises `BusyError`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + settings.MCP["BUSY_SECONDS"]
        while (crowd := self._crowd(target)) is not None:
            idle = [connection for connection in crowd if _is_idle(connection)]
            if idle:
                self._evict(min(idle, key=lambda connection: connection.last_used))
            else:
                await self._change(deadline - loop.time())
        self._openings[target.key] = target.user_id

    def leave(self, key: ConnectionKey) -> None:
        """The opening is over: the connection counts for itself now, or there is none."""
        self._openings.pop(key, None)

    def changed(self) -> None:
        """A connection came back, or is gone: those who wait look again."""
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    def _crowd(self, target: ConnectionTarget) -> list[Connection] | None:
        """The connections one of which must go before `target` is connected to; None while there is room."""
        counted = [each for each in self._connections() if each.leases or not each.retired]
        user_id = target.user_id
        if user_id is not None:
            own = [each for each in counted if each.target.user_id == user_id]
            opening = sum(owner == user_id for owner in self._openings.values())
            if len(own) + opening >= settings.MCP["USER_CONNECTIONS"]:
                return own
        full = len(counted) + len(self._openings) >= settings.MCP["PROCESS_CONNECTIONS"]
        return counted if full else None

    async def _change(self, seconds: float) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            done, _ = await asyncio.wait({waiting}, timeout=max(0, min(seconds, HANDED_OVER_SECONDS)))
        finally:
            self._waiting.discard(waiting)
        if not done and seconds <= HANDED_OVER_SECONDS:
            raise BusyError
