"""`MCPToolbox`: what one actor may use of an agent's MCP servers in one turn."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import Exists, JSONField, Subquery, Value

from accounts.actors import Actor, stand_in
from accounts.policy import may_have_servers
from agents.deciding import Always, ThroughAgent, decide_call, why_withdrawn
from agents.models import Agent, AgentServer
from agents.own_results import denied_by_rule
from agents.parts import (
    Artifact,
    Decision,
    JSONObject,
    PersonNeeded,
    PreparedCall,
    ToolRequest,
    ToolResult,
    ToolSpec,
    ToolStatus,
    error_result,
)
from agents.signing_in import sign_in_first
from agents.toolbox import AskCallback, ProgressCallback
from agents.understanding import understand
from chatui.errors import ChatUIError
from chatui.prepared import PreparedQuery
from chatui.rows import in_rows
from mcpservers import calls, catalogue, connections
from mcpservers.approvals import Do, claims
from mcpservers.authorizing import DIRECTLY
from mcpservers.catalogue import Offer, OfferedTool, WantedServer
from mcpservers.elicitation import Answer
from mcpservers.live_questions import Ask, Person
from mcpservers.models import MCPServer
from mcpservers.requests import RequestContext
from mcpservers.schemas import DIALECTS

NAMES_SHOWN = 40


class NotOfferedError(ChatUIError):
    """The selection names a server that the agent does not have."""

    code = "not_offered"
    public_message = "This agent does not have that server."


@dataclass(slots=True)
class MCPToolbox:
    """Tools of MCP servers behind the `Toolbox` protocol. Everything is decided again, on fresh rows, at each call.

    With `present` False nobody can be asked: what would ask is denied at once, saying how to get it allowed.
    """

    actor: Actor
    offer: Offer
    agent_id: UUID | None = None
    turn_id: UUID | None = None
    images: bool = False
    present: bool = True
    dialect: str = "openai"
    request: RequestContext | None = None  # of the turn, for servers whose definition depends on it
    accounts: Mapping[str, str] = field(default_factory=dict)  # chosen for the conversation: server's slug → account
    always: Always | None = None  # what the actor has allowed for good; None: nothing can be
    before: Mapping[str, Sequence[str]] = field(default_factory=dict)  # as `offered`, in an earlier part of the turn
    _tools: dict[str, OfferedTool] = field(default_factory=dict)
    _withheld: dict[str, OfferedTool] = field(default_factory=dict)
    _missing: dict[str, ToolResult] = field(default_factory=dict)  # what their server does not know any more

    def __post_init__(self) -> None:
        self._tools = {tool.exposed_name: tool for tool in self.offer.tools}
        self._withheld = {tool.exposed_name: tool for tool in self.offer.withheld}

    @property
    def problems(self) -> Sequence[catalogue.ServerProblem]:
        return self.offer.problems

    @property
    def instructions(self) -> Sequence[tuple[str, str]]:
        """(server title, the server's own instructions), where an admin wants the model to have them."""
        return self.offer.instructions

    @property
    def offered(self) -> dict[str, list[str]]:
        """Exposed name → [server id, tool], to be stored with the turn."""
        return {name: [str(tool.server_id), tool.name] for name, tool in self._tools.items()}

    def offers(self, name: str) -> bool:
        """Whether a tool of this exposed name is offered now."""
        return name in self._tools

    def specs(self, names: Iterable[str] | None = None) -> Sequence[ToolSpec]:
        """What models are shown of every tool, or of the named ones, in this order."""
        limit = DIALECTS[self.dialect].max_description
        tools = self._tools.values() if names is None else [self._tools[name] for name in names if name in self._tools]
        return [ToolSpec(tool.exposed_name, _description(tool, limit), tool.definition.parameters) for tool in tools]

    def input_schema(self, name: str) -> JSONObject:
        """The schema of a tool's arguments as its server has it; {} for a name that there is not."""
        tool = self._tools.get(name)
        return tool.definition.input_schema if tool is not None else {}

    async def prepare(self, request: ToolRequest) -> PreparedCall:
        tool = self._tools.get(request.name) or self._withheld.get(request.name)
        if tool is None:
            return await self._not_offered(request)
        if request.name in self._missing:
            return self._prepared(request, tool, Decision.DENY, "no longer there", self._missing[request.name])
        if tool.withheld:
            return self._prepared(request, tool, Decision.DENY, tool.withheld, denied_by_rule(tool.withheld))
        definition = tool.definition
        arguments, problem = understand(
            request.arguments, definition.input_schema, definition.renames, definition.absent
        )
        if problem:
            return self._prepared(request, tool, Decision.DENY, "bad arguments", error_result(problem), arguments)
        decided = await in_rows(decide_call, self.actor, self.agent_id, tool, present=self.present, always=self.always)
        if decided.do is Do.DENY:
            result = denied_by_rule(decided.reason)
            return self._prepared(request, tool, Decision.DENY, decided.reason, result, arguments)
        decision = Decision.ALLOW if decided.do is Do.ALLOW else Decision.ASK
        return replace(
            self._prepared(request, tool, decision, decided.reason, None, arguments),
            definition=definition.pin,
            can_edit=decided.can_edit,
            can_remember=decided.can_remember,
            approvers=decided.approvers,
            input_schema=definition.input_schema,
        )

    async def _not_offered(self, request: ToolRequest) -> PreparedCall:
        """Refused: as withdrawn since the turn waited, or as a tool that there is not."""
        server_id, name = self.before.get(request.name, ("", ""))
        if server_id:
            reason = await in_rows(why_withdrawn, self.actor, self.agent_id, UUID(server_id), name)
            if reason:
                slug = request.name.partition("__")[0]
                told = denied_by_rule(reason)
                return PreparedCall(
                    request, Decision.DENY, reason, server_id=UUID(server_id), server=slug, tool=name, result=told
                )
        result = unknown_tool(request.name, list(self._tools))
        return PreparedCall(request, Decision.DENY, "unknown tool", result=result)

    async def call(
        self, call: PreparedCall, progress: ProgressCallback, ask: AskCallback | None = None
    ) -> ToolResult | PersonNeeded:
        tool = self._tools.get(call.request.name)
        if tool is None:  # allowed in an earlier part of the turn, and withheld or gone since
            withheld = self._withheld.get(call.request.name)
            if withheld is not None and withheld.withheld:
                return denied_by_rule(withheld.withheld)
            return unknown_tool(call.request.name, list(self._tools))
        definition = tool.definition
        outcome = await calls.call_tool(
            self.actor,
            tool.server_id,
            tool.name,
            call.arguments or {},
            turn_id=self.turn_id,
            progress=progress,
            request=self.request,
            allow_globs=tool.globs,
            images=self.images,
            input_schema=definition.input_schema,
            output_schema=definition.output_schema,
            annotations=definition.annotations,
            pin=definition.pin,
            person=self._person(call, ask),
            account_id=self._account_id(tool),
            through=DIRECTLY if self.agent_id is None else ThroughAgent(self.agent_id),
        )
        if outcome.asked is not None:
            return PersonNeeded("elicitation", outcome.asked.card, outcome.asked.kept)
        result = ToolResult(
            ToolStatus(outcome.status),
            outcome.text,
            outcome.content,
            [Artifact(item.data, item.media_type, item.name) for item in outcome.artifacts],
            outcome.duration_ms,
            outcome.account_id,
            outcome.refusal,
        )
        if outcome.sign_in is not None:
            return sign_in_first(self.actor, call, outcome.sign_in, result, present=self.present)
        if outcome.missing:
            self._missing[tool.exposed_name] = replace(result, duration_ms=0)
            self._withheld[tool.exposed_name] = self._tools.pop(tool.exposed_name, tool)
        return result

    def _account_id(self, tool: OfferedTool) -> UUID | None:
        """The account that people were shown, so that no other one acts; None for whichever is the default by then."""
        if tool.account is not None:
            return tool.account.id
        chosen = self.accounts.get(tool.server_slug)
        return UUID(chosen) if chosen else None

    def _person(self, call: PreparedCall, ask: AskCallback | None) -> Person | None:
        """Who can be asked by the server, and the answer to what it asked before."""
        if not self.present:
            return None
        person = Person(_asking(call, ask) if ask is not None else None)
        if call.resumed is not None and call.resumed.needed.kind == "elicitation":
            given = call.resumed.answer
            person.kept, person.answer = call.resumed.needed.kept, Answer(given.action, given.content)
        return person

    async def aclose(self) -> None:
        """Close the connections that were the turn's own; of others, leases last as long as a call."""
        if self.request is not None:
            connections.manager().close_run(self.request.run)

    def _prepared(
        self,
        request: ToolRequest,
        tool: OfferedTool,
        decision: Decision,
        reason: str,
        result: ToolResult | None,
        arguments: JSONObject | None = None,
    ) -> PreparedCall:
        return PreparedCall(
            request,
            decision,
            reason,
            arguments=arguments,
            server_id=tool.server_id,
            server=tool.server_slug,
            server_title=tool.server_title,
            tool=tool.name,
            title=tool.title or tool.name,
            claims=claims(tool.definition.annotations),
            account=tool.account.name if tool.account is not None else None,
            result=result,
        )


def _asking(call: PreparedCall, ask: AskCallback) -> Ask:
    """`ask` for a question during the call, which nobody has to answer: then it is cancelled."""

    async def asking(card: JSONObject) -> Answer:
        needed = PersonNeeded("elicitation", {"server": call.server, "title": call.server_title, **card})
        try:
            async with asyncio.timeout(settings.TURN["LIVE_QUESTION_SECONDS"]):
                given = await ask(needed)
        except TimeoutError:
            return Answer("cancel")
        return Answer(given.action, given.content)

    return asking


def unknown_tool(name: str, usable: Sequence[str], deferred: Sequence[str] = ()) -> ToolResult:
    """What a model is told that names a tool which there is not: those that there are, the alike first.

    Of the `deferred` ones, which may be used too, only those that are alike are named.
    """
    every = [*usable, *deferred]
    alike = get_close_matches(name[:100], every, n=5, cutoff=0.5)
    alike += [exposed for exposed in every if exposed.partition("__")[2] == name]  # without the server before it
    names = list(dict.fromkeys([*alike, *usable]))
    shown = ", ".join(names[:NAMES_SHOWN]) + (" …" if len(names) > NAMES_SHOWN else "")
    told = f"The tools that you may use are: {shown}." if names else "There are no tools; answer without them."
    return error_result(f"There is no tool “{name[:100]}”. {told}")


def _description(tool: OfferedTool, limit: int | None) -> str:
    """What the model reads: the server's own words, attributed, since the server may say anything."""
    words = f"[{tool.server_title}] {tool.description or tool.title or tool.name}"
    return words if limit is None or len(words) <= limit else words[: limit - 1] + "…"


@dataclass(frozen=True, slots=True)
class _Needs:
    wanted: tuple[WantedServer, ...]
    rules: Sequence[Mapping[str, Any]]


_servers = PreparedQuery(
    lambda organization, agent: (
        AgentServer.objects.filter(
            agent__in=Agent.objects.visible_to(stand_in(organization_id=organization)), agent_id=agent
        )
        .order_by("position", "pk")
        .values_list("server_id", "server__slug", "tools", "agent__rules")
    ),
    UUID,
    UUID,
)


# The person's own, where the agent uses those: beside what an admin chose for it, never instead.
_own_servers = PreparedQuery(
    lambda organization, user, agent: (
        MCPServer.objects.visible_to(stand_in(organization_id=organization, user_id=user))
        .filter(Exists(Agent.objects.as_system().filter(pk=agent, user_servers=True)), owner_id=user, enabled=True)
        .annotate(
            no_globs=Value([], JSONField()),
            rules_of_agent=Subquery(Agent.objects.as_system().filter(pk=agent).values("rules")[:1]),
        )
        .order_by("title", "pk")
        .values_list("pk", "slug", "no_globs", "rules_of_agent")
    ),
    UUID,
    UUID,
    UUID,
)


def _needs(actor: Actor, agent_id: UUID, servers: Sequence[str] | None) -> _Needs:
    rows = _servers(actor.organization_id, agent_id)
    if may_have_servers(actor):
        rows = [*rows, *_own_servers(actor.organization_id, actor.user_id, agent_id)]
    if servers is not None:
        unknown = set(servers) - {slug for _, slug, _, _ in rows}
        if unknown:
            raise NotOfferedError(public_message=f"This agent has no server “{min(unknown)[:80]}”.")
        rows = [row for row in rows if row[1] in set(servers)]
    return _Needs(
        tuple(WantedServer(server_id, tuple(tools)) for server_id, _, tools, _ in rows), rows[0][3] if rows else ()
    )


async def open_toolbox(
    actor: Actor,
    agent_id: UUID,
    *,
    servers: Sequence[str] | None = None,
    dialect: str = "openai",
    turn_id: UUID | None = None,
    images: bool = False,
    present: bool = True,
    request: RequestContext | None = None,
    accounts: Mapping[str, str] | None = None,
    always: Always | None = None,
    before: Mapping[str, Sequence[str]] | None = None,
) -> MCPToolbox:
    """The toolbox of one turn: the agent's servers, or the named ones of them (`()` for none).

    What servers whose definition depends on the turn are told is `request`; their connections end with the toolbox.
    `accounts` are those that were chosen for the conversation; `before` is what the turn was offered before it waited,
    so that what is missing by now is refused with the reason. Raises `NotOfferedError`; never for a server: see
    `MCPToolbox.problems`.
    """
    accounts = accounts or {}
    needs = _Needs((), ())
    if servers is None or servers:
        needs = await in_rows(_needs, actor, agent_id, servers)
    if request is not None:
        connections.manager().open_run(request.run)
    try:
        offer = await catalogue.offered_to(
            actor, needs.wanted, dialect=dialect, agent_rules=needs.rules, request=request, accounts=accounts
        )
    except BaseException:
        if request is not None:
            connections.manager().close_run(request.run)
        raise
    chosen = (request, accounts, always, before or {})
    return MCPToolbox(actor, offer, agent_id, turn_id, images, present, dialect, *chosen)
