"""`ConnectionManager`: the connections of one event loop, lent to whoever calls, rebuilt when they are stale.

The pool is keyed by organization, server, definition, resolved values and principal, so that nothing is ever shared
across organizations, and a lookup without a principal cannot be written.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings

from chatui.errors import ChatUIError, DrainingError
from chatui.rows import in_rows
from mcpservers.breaker import Breaker
from mcpservers.connection import Connection
from mcpservers.errors import ConnectionLostError, NotReadyError, SignInRequiredError
from mcpservers.health import troubles
from mcpservers.places import Places
from mcpservers.recording import record_asking
from mcpservers.scope import Scope
from mcpservers.transports import ConnectionKey, ConnectionTarget, RequestPrincipal

logger = logging.getLogger(__name__)

LEASE_CALLS = 2  # a call may wait for another one before it, each as long as a call may take

OnToolsChanged = Callable[[ConnectionTarget], Awaitable[None]]
OnCompleted = Callable[[ConnectionTarget, str], Awaitable[None]]
Record = Callable[[ConnectionTarget, dict[str, Any] | None, str], Awaitable[None]]
Learn = Callable[[ConnectionTarget, ChatUIError], Awaitable[SignInRequiredError | None]]


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """One live connection, for the admin. Times are seconds; `process` is "" where there is only one."""

    id: UUID
    organization_id: UUID
    server_id: UUID
    slug: str
    title: str
    scope: Scope
    user_id: UUID | None
    transport: str
    protocol_version: str
    age: float
    idle: float
    leases: int
    state: str  # "ready" | "suspect" | "closing"
    last_error: str
    account: str = ""  # that it acts with
    process: str = ""


class ConnectionManager:
    """Borrow with `async with manager.borrow(target) as connection`; close everything with `aclose`.

    A target of request scope is lent within its run alone: between `open_run` and `close_run`. `record` is told how
    each connect went: the target, what to remember (None on failure) and the error ("" on success). `learn` is told why
    one failed, and gives the sign-in that the server turns out to want, see `learning.sign_in_to_open`. Callbacks in
    `on_tools_changed` hear of a server's `notifications/tools/list_changed`, those in `on_completed` of
    `notifications/elicitation/complete` with the id of what was dealt with.
    """

    def __init__(self, *, record: Record | None = None, learn: Learn | None = None) -> None:
        self.on_tools_changed: list[OnToolsChanged] = []
        self.on_completed: list[OnCompleted] = []
        self.breaker = Breaker()
        self._record, self._learn = record, learn
        self._places = Places(lambda: self._all.values(), self._retire)
        self._runs: set[UUID] = set()  # runs of turns that go on
        self._pool: dict[ConnectionKey, Connection] = {}
        self._all: dict[UUID, Connection] = {}
        self._opening: dict[ConnectionKey, asyncio.Task[Connection]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._timers: dict[UUID, asyncio.TimerHandle] = {}
        self._draining = False

    # --- Lending --------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def borrow(self, target: ConnectionTarget) -> AsyncGenerator[Connection]:
        """Lend a connection for `target`, opening it if need be; others may use it at the same time.

        Raises `ServerUnavailableError` when it cannot be opened: `ThrottledError` after several failures, `BusyError`
        where there is no place. Raises `SignInRequiredError` or `NotReadyError` where only a person can help, and
        `DrainingError` once `aclose` has begun. Whoever keeps it longer than any call may take is ended with
        `ConnectionLostError`: nobody keeps a place for ever.
        """
        connection = await self._lend(target)
        longest = LEASE_CALLS * _longest_call(target)
        try:
            async with asyncio.timeout(longest) as lease:
                yield connection
        except TimeoutError as error:
            if not lease.expired():
                raise
            message = f"“{target.title}” was in use for longer than {longest:g} seconds by one call, which was ended."
            self._note_overdue(connection, message)
            raise ConnectionLostError(message, public_message=message) from error
        finally:
            self._give_back(connection)

    def _note_overdue(self, connection: Connection, message: str) -> None:
        logger.warning("%s", message)
        connection.last_error = message
        troubles.note(connection.target, "lease_overdue", message)

    async def _lend(self, target: ConnectionTarget) -> Connection:
        for _ in range(3):
            if self._draining:
                raise DrainingError
            if target.run is not None and target.run not in self._runs:
                raise ConnectionLostError("the turn has ended", sent=False)
            connection = self._pool.get(target.key)
            if connection is not None and not connection.alive:
                self._retire(connection)
                connection = None
            if connection is None:
                connection = await self._shared_opening(target)
            # A lease before the proof, so that nobody closes it under us.
            connection.leases += 1
            connection.lent = True
            self._stop_timer(connection)
            usable = connection.alive and not connection.retired
            if usable and (not connection.is_doubtful or await self._proved(connection)):
                return connection
            self._retire(connection)
            self._give_back(connection)
        raise ConnectionLostError(f"“{target.title}” closes every connection at once.", sent=False)

    async def _proved(self, connection: Connection) -> bool:
        try:
            return await connection.proved()
        except asyncio.CancelledError:
            self._give_back(connection)
            raise

    async def _shared_opening(self, target: ConnectionTarget) -> Connection:
        """One opening for all who ask meanwhile; it goes on when one of them stops waiting."""
        opening = self._opening.get(target.key)
        if opening is None:
            self.breaker.check(target.circuit)
            opening = asyncio.create_task(
                self._open(target), name=f"mcp-open-{target.slug}", context=contextvars.Context()
            )
            self._opening[target.key] = opening
            opening.add_done_callback(partial(self._opened, target.key))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            waiter = asyncio.current_task()
            if not opening.cancelled() or (waiter is not None and waiter.cancelling()):
                raise
            if self._draining:
                raise DrainingError from None
            raise ConnectionLostError("the turn has ended", sent=False) from None

    def _opened(self, key: ConnectionKey, opening: asyncio.Task[Connection]) -> None:
        self._opening.pop(key, None)
        self._places.leave(key)
        self._places.changed()
        if not opening.cancelled():
            opening.exception()  # seen, even if nobody waits any more

    async def _open(self, target: ConnectionTarget) -> Connection:
        for other in list(self._all.values()):
            if other.target.key.slot == target.key.slot:
                self._retire(other)  # of an older definition, or of values that have changed
        await self._places.take(target)
        connection = Connection(
            target, on_tools_changed=self._tools_changed, on_asked=self._asked, on_completed=self._completed
        )
        began = time.monotonic()
        try:
            await connection.open()
        except asyncio.CancelledError:
            # A turn that nobody waits for any longer than this says nothing for the server.
            if not self._draining and time.monotonic() - began > settings.MCP["OFFER_BUDGET_SECONDS"]:
                self._failed(target, "server_unavailable", f"“{target.title}” did not answer while the turn ran.")
            raise
        except (SignInRequiredError, NotReadyError):
            raise  # the server is well
        except ChatUIError as error:
            needed = await self._learn(target, error) if self._learn is not None else None
            if needed is not None:
                raise needed from error
            self._failed(target, error.code, str(error), error.public_message)
            await self._tell(target, None, str(error))
            raise
        self._all[connection.id] = self._pool[target.key] = connection
        self._places.leave(target.key)
        assert connection.owner is not None
        connection.owner.add_done_callback(lambda _: self._gone(connection))
        self._start_timer(connection)
        await self._tell(target, connection.era, "")
        return connection

    def _failed(self, target: ConnectionTarget, kind: str, detail: str, cause: str = "") -> None:
        self.breaker.failed(target.circuit, cause or detail)
        troubles.note(target, kind, detail)

    async def _tell(self, target: ConnectionTarget, era: dict[str, Any] | None, error: str) -> None:
        if self._record is None:
            return
        try:
            await self._record(target, era, error)
        except Exception:  # boundary: what is remembered is a convenience; the call it delays is not
            logger.exception("What connecting to %s taught us could not be stored.", target.slug)

    async def _tools_changed(self, target: ConnectionTarget) -> None:
        for callback in self.on_tools_changed:
            await callback(target)

    async def _asked(self, target: ConnectionTarget) -> None:
        if self._record is None or target.asks_people:
            return
        try:
            await in_rows(record_asking, target)
        except Exception:  # boundary: the question matters more than that it is remembered
            logger.exception("That %s asks people could not be stored.", target.slug)

    async def _completed(self, target: ConnectionTarget, elicitation: str) -> None:
        for callback in self.on_completed:
            await callback(target, elicitation)

    # --- Giving back and closing ----------------------------------------------------------------------------------

    def _give_back(self, connection: Connection) -> None:
        connection.leases -= 1
        connection.last_used = time.monotonic()
        if connection.answered:
            self.breaker.succeeded(connection.target.circuit)
        if connection.leases:
            return
        self._places.changed()
        if connection.retired or not connection.alive:
            self._close(connection)
        else:
            self._start_timer(connection)

    def _retire(self, connection: Connection) -> None:
        """Lend it no more; close it when its last lease comes back, or when no call could still be running."""
        if self._pool.get(connection.target.key) is connection:
            del self._pool[connection.target.key]
        if connection.retired:
            return
        self._weigh(connection)
        connection.retired = True
        if connection.leases:
            longest = _longest_call(connection.target)
            self._timers[connection.id] = asyncio.get_running_loop().call_later(longest, self._overdue, connection)
        else:
            self._close(connection)

    def _overdue(self, connection: Connection) -> None:
        """It was to be closed, and whoever has it does not give it back."""
        title, longest = connection.target.title, _longest_call(connection.target)
        message = f"A connection to “{title}” that was to end was still in use after {longest:g} seconds, and closed."
        connection.error = connection.error or ConnectionLostError(message)
        self._note_overdue(connection, message)
        self._close(connection)

    def _weigh(self, connection: Connection) -> None:
        """One that broke off before it answered anything counts as one that could not be opened."""
        if connection.broke and not connection.answered and not connection.retired:
            why = connection.last_error or str(connection.error or "") or "it ended the connection"
            title = connection.target.title
            self._failed(connection.target, "connection_lost", f"“{title}” broke off before it answered: {why}.")

    def _close(self, connection: Connection) -> None:
        self._weigh(connection)
        connection.retired = True
        self._stop_timer(connection)
        if self._pool.get(connection.target.key) is connection:
            del self._pool[connection.target.key]
        closing = asyncio.create_task(connection.aclose(), name=f"mcp-close-{connection.target.slug}")
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _gone(self, connection: Connection) -> None:
        """The owner ended, for whatever reason."""
        self._weigh(connection)
        connection.retired = True
        self._places.changed()
        self._stop_timer(connection)
        self._all.pop(connection.id, None)
        if self._pool.get(connection.target.key) is connection:
            del self._pool[connection.target.key]

    def _start_timer(self, connection: Connection) -> None:
        seconds = settings.MCP["APP_IDLE_SECONDS" if connection.target.scope is Scope.APP else "IDLE_SECONDS"]
        self._timers[connection.id] = asyncio.get_running_loop().call_later(seconds, self._close, connection)

    def _stop_timer(self, connection: Connection) -> None:
        timer = self._timers.pop(connection.id, None)
        if timer is not None:
            timer.cancel()

    # --- Runs of turns --------------------------------------------------------------------------------------------

    def open_run(self, run: UUID) -> None:
        """From now on connections may be opened for this run of a turn."""
        self._runs.add(run)

    def close_run(self, run: UUID) -> None:
        """Close every connection of the run, also one that is being opened or used; it gets no other. Never raises."""
        self._runs.discard(run)
        for key, opening in list(self._opening.items()):
            if isinstance(key.principal, RequestPrincipal) and key.principal.run == run:
                opening.cancel()
        for connection in list(self._all.values()):
            if connection.target.run == run:
                self._close(connection)

    # --- By hand --------------------------------------------------------------------------------------------------

    def drop(self, server_id: UUID, *, user_id: UUID | None = None) -> int:
        """Retire every connection to a server (of one user, if given), forgive its failures; how many there were."""
        self.breaker.reset(server_id, user_id=user_id)
        found = [
            connection
            for connection in self._all.values()
            if connection.target.server_id == server_id
            and user_id in (None, connection.target.user_id)
            and not connection.retired
        ]
        for connection in found:
            self._retire(connection)
        return len(found)

    def drop_connection(self, connection_id: UUID) -> bool:
        """Close one connection now, leases or not."""
        connection = self._all.get(connection_id)
        if connection is not None:
            self._close(connection)
        return connection is not None

    def list_connections(self) -> list[ConnectionInfo]:
        """Every connection that is open, oldest first. May be called from any thread."""
        now = time.monotonic()
        return [_info(connection, now) for connection in list(self._all.values())]

    async def aclose(self, grace: float | None = None) -> None:
        """Close everything, each within `grace` seconds (default `settings.MCP["CLOSE_SECONDS"]`), all at once."""
        self._draining = True
        openings = list(self._opening.values())
        for opening in openings:
            opening.cancel()
        for connection in self._all.values():
            self._stop_timer(connection)
        closing = [connection.aclose(grace) for connection in list(self._all.values())]
        await asyncio.gather(*closing, *openings, *self._closing, return_exceptions=True)


def _longest_call(target: ConnectionTarget) -> float:
    """How many seconds a call may take, and a person to answer what it asks."""
    seconds: float = max(settings.MCP["CALL_MAX_SECONDS"], target.timeout) + settings.TURN["LIVE_QUESTION_SECONDS"]
    return seconds


def _info(connection: Connection, now: float) -> ConnectionInfo:
    target = connection.target
    return ConnectionInfo(
        id=connection.id,
        organization_id=target.organization_id,
        server_id=target.server_id,
        slug=target.slug,
        title=target.title,
        scope=target.scope,
        user_id=target.user_id,
        transport=str(connection.transport),
        protocol_version=connection.protocol_version,
        age=now - connection.opened_at,
        idle=0.0 if connection.leases else now - connection.last_used,
        leases=connection.leases,
        state="closing" if connection.retired else "suspect" if connection.suspect else "ready",
        last_error=connection.last_error or target.redact(str(connection.error or "")),
        account=target.account.name if target.account is not None else "",
    )
