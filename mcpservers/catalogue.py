"""The catalogue: what models are offered comes from here; a server is connected only when it is not known yet.

*Definitions are cheap, connections are dear* (SPEC C1). One server's trouble never costs another one's tools.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from django.conf import settings

from accounts.actors import Actor
from accounts.models import Role
from accounts.policy import granted
from chatui.errors import ChatUIError
from chatui.rows import in_rows
from mcpservers import connections, entries
from mcpservers.approvals import Do, Rule, RuleList, RuleVerdict, matches, verdict
from mcpservers.discovery import discover
from mcpservers.entries import Address, Definition, Entry
from mcpservers.errors import NotReadyError
from mcpservers.models import MCPServer, UserVariables
from mcpservers.scope import Scope, scope_of
from mcpservers.transports import AppPrincipal, ConnectionTarget, target_of

logger = logging.getLogger(__name__)
NEGATIVE_SECONDS = 10.0  # after a failed connect, so long nobody tries again (SPEC C6)


# --- Values -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WantedServer:
    """A server that an agent uses; `tools` are globs over its tools' names, empty for all."""

    server_id: UUID
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that may be offered, or (`withheld` says why) may not; `decision` is what the rules say of a call."""

    server_id: UUID
    server_slug: str
    server_title: str
    definition: Definition
    decision: Do
    reason: str
    globs: tuple[str, ...] = ()
    withheld: str = ""

    @property
    def exposed_name(self) -> str:
        return self.definition.exposed_name

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def title(self) -> str:
        return self.definition.title

    @property
    def description(self) -> str:
        return self.definition.description


@dataclass(frozen=True, slots=True)
class ServerProblem:
    """Why a wanted server offers nothing, or less; `message` is for a person and says what to do."""

    server_id: UUID
    slug: str
    title: str
    code: Literal["unavailable", "not_ready", "not_granted", "disabled", "incomplete"]
    message: str


@dataclass(frozen=True, slots=True)
class Offer:
    """What one actor may be offered now. `withheld` are known tools that the model must not be shown."""

    tools: tuple[OfferedTool, ...] = ()
    withheld: tuple[OfferedTool, ...] = ()
    problems: tuple[ServerProblem, ...] = ()
    instructions: tuple[tuple[str, str], ...] = ()  # (server title, the server's own words)


@dataclass(frozen=True, slots=True)
class ServerState:
    """A server in the picker, without connecting to it. `tools` holds quarantined ones too (`withheld`)."""

    slug: str
    title: str
    state: Literal["ready", "needs_setup", "error", "off", "unknown"]
    message: str = ""
    tools: tuple[OfferedTool, ...] = ()


@dataclass(frozen=True, slots=True)
class RefreshReport:
    """How a connection test went: for the admin."""

    tools: int = 0
    transport: str = ""
    era: str = ""
    protocol_version: str = ""
    duration_ms: int = 0
    warnings: tuple[str, ...] = ()
    error: str = ""
    server_info: dict[str, Any] = field(default_factory=dict)


# --- Rows ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Candidate:
    """A wanted server with what its rows say: either a problem, or a target and perhaps an entry."""

    wanted: WantedServer
    server: MCPServer
    problem: ServerProblem | None = None
    target: ConnectionTarget | None = None
    entry: Entry | None = None

    def trouble(self, code: Any, message: str) -> None:
        server = self.server
        self.problem = ServerProblem(server.pk, server.slug, server.title, code, message)


def _load(actor: Actor, wanted: Sequence[WantedServer]) -> list[_Candidate]:
    """The candidates in the order wanted: four queries at most, however many servers."""
    rows = MCPServer.objects.visible_to(actor).filter(pk__in=[item.server_id for item in wanted])
    servers = {server.pk: server for server in rows.prefetch_related("grants")}
    with_variables = [server.pk for server in servers.values() if server.variables]
    variables: dict[UUID, dict[str, str]] = {}
    if with_variables:
        own = UserVariables.objects.filter(server__in=with_variables, user_id=actor.user_id)
        variables = {row.server_id: row.values for row in own}
    candidates = [_Candidate(item, servers[item.server_id]) for item in wanted if item.server_id in servers]
    for candidate in candidates:
        _judge(actor, candidate, variables.get(candidate.server.pk, {}))
    addresses = {
        address_of(candidate.target): candidate.server.slug for candidate in candidates if candidate.target is not None
    }
    known = entries.find(addresses)
    for candidate in candidates:
        if candidate.target is not None:
            candidate.entry = known.get(address_of(candidate.target))
    return candidates


def _judge(actor: Actor, candidate: _Candidate, variables: dict[str, str]) -> None:
    server = candidate.server
    if not server.enabled:
        candidate.trouble("disabled", "It is switched off.")
        return
    verdict_ = granted(actor, server.grants.all())
    if not verdict_ and not any(grant.tool and not grant.deny for grant in server.grants.all()):
        candidate.trouble("not_granted", verdict_.reason)
        return
    try:
        candidate.target = target_of(server, actor, variables)
    except NotReadyError as error:
        candidate.trouble("not_ready", error.public_message)


def address_of(target: ConnectionTarget) -> Address:
    """Where the target's tools are stored: by definition, and for a user's connection by that user and the values."""
    key = target.key
    if isinstance(key.principal, AppPrincipal):
        return Address(key.server_id, key.definition_hash)
    return Address(key.server_id, key.definition_hash, f"{key.principal.user_id.hex[:24]}:{key.fingerprint[:24]}")


# --- Fetching -----------------------------------------------------------------------------------------------------


class _Fetches:
    """The discoveries under way in one event loop: one per address, shared by all who ask."""

    def __init__(self) -> None:
        self.tasks: dict[Address, asyncio.Task[Entry]] = {}
        self.failed: dict[Address, tuple[float, str]] = {}  # until when, and why

    def start(self, target: ConnectionTarget) -> asyncio.Task[Entry]:
        address = address_of(target)
        task = self.tasks.get(address)
        if task is None:
            # Its own context: whoever asked first may be gone before it ends.
            task = asyncio.create_task(
                self._fetch(target, address), name=f"catalogue-{target.slug}", context=contextvars.Context()
            )
            self.tasks[address] = task
            task.add_done_callback(lambda done: self._done(address, done))
        return task

    def failure(self, address: Address) -> str:
        """Why the last fetch failed, while it is not to be tried again; else empty."""
        until, why = self.failed.get(address, (0.0, ""))
        return why if time.monotonic() < until else ""

    async def _fetch(self, target: ConnectionTarget, address: Address) -> Entry:
        revision = entries.new_revision()
        async with connections.manager().borrow(target) as connection:
            found = await discover(connection)
        return await in_rows(entries.store, address, target.slug, found, revision)

    def _done(self, address: Address, task: asyncio.Task[Entry]) -> None:
        self.tasks.pop(address, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self.failed.pop(address, None)
            return
        if not isinstance(error, ChatUIError):
            logger.error("The tools of %s could not be listed", address.server_id, exc_info=error)
        self.failed[address] = (time.monotonic() + NEGATIVE_SECONDS, _words(error))

    async def aclose(self) -> None:
        tasks = list(self.tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=5)


def _words(error: BaseException) -> str:
    return error.public_message if isinstance(error, ChatUIError) else "It failed for a reason of our own."


_fetches: dict[asyncio.AbstractEventLoop, _Fetches] = {}


def fetches() -> _Fetches:
    """The discoveries of the running loop; the first call also listens for `tools/list_changed`."""
    loop = asyncio.get_running_loop()
    found = _fetches.get(loop)
    if found is None:
        for other in [other for other in _fetches if other.is_closed()]:
            del _fetches[other]
        found = _fetches[loop] = _Fetches()
        connections.manager().on_tools_changed.append(_tools_changed)
    return found


async def _tools_changed(target: ConnectionTarget) -> None:
    """The server says that its list has changed: fetch it again; until then the old one serves."""
    fetches().start(target)


def _unknown() -> list[ConnectionTarget]:
    """The organizations' own connections whose tools are not known, or not of late."""
    servers = MCPServer.objects.as_system().filter(enabled=True, organization__is_active=True)
    targets = []
    for server in servers.select_related("organization"):
        if scope_of(server.definition()).scope is Scope.APP:
            try:
                targets.append((target_of(server, system_actor(server), {}), server.slug))
            except NotReadyError:
                continue
    known = entries.find({address_of(target): slug for target, slug in targets})
    return [target for target, _ in targets if (entry := known.get(address_of(target))) is None or entry.is_stale]


async def fill(at_once: int = 4) -> None:
    """Fetch what is not known of the organizations' own servers, some at a time; for the start of a process."""
    waiting = await in_rows(_unknown)
    while waiting:
        batch, waiting = waiting[:at_once], waiting[at_once:]
        await asyncio.wait([fetches().start(target) for target in batch])


async def aclose() -> None:
    """End every discovery under way: the process stops."""
    await fetches().aclose()


# --- Offering -----------------------------------------------------------------------------------------------------


async def offered_to(
    actor: Actor, wanted: Sequence[WantedServer], *, dialect: str = "openai", agent_rules: Sequence[Rule] = ()
) -> Offer:
    """What `actor` may be offered of the `wanted` servers.

    No network where the catalogue knows the servers. An unknown one is connected to within
    `MCP_OFFER_BUDGET_SECONDS`, all at once; one that is late is offered from the next turn on. Never raises for a
    server: its trouble is a problem of the offer.
    """
    if not wanted:
        return Offer()
    candidates = await in_rows(_load, actor, wanted)
    await _fill(candidates)
    tools: list[OfferedTool] = []
    withheld: list[OfferedTool] = []
    problems: list[ServerProblem] = []
    instructions: list[tuple[str, str]] = []
    for candidate in candidates:
        if candidate.problem is not None:
            problems.append(candidate.problem)
        if candidate.entry is None:
            continue
        for tool in _judged(actor, candidate, dialect, agent_rules):
            (withheld if tool.withheld else tools).append(tool)
        if candidate.server.use_instructions and candidate.entry.instructions.strip():
            instructions.append((candidate.server.title, candidate.entry.instructions))
    return Offer(tuple(tools), tuple(withheld), tuple(problems), tuple(instructions))


async def _fill(candidates: Sequence[_Candidate]) -> None:
    """Fetch what is not known, wait for it within the budget; fetch in the background what is old."""
    waiting: list[tuple[_Candidate, asyncio.Task[Entry]]] = []
    for candidate in candidates:
        if candidate.target is None:
            continue
        if candidate.entry is not None:
            if candidate.entry.is_stale and not fetches().failure(address_of(candidate.target)):
                fetches().start(candidate.target)
            continue
        failure = fetches().failure(address_of(candidate.target))
        if failure:
            candidate.trouble("unavailable", failure)
            continue
        waiting.append((candidate, fetches().start(candidate.target)))
    if not waiting:
        return
    tasks = [task for _, task in waiting]
    budget = settings.MCP["OFFER_BUDGET_SECONDS"]
    done, _ = await asyncio.wait(tasks, timeout=budget)
    if not done and all(candidate.entry is None for candidate in candidates):
        # Nothing at all to offer yet: an answer without any tool is worth less than a longer wait, once.
        await asyncio.wait(tasks, timeout=2 * budget, return_when=asyncio.FIRST_COMPLETED)
    for candidate, task in waiting:
        if not task.done():
            candidate.trouble("unavailable", "It is still being connected; its tools come with the next message.")
        elif task.cancelled():
            candidate.trouble("unavailable", "The server is restarting.")
        elif (error := task.exception()) is not None:
            candidate.trouble("unavailable", _words(error))
        else:
            candidate.entry = task.result()
            if not candidate.entry.complete:
                candidate.trouble("incomplete", _last_warning(candidate.entry))


def _last_warning(entry: Entry) -> str:
    return entry.warnings[-1]["message"] if entry.warnings else "Its list of tools is not complete."


def _judged(actor: Actor, candidate: _Candidate, dialect: str, agent_rules: Sequence[Rule]) -> list[OfferedTool]:
    server, globs = candidate.server, candidate.wanted.tools
    grants = list(server.grants.all())
    per_tool = any(grant.tool for grant in grants)
    general = granted(actor, [grant for grant in grants if not grant.tool])
    offered = []
    assert candidate.entry is not None
    for definition in candidate.entry.definitions(dialect):
        if globs and not any(matches(glob, definition.name) for glob in globs):
            continue
        decided = decide(server, definition.name, agent_rules)
        allowed = general
        if per_tool:
            allowed = granted(
                actor, [grant for grant in grants if not grant.tool or matches(grant.tool, definition.name)]
            )
        withheld = definition.quarantined
        if not withheld and not allowed:
            withheld = allowed.reason
        if not withheld and decided.do is Do.DENY:
            withheld = decided.reason
        offered.append(
            OfferedTool(server.pk, server.slug, server.title, definition, decided.do, decided.reason, globs, withheld)
        )
    return offered


def decide(server: MCPServer, tool: str, agent_rules: Sequence[Rule] = ()) -> RuleVerdict:
    """What the rules of the server and of the agent say of a call (SPEC P3)."""
    lists = [
        RuleList("the server", server.rules),
        RuleList("the agent", agent_rules, f"{server.slug}__{tool}"),
    ]
    return verdict(tool, lists=lists, read_only=server.read_only)


# --- The picker and the admin -------------------------------------------------------------------------------------


async def server_states(actor: Actor, server_ids: Sequence[UUID]) -> list[ServerState]:
    """What is known of the servers, for the picker: nothing is connected, but what is unknown is fetched meanwhile."""
    candidates = await in_rows(_load, actor, [WantedServer(server_id) for server_id in server_ids])
    for candidate in candidates:
        target = candidate.target
        if target is not None and candidate.entry is None and not fetches().failure(address_of(target)):
            fetches().start(target)
    return [_state(actor, candidate) for candidate in candidates]


def _state(actor: Actor, candidate: _Candidate) -> ServerState:
    server = candidate.server
    if candidate.problem is not None:
        states: dict[str, Any] = {"not_ready": "needs_setup", "disabled": "off", "not_granted": "off"}
        return ServerState(
            server.slug, server.title, states.get(candidate.problem.code, "error"), candidate.problem.message
        )
    assert candidate.target is not None
    failure = fetches().failure(address_of(candidate.target))
    tools = tuple(_judged(actor, candidate, "openai", ())) if candidate.entry is not None else ()
    if failure:
        return ServerState(server.slug, server.title, "error", failure, tools)
    if candidate.entry is None:
        return ServerState(server.slug, server.title, "unknown", "It is being connected.")
    return ServerState(server.slug, server.title, "ready", "", tools)


def system_actor(server: MCPServer) -> Actor:
    """For work on a server that nobody asked for: an actor of its organization who is no user."""
    organization = server.organization
    return Actor(UUID(int=0), organization.pk, Role.OWNER, organization_slug=organization.slug, present=False)


def _target(server_id: UUID, actor: Actor | None) -> tuple[MCPServer, ConnectionTarget]:
    server = MCPServer.objects.as_system().select_related("organization").get(pk=server_id)
    variables: dict[str, str] = {}
    if actor is not None and server.variables:
        own = UserVariables.objects.filter(server=server, user_id=actor.user_id).first()
        variables = own.values if own is not None else {}
    return server, target_of(server, actor or system_actor(server), variables)


async def refresh(server_id: UUID, *, actor: Actor | None = None) -> RefreshReport:
    """Connect now, list the tools, store them, and tell how it went. Never raises for what the server does.

    `actor` is whose values a user-scoped server is asked with; without one such a server is not ready.
    """
    began = time.monotonic()
    try:
        _server, target = await in_rows(_target, server_id, actor)
        revision = entries.new_revision()
        async with connections.manager().borrow(target) as connection:
            found = await discover(connection)
            report = RefreshReport(
                tools=len(found.tools),
                transport=str(connection.transport.value),
                era=str(connection.era.get("mode", "")),
                protocol_version=connection.protocol_version,
                duration_ms=_since(began),
                warnings=tuple(_warning(item) for item in found.warnings),
                server_info=connection.server_info,
            )
        await in_rows(entries.store, address_of(target), target.slug, found, revision)
        fetches().failed.pop(address_of(target), None)
    except ChatUIError as error:
        return RefreshReport(duration_ms=_since(began), error=error.public_message)
    return report


def _since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)


def _warning(item: dict[str, str]) -> str:
    return f"{item['tool']}: {item['message']}" if item.get("tool") else item["message"]


def invalidate(server_id: UUID) -> None:
    """Forget what memory knows of a server: its definition, its values or its grants have changed."""
    entries.memory.forget(server_id)
    for found in _fetches.values():
        for address in [address for address in found.failed if address.server_id == server_id]:
            del found.failed[address]
