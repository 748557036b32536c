"""The catalogue: what models are offered comes from here; a server is connected only when it is not known yet.

*Definitions are cheap, connections are dear*. One server's trouble never costs another one's tools.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.conf import settings

from accounts.actors import Actor, GroupRules
from accounts.grants import Grant
from accounts.policy import Verdict
from chatui.errors import ChatUIError
from chatui.rows import in_rows
from mcpservers import connections, entries, fetching, learning
from mcpservers.acting import acting_target, identity_of
from mcpservers.approvals import Do, Rule, RuleVerdict, matches, rule_lists, verdict
from mcpservers.candidates import Candidate, load_candidates, prepare
from mcpservers.discovery import discover
from mcpservers.entries import Entry
from mcpservers.errors import SignInRequiredError
from mcpservers.fetching import Fetches, aclose, address_of, fetches, fill, system_actor
from mcpservers.giving import given
from mcpservers.models import MCPServer, UserVariables
from mcpservers.offers import KnownServer, Offer, OfferedTool, RefreshReport, ServerProblem, ServerState, WantedServer
from mcpservers.pins import OWN_REASONS, REASONS, Owner, Pins
from mcpservers.requests import RequestContext
from mcpservers.rulings import Rulings
from mcpservers.scope import Scope
from mcpservers.transports import ConnectionTarget
from mcpservers.visible import revealed, visible

__all__ = [
    "Offer",
    "OfferedTool",
    "RefreshReport",
    "ServerProblem",
    "ServerState",
    "WantedServer",
    "aclose",
    "decide",
    "fill",
    "invalidate",
    "known",
    "offered_to",
    "refresh",
    "server_states",
]


# --- Offering -----------------------------------------------------------------------------------------------------


async def offered_to(
    actor: Actor,
    wanted: Sequence[WantedServer],
    *,
    dialect: str = "openai",
    agent_rules: Sequence[Rule] = (),
    request: RequestContext | None = None,
    accounts: Mapping[str, str] | None = None,
) -> Offer:
    """What `actor` may be offered of the `wanted` servers, in their order, however many tools that are.

    No network where the catalogue knows the servers. An unknown one is connected to within
    `MCP_OFFER_BUDGET_SECONDS`, all at once; one that is late is offered from the next turn on. Where nothing at all
    is known, the first server is waited for thrice as long. Nobody waits again for a server that was late before
    it has answered or failed. A server whose definition depends on the turn is waited
    for thrice as long too: it is listed for this `request` alone, whose run must be open. `accounts` are those that
    were chosen: server's slug → id. Never raises for a server: its trouble is a problem of the offer.
    """
    if not wanted:
        return Offer()
    found = fetches()  # from now on changes of lists are heard
    candidates = await in_rows(load_candidates, actor, wanted, dialect, request, accounts)
    rulings = Rulings(actor.group_rules, agent_rules)
    await _fill(found, actor, candidates, dialect)
    tools: list[OfferedTool] = []
    withheld: list[OfferedTool] = []
    problems: list[ServerProblem] = []
    instructions: list[tuple[str, str]] = []
    for candidate in candidates:
        if candidate.problem is not None:
            problems.append(candidate.problem)
        if candidate.entry is None:
            continue
        judged = _judged(actor, candidate, dialect, rulings)
        tools += [tool for tool in judged if not tool.withheld]
        withheld += [tool for tool in judged if tool.withheld]
        if candidate.server.use_instructions and candidate.entry.instructions.strip():
            instructions.append((candidate.server.title, visible(candidate.entry.instructions)))
    return Offer(tuple(tools), tuple(withheld), tuple(problems), tuple(instructions))


async def _fill(found: Fetches, actor: Actor, candidates: Sequence[Candidate], dialect: str) -> None:
    """Fetch what is not known or has changed, wait for it within the budget; fetch in the background what is old."""
    waiting: list[tuple[Candidate, asyncio.Task[Entry]]] = []
    for candidate in candidates:
        if candidate.target is None:
            continue
        address = address_of(candidate.target)
        failure, sign_in = found.failure(address), found.sign_in(address)
        if candidate.entry is None and sign_in is not None:
            candidate.needs_sign_in(actor.organization_slug, sign_in)
        elif candidate.entry is None and failure:
            candidate.trouble("unavailable", failure)
        elif candidate.entry is None or found.has_changed(address):
            waiting.append((candidate, found.start(candidate.target)))
        elif candidate.entry.is_stale and not failure and not sign_in:
            found.start(candidate.target)
    if not waiting:
        return
    tasks = [task for _, task in waiting if not found.is_late(task)]
    budget = settings.MCP["OFFER_BUDGET_SECONDS"]
    done = {task for _, task in waiting if task.done()}
    if tasks:
        done |= (await asyncio.wait(tasks, timeout=budget))[0]
        if not done and all(candidate.entry is None for candidate in candidates):
            # Nothing at all to offer yet: an answer without any tool is worth less than a longer wait, once.
            await asyncio.wait(tasks, timeout=2 * budget, return_when=asyncio.FIRST_COMPLETED)
        found.mark_late(tasks)
    of_this_turn = [task for candidate, task in waiting if candidate.is_of_this_turn and not task.done()]
    if of_this_turn:
        await asyncio.wait(of_this_turn, timeout=2 * budget)
    for candidate, task in waiting:
        _settle(actor, candidate, task)
    await in_rows(prepare, [candidate for candidate, _ in waiting], dialect)


def _settle(actor: Actor, candidate: Candidate, task: asyncio.Task[Entry]) -> None:
    """What came of the discovery. Where it brought nothing, the list that is known serves on."""
    if task.done() and not task.cancelled() and task.exception() is None:
        fetched = task.result()
        if fetched.complete or candidate.entry is None:
            candidate.entry = fetched
        if not fetched.complete:
            candidate.trouble("incomplete", _last_warning(fetched))
    elif candidate.entry is not None:
        return
    elif not task.done() and candidate.is_of_this_turn:
        candidate.trouble("unavailable", "It did not list its tools in time, so this turn goes on without it.")
    elif not task.done():
        candidate.trouble("unavailable", "It is still being connected; its tools come with the next message.")
    elif task.cancelled():
        candidate.trouble("unavailable", "The server is restarting.")
    elif isinstance(error := task.exception(), SignInRequiredError):
        candidate.needs_sign_in(actor.organization_slug, error)
    elif error is not None:
        candidate.trouble("unavailable", fetching.words_of(error))


def _last_warning(entry: Entry) -> str:
    return entry.warnings[-1]["message"] if entry.warnings else "Its list of tools is not complete."


def _judged(actor: Actor, candidate: Candidate, dialect: str, rulings: Rulings) -> list[OfferedTool]:
    server, globs = candidate.server, candidate.wanted.tools
    given_to = _GivenTools(actor, server, candidate.grants)
    ruled = rulings.of(server.slug, server=server.rules, read_only=server.read_only)
    assert candidate.entry is not None
    pins = candidate.pins or Pins(Owner(server.pk))  # without rows nothing is accepted
    reasons = REASONS if server.owner_id is None else OWN_REASONS
    offered = []
    for definition in candidate.entry.definitions(dialect):
        name = definition.name
        if globs and not any(matches(glob, name) for glob in globs):
            continue
        allowed, decided = given_to.of(name), ruled(name)
        withheld = definition.quarantined or ("" if allowed else allowed.reason)
        if not withheld and decided.do is Do.DENY:
            withheld = decided.reason
        state = pins.state(name, definition.pin)
        withheld = withheld or reasons[state]
        offered.append(
            OfferedTool(
                server.pk,
                server.slug,
                server.title,
                definition,
                decided.do,
                decided.reason,
                globs,
                withheld,
                state,
                candidate.identity.account,
            )
        )
    return offered


class _GivenTools:
    """Which tools of a server are given to somebody: the verdict is made once for all that the same grants name."""

    def __init__(self, actor: Actor, server: MCPServer, grants: Sequence[Grant]) -> None:
        self._actor, self._server = actor, server
        self._general = [grant for grant in grants if not grant.tool]
        self._of_tools = [grant for grant in grants if grant.tool]
        self._verdicts: dict[tuple[Grant, ...], Verdict] = {}

    def of(self, tool: str) -> Verdict:
        named = tuple(grant for grant in self._of_tools if matches(grant.tool, tool)) if self._of_tools else ()
        verdict = self._verdicts.get(named)
        if verdict is None:
            verdict = self._verdicts[named] = given(self._actor, self._server, [*self._general, *named])
        return verdict


def decide(
    server: MCPServer, tool: str, agent_rules: Sequence[Rule] = (), group_rules: Sequence[GroupRules] = ()
) -> RuleVerdict:
    """What the rules of the server, of a person's groups and of the agent say of a call."""
    lists = rule_lists(server.slug, tool, server=server.rules, groups=group_rules, agent=agent_rules)
    return verdict(tool, lists=lists, read_only=server.read_only)


# --- The picker and the admin -------------------------------------------------------------------------------------


def known(actor: Actor, wanted: Sequence[WantedServer], *, agent_rules: Sequence[Rule] = ()) -> list[KnownServer]:
    """What the rows say that `actor` would be offered: nobody is connected to, and nothing is fetched."""
    rulings = Rulings(actor.group_rules, agent_rules)
    return [
        KnownServer(
            candidate.server.pk,
            candidate.server.slug,
            candidate.server.title,
            candidate.problem,
            tuple(_judged(actor, candidate, "openai", rulings)) if candidate.entry is not None else None,
            candidate.is_of_this_turn,
        )
        for candidate in load_candidates(actor, wanted, "openai", RequestContext.of_trial())
    ]


async def server_states(
    actor: Actor, server_ids: Sequence[UUID], accounts: Mapping[str, str] | None = None
) -> list[ServerState]:
    """What is known of the servers, for the picker: nothing is waited for, but what is unknown is fetched meanwhile."""
    wanted = [WantedServer(server_id) for server_id in server_ids]
    candidates = await in_rows(load_candidates, actor, wanted, "openai", RequestContext.of_trial(), accounts)
    found = fetches()
    for candidate in candidates:
        target = candidate.target
        if target is None or candidate.entry is not None or candidate.is_of_this_turn:
            continue
        if not found.failure(address_of(target)) and not found.sign_in(address_of(target)):
            found.start(target)
    rulings = Rulings(actor.group_rules)
    return [_state(actor, candidate, found, rulings) for candidate in candidates]


def _state(actor: Actor, candidate: Candidate, found: Fetches, rulings: Rulings) -> ServerState:
    server = candidate.server
    if candidate.problem is not None:
        states: dict[str, Any] = {"not_ready": "needs_setup", "disabled": "off", "not_granted": "off"}
        return ServerState(
            server.slug, server.title, states.get(candidate.problem.code, "error"), candidate.problem.message
        )
    assert candidate.target is not None
    failure = found.failure(address_of(candidate.target))
    refusal = connections.manager().breaker.refusal(candidate.target.circuit)
    tools = tuple(_judged(actor, candidate, "openai", rulings)) if candidate.entry is not None else ()
    if refusal is not None:
        return ServerState(server.slug, server.title, "error", refusal.message, tools, refusal.retry_at)
    sign_in = found.sign_in(address_of(candidate.target))
    if candidate.identity.is_missing or (sign_in is not None and candidate.is_for_people):
        return ServerState(server.slug, server.title, "needs_sign_in", "Sign in with an account of yours.", tools)
    if sign_in is not None:
        return ServerState(server.slug, server.title, "error", sign_in.public_message, tools)
    if candidate.identity.has_ended:
        return ServerState(server.slug, server.title, "needs_sign_in", "Your sign-in has ended: sign in again.", tools)
    if failure:
        return ServerState(server.slug, server.title, "error", failure, tools)
    if candidate.is_of_this_turn:
        return ServerState(server.slug, server.title, "ready", "Its tools are listed anew in every turn.")
    if candidate.entry is None:
        return ServerState(server.slug, server.title, "unknown", "It is being connected.")
    return ServerState(server.slug, server.title, "ready", "", tools)


def _target(server_id: UUID, actor: Actor | None, request: RequestContext) -> ConnectionTarget:
    server = MCPServer.objects.as_system().select_related("organization").get(pk=server_id)
    variables: dict[str, str] = {}
    if actor is not None and server.variables:
        own = UserVariables.objects.filter(server=server, user_id=actor.user_id).first()
        variables = own.values if own is not None else {}
    who = actor or system_actor(server)
    return acting_target(server, who, variables, identity_of(who, server), request)


async def refresh(server_id: UUID, *, actor: Actor | None = None) -> RefreshReport:
    """Connect now, list the tools, store them, and tell how it went. Never raises for what the server does.

    The connection is one of its own, closed at the end: a test that used an open one would not test connecting, and
    the caller's loop may be gone a moment later. `actor` is whose values a user-scoped server is asked with; without
    one such a server is not ready.
    """
    began = time.monotonic()
    manager = connections.made()
    request = RequestContext.of_trial()
    manager.open_run(request.run)
    target: ConnectionTarget | None = None
    try:
        target = await in_rows(_target, server_id, actor, request)
        revision = entries.new_revision()
        async with manager.borrow(target) as connection:
            found = await discover(connection)
            report = RefreshReport(
                tools=len(found.tools),
                transport=str(connection.transport.value),
                era=str(connection.era.get("mode", "")),
                protocol_version=connection.protocol_version,
                duration_ms=_since(began),
                warnings=tuple(_warning(item) for item in found.warnings),
                server_info={name: visible(text) for name, text in connection.server_info.items() if _is_text(text)},
            )
        if target.scope is not Scope.REQUEST:
            await in_rows(fetching.keep, target, found, revision)
        fetching.forgive(server_id)
    except ChatUIError as error:
        needed = await learning.sign_in_for(target, error) if target is not None else None
        return RefreshReport(duration_ms=_since(began), error=(needed or error).public_message)
    finally:
        await manager.aclose()
    return report


def _since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)


def _warning(item: dict[str, str]) -> str:
    return revealed(f"{item['tool']}: {item['message']}" if item.get("tool") else item["message"])


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def invalidate(server_id: UUID) -> None:
    """A server's definition, values or grants have changed, and are committed: forget what memory knows of it.

    Its tools are listed anew in the background. From any thread.
    """
    entries.memory.forget(server_id)
    fetching.forgive(server_id)
    fetching.fill_soon(server_id)
