"""The connections of this process: a manager for each event loop that uses some, and what the admin sees and does."""

from __future__ import annotations

import asyncio
import weakref
from functools import partial
from typing import Any
from uuid import UUID

from chatui.rows import in_rows
from mcpservers import learning
from mcpservers.breaker import Circuit, Refusal
from mcpservers.pool import ConnectionInfo, ConnectionManager
from mcpservers.recording import record_connect
from mcpservers.transports import ConnectionTarget

__all__ = [
    "ConnectionInfo",
    "ConnectionManager",
    "aclose",
    "all_refusals",
    "close_all",
    "close_connection",
    "drop",
    "forgive",
    "has_manager",
    "live_connections",
    "made",
    "manager",
    "record_connect",
]

# --- The manager of this loop -------------------------------------------------------------------------------------

# A client works in the loop that entered it and hangs in any other.
_managers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, ConnectionManager] = weakref.WeakKeyDictionary()


def manager() -> ConnectionManager:
    """The manager of the running loop, made at first use. `aclose()` of this module closes it."""
    loop = asyncio.get_running_loop()
    if loop not in _managers:
        _managers[loop] = made()
    return _managers[loop]


def made() -> ConnectionManager:
    """A manager of the caller's own, which stores what connections teach. Whoever makes it closes it."""
    return ConnectionManager(record=_record, learn=learning.sign_in_to_open)


def has_manager() -> bool:
    """Whether the running loop has a manager already."""
    return asyncio.get_running_loop() in _managers


async def aclose(grace: float | None = None) -> None:
    """Close the running loop's manager, if there is one; the next `manager()` is a new one."""
    closing = _managers.pop(asyncio.get_running_loop(), None)
    if closing is not None:
        await closing.aclose(grace)


def live_connections() -> list[ConnectionInfo]:
    """The connections of every loop in this process, from any thread: the admin's views are synchronous."""
    return [info for manager in list(_managers.values()) for info in manager.list_connections()]


def close_connection(connection_id: UUID) -> None:
    """Close one connection of this process, from any thread; it is on its way when this returns."""
    for loop, manager in list(_managers.items()):
        if not loop.is_closed():
            loop.call_soon_threadsafe(manager.drop_connection, connection_id)


def close_all(server_id: UUID) -> None:
    """Close every connection of this process to a server, from any thread; they are on their way on return."""
    for info in live_connections():
        if info.server_id == server_id:
            close_connection(info.id)


def drop(server_id: UUID, *, user_id: UUID | None = None) -> None:
    """`ConnectionManager.drop` in every loop of this process, from any thread; it is on its way on return."""
    for loop, manager in list(_managers.items()):
        if not loop.is_closed():
            loop.call_soon_threadsafe(partial(manager.drop, server_id, user_id=user_id))


def all_refusals() -> list[tuple[Circuit, Refusal]]:
    """Every credential with which some server is left alone now, in any loop of this process. From any thread."""
    return [each for manager in list(_managers.values()) for each in manager.breaker.all_refusals()]


def forgive(server_id: UUID) -> None:
    """Let a server be tried again at once, in every loop of this process. From any thread."""
    for manager in list(_managers.values()):
        manager.breaker.reset(server_id)


async def _record(target: ConnectionTarget, era: dict[str, Any] | None, error: str) -> None:
    await in_rows(record_connect, target, era, error)
