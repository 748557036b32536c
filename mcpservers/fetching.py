"""Discoveries under way: one per address, in parallel, in the background, each with its connection from the pool."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
import weakref
from collections.abc import Iterable, Sequence
from uuid import UUID

from accounts.actors import Actor
from accounts.models import Role
from chatui.errors import ChatUIError, DrainingError
from chatui.rows import in_rows
from mcpservers import connections, entries, learning
from mcpservers.acting import acting_target, identity_of
from mcpservers.discovery import Discovery, discover
from mcpservers.entries import Address, Entry
from mcpservers.errors import NotReadyError, SignInRequiredError
from mcpservers.models import MCPServer
from mcpservers.pins import owner_of
from mcpservers.scope import Scope, scope_of
from mcpservers.sightings import observed
from mcpservers.signing_in import completed
from mcpservers.transports import AppPrincipal, ConnectionTarget, RequestPrincipal

logger = logging.getLogger(__name__)
MAX_FAILURES = 1_000  # remembered ones, before those that are over are dropped
NEGATIVE_SECONDS = 10.0  # after a failed connect, so long nobody tries again
SIGN_IN_SECONDS = 300.0  # after a refusal to list for want of an account; linking one is tried at once


def address_of(target: ConnectionTarget) -> Address:
    """Where the target's tools are stored: by definition, and for a user's connection by that user and the values."""
    key = target.key
    if isinstance(key.principal, AppPrincipal):
        return Address(key.server_id, key.definition_hash)
    if isinstance(key.principal, RequestPrincipal):  # never stored
        return Address(key.server_id, key.definition_hash, f"run:{key.principal.run.hex}")
    account = key.principal.account_id
    owner = f"{key.principal.user_id.hex[:24]}:{account.hex[:12] if account is not None else '-'}"
    return Address(key.server_id, key.definition_hash, f"{owner}:{key.fingerprint[:24]}")


class Fetches:
    """The discoveries of one event loop. Whoever needs one may wait for its task; it goes on without them."""

    def __init__(self) -> None:
        self._tasks: dict[Address, asyncio.Task[Entry]] = {}
        self._failed: dict[Address, tuple[float, str]] = {}  # until when nobody tries again, and why
        self._sign_ins: dict[Address, tuple[float, SignInRequiredError]] = {}
        self._again: dict[Address, ConnectionTarget] = {}  # changed while it was being listed
        self._changed: set[Address] = set()  # what is stored is known to be old
        self._filling: set[asyncio.Task[None]] = set()
        self._missing: dict[tuple[Address, str], float] = {}  # tools that their server does not know; until when
        self._late: weakref.WeakSet[asyncio.Task[Entry]] = weakref.WeakSet()

    def start(self, target: ConnectionTarget) -> asyncio.Task[Entry]:
        """The discovery for `target`, which may be under way already."""
        address = address_of(target)
        task = self._tasks.get(address)
        if task is None:
            # Its own context: whoever asked first may be gone before it ends.
            task = asyncio.create_task(
                self._fetch(target, address), name=f"catalogue-{target.slug}", context=contextvars.Context()
            )
            self._tasks[address] = task
            task.add_done_callback(lambda done: self._done(address, done))
        return task

    def is_late(self, task: asyncio.Task[Entry]) -> bool:
        """Whether somebody has waited for this discovery as long as one waits: nobody else does, until it is over."""
        return task in self._late

    def mark_late(self, tasks: Iterable[asyncio.Task[Entry]]) -> None:
        self._late.update(task for task in tasks if not task.done())

    def failure(self, address: Address) -> str:
        """Why the last discovery failed, while it is not to be tried again; else empty."""
        until, why = self._failed.get(address, (0.0, ""))
        return why if time.monotonic() < until else ""

    def sign_in(self, address: Address) -> SignInRequiredError | None:
        """What the server wants before it lists anything, as it said a while ago."""
        until, error = self._sign_ins.get(address, (0.0, None))
        return error if time.monotonic() < until else None

    def has_changed(self, address: Address) -> bool:
        """Whether the server has said that its list changed, and the new one is not here yet."""
        return address in self._changed

    def changed(self, target: ConnectionTarget) -> None:
        """The server says that its list has changed: list it again, also if that is being done right now.

        A server of request scope is listed in the next turn anyway.
        """
        if target.scope is Scope.REQUEST:
            return
        address = address_of(target)
        self._changed.add(address)
        if address in self._tasks:
            self._again[address] = target
        else:
            self.start(target)

    async def list_anew(self, target: ConnectionTarget) -> Entry:
        """The target's tools as the server lists them from now on. Raises what the discovery raises."""
        self.changed(target)
        return await self.listed(target)

    async def listed(self, target: ConnectionTarget) -> Entry:
        """What the discovery for `target` brings, which may be under way already. Raises what it raises."""
        listing = self.start(target)
        try:
            return await asyncio.shield(listing)
        except asyncio.CancelledError:
            if listing.cancelled():  # the process stops; nobody has cancelled the caller
                raise DrainingError from None
            raise

    def miss(self, target: ConnectionTarget, tool: str) -> None:
        """The server does not know the tool: for a moment nobody calls it."""
        now = time.monotonic()
        if len(self._missing) >= MAX_FAILURES:
            self._missing = {key: until for key, until in self._missing.items() if until > now}
        self._missing[address_of(target), tool] = now + NEGATIVE_SECONDS

    def is_missing(self, target: ConnectionTarget, tool: str) -> bool:
        return self._missing.get((address_of(target), tool), 0.0) > time.monotonic()

    def forgive(self, server_id: UUID) -> None:
        """Let the server be tried again at once, and its tools too."""
        for key in [key for key in list(self._missing) if key[0].server_id == server_id]:
            self._missing.pop(key, None)
        for known in (self._failed, self._sign_ins):
            for address in [address for address in list(known) if address.server_id == server_id]:
                known.pop(address, None)

    async def _fetch(self, target: ConnectionTarget, address: Address) -> Entry:
        while True:
            self._again.pop(address, None)
            revision = entries.new_revision()
            found = await self._discovered(target)
            if not found.complete:
                logger.warning("The tools of %s are not all known: %s", target.slug, found.warnings[-1]["message"])
            if target.scope is Scope.REQUEST:
                return entries.unstored(address, target.slug, found, revision)
            entry = await in_rows(keep, target, found, revision)
            if address not in self._again:
                return entry

    async def _discovered(self, target: ConnectionTarget) -> Discovery:
        try:
            async with connections.manager().borrow(target) as connection:
                return await discover(connection)
        except ChatUIError as error:  # a request may be refused on a connection that was opened without a sign-in
            found = await learning.sign_in_for(target, error)
            if found is None:
                raise
            needed = found
        server = await in_rows(MCPServer.objects.as_system().filter(pk=target.server_id).first)
        raise (needed if server is None else await completed(needed, server)) from None

    def _done(self, address: Address, task: asyncio.Task[Entry]) -> None:
        self._tasks.pop(address, None)
        self._again.pop(address, None)
        self._changed.discard(address)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._failed.pop(address, None)
            self._sign_ins.pop(address, None)
            for item in task.result().tools if self._missing else ():
                self._missing.pop((address, item["name"]), None)
            return
        if not isinstance(error, ChatUIError):
            logger.error("The tools of server %s could not be listed", address.server_id, exc_info=error)
        now = time.monotonic()
        if isinstance(error, SignInRequiredError):
            if len(self._sign_ins) >= MAX_FAILURES:
                self._sign_ins = {key: value for key, value in self._sign_ins.items() if value[0] > now}
            self._sign_ins[address] = (now + SIGN_IN_SECONDS, error)
            return
        if len(self._failed) >= MAX_FAILURES:
            self._failed = {key: value for key, value in self._failed.items() if value[0] > now}
        self._failed[address] = (now + NEGATIVE_SECONDS, words_of(error))

    def fill_soon(self, server_id: UUID) -> None:
        """Fetch a changed server's tools behind whatever else is done."""
        task = asyncio.create_task(fill(server_ids=[server_id]), name=f"catalogue-fill-{server_id}")
        self._filling.add(task)
        task.add_done_callback(self._filled)

    def _filled(self, task: asyncio.Task[None]) -> None:
        self._filling.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("The catalogue could not be filled", exc_info=error)

    async def aclose(self) -> None:
        tasks = [*self._filling, *self._tasks.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=5)


def keep(target: ConnectionTarget, found: Discovery, revision: int) -> Entry:
    """Store what `target` listed, as `entries.store` does, and take down what of it is new."""
    entry = entries.store(address_of(target), target.slug, found, revision)
    observed({owner_of(target): entry})
    return entry


def words_of(error: BaseException) -> str:
    """What a person may be told of a failed discovery."""
    return error.public_message if isinstance(error, ChatUIError) else "It failed for a reason of our own."


# --- The discoveries of this loop ---------------------------------------------------------------------------------

_fetches: dict[asyncio.AbstractEventLoop, Fetches] = {}


def fetches() -> Fetches:
    """The discoveries of the running loop, which also hear of `notifications/tools/list_changed` from now on."""
    loop = asyncio.get_running_loop()
    found = _fetches.get(loop)
    if found is None:
        for other in [other for other in _fetches if other.is_closed()]:
            del _fetches[other]
        found = _fetches[loop] = Fetches()
    listeners = connections.manager().on_tools_changed
    if _tools_changed not in listeners:
        listeners.append(_tools_changed)
    return found


async def _tools_changed(target: ConnectionTarget) -> None:
    fetches().changed(target)


def forgive(server_id: UUID) -> None:
    """Let a server be tried again at once, in every loop of this process. From any thread."""
    connections.forgive(server_id)
    for found in list(_fetches.values()):
        found.forgive(server_id)


def fill_soon(server_id: UUID) -> None:
    """Fetch a changed server's tools in the background, where a loop of this process serves. From any thread."""
    for loop, found in list(_fetches.items()):
        if loop.is_running():
            loop.call_soon_threadsafe(found.fill_soon, server_id)


async def aclose() -> None:
    """End every discovery under way: the process stops."""
    found = _fetches.pop(asyncio.get_running_loop(), None)
    if found is not None:
        await found.aclose()


# --- Ahead of need ------------------------------------------------------------------------------------------------


def system_actor(server: MCPServer) -> Actor:
    """For work on a server that nobody asked for: an actor of its organization who is no user."""
    organization = server.organization
    return Actor(UUID(int=0), organization.pk, Role.OWNER, organization_slug=organization.slug, present=False)


def outdated(server_ids: Sequence[UUID] | None = None) -> list[ConnectionTarget]:
    """The organizations' own connections (to these servers, if given) whose tools are not known, or not of late."""
    servers = MCPServer.objects.as_system().filter(enabled=True, organization__is_active=True)
    if server_ids is not None:
        servers = servers.filter(pk__in=server_ids)
    targets = []
    for server in servers.select_related("organization"):
        if scope_of(server.definition()).scope is Scope.APP:
            try:
                nobody = system_actor(server)
                targets.append(acting_target(server, nobody, {}, identity_of(nobody, server)))
            except NotReadyError:
                continue
    known = entries.find({address_of(target): target.slug for target in targets})
    return [target for target in targets if (entry := known.get(address_of(target))) is None or entry.is_stale]


async def fill(at_once: int = 4, *, server_ids: Sequence[UUID] | None = None) -> None:
    """Fetch what is not known of the organizations' own servers (of these, if given), some at a time.

    For the start of a process and for saved servers. A server that fails or hangs delays none but itself.
    """
    found = fetches()
    slots = asyncio.Semaphore(at_once)

    async def fetch(target: ConnectionTarget) -> None:
        async with slots:
            await asyncio.wait([found.start(target)])

    targets = await in_rows(outdated, server_ids)
    await asyncio.gather(*(fetch(target) for target in targets))
