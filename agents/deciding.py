"""What happens to one call of a server's tool: rules, approvers and standing approvals, on rows that are read now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from django.db.models import OuterRef, QuerySet

from accounts import approvers
from accounts.actors import Actor, refreshed, why_gone
from accounts.grants import gathered, grants_of
from accounts.policy import Action, allows, granted
from agents.models import Agent, AgentGrant, AgentServer
from chatui.gathered import Gathered, Nested
from chatui.prepared import PreparedQuery
from mcpservers import catalogue
from mcpservers.approvals import Do, Rule, RuleVerdict, matches
from mcpservers.authorizing import given_to
from mcpservers.catalogue import OfferedTool
from mcpservers.giving import given_tool, is_visible
from mcpservers.models import FOR_PEOPLE, MCPServer, ServerGrant

NOBODY_PRESENT = (
    "this tool needs a person's approval, and nobody is present to give it. "
    "An admin can allow it by a rule of the server or the agent."
)


@dataclass(frozen=True, slots=True)
class Standing:
    """What a person's earlier *Always allow* says: whether it holds for this definition, and that in words."""

    holds: bool = False
    reason: str = ""


class Always(Protocol):
    """What a person has said of tools before; row work."""

    def __call__(self, server_id: UUID, tool: str, definition: str) -> Standing:
        """What was said of the tool with this pin of its definition. One query."""

    def column(self, server_id: UUID, tool: str) -> Gathered:
        """The same, to be read with other rows."""

    def read(self, column: Sequence[Mapping[str, Any]], definition: str) -> Standing:
        """What such a column says."""


@dataclass(frozen=True, slots=True)
class CallVerdict:
    """What happens to a call and why. `approvers` (names by id) are the only ones who may answer.

    None is whose call it is.
    """

    do: Do
    reason: str
    can_edit: bool = False
    can_remember: bool = False
    approvers: Mapping[UUID, str] | None = None


class _About(Protocol):
    """A server's row with what else has a say: nothing of its agent where there is none."""

    owner_id: UUID | None
    agents: Sequence[Mapping[str, Any]]  # the agent, if there is one
    used: Sequence[Mapping[str, Any]]  # {tools}, if the agent has the server
    agent_given: Sequence[Mapping[str, Any]]
    given: Sequence[Mapping[str, Any]]


_NO_AGENT = UUID(int=0)
_SAY = ("organization_id", "owner_id", "slug", "title", "enabled", "rules", "read_only")


def _rows(server: UUID, agent: UUID, user: UUID) -> QuerySet[MCPServer]:
    rows: QuerySet[MCPServer] = MCPServer.objects.as_system().filter(pk=server)
    return rows.annotate(
        agents=Gathered(
            Agent.objects.as_system().filter(pk=agent, organization_id=OuterRef("organization_id")),
            name="name",
            enabled="enabled",
            user_servers="user_servers",
            rules=Nested("rules"),
        ),
        used=Gathered(AgentServer.objects.filter(agent_id=agent, server_id=server), tools=Nested("tools")),
        agent_given=gathered(AgentGrant.objects.filter(given_to(user), agent_id=agent)),
        given=gathered(ServerGrant.objects.filter(given_to(user), server_id=server)),
    )


# To decrypt a server's secrets would take longer than all the rest, and only who calls it has use for them.
_about = PreparedQuery(lambda server, agent, user: _rows(server, agent, user).only(*_SAY), UUID, UUID, UUID)
_to_call = PreparedQuery(lambda server, agent, user: _rows(server, agent, user).defer(*FOR_PEOPLE), UUID, UUID, UUID)


@dataclass(frozen=True, slots=True)
class ThroughAgent:
    """That a call is an agent's (`mcpservers.authorizing.Through`): looked at again when it is made."""

    agent_id: UUID

    def server(self, server_id: UUID, user_id: UUID) -> MCPServer | None:
        return _to_call.first(server_id, self.agent_id, user_id)

    def refusal(self, actor: Actor, server: Any, tool: str) -> str:
        reason = _not_of_agent(actor, server, tool)
        return reason and f"{reason[0].upper()}{reason[1:].rstrip('.')}."

    def rules(self, server: Any) -> Sequence[Rule]:
        rules: Sequence[Rule] = server.agents[0]["rules"]
        return rules


def decide_call(
    actor: Actor,
    agent_id: UUID | None,
    tool: OfferedTool,
    *,
    present: bool = True,
    always: Always | None = None,
) -> CallVerdict:
    """The verdict on fresh rows of member (and key), agent, server, and the grants of both.

    Two queries, and a third where a person may have to be asked: what was always allowed, and who may approve. Where
    nobody can answer, the call is denied.
    """
    now = refreshed(actor)
    if now is None:
        return CallVerdict(Do.DENY, why_gone(actor))
    may = allows(now, Action.CALL_TOOL)
    decided = _by_rows(now, agent_id, tool.server_id, tool.name) if may else RuleVerdict(Do.DENY, may.reason)
    if decided.do is not Do.ASK:
        return CallVerdict(decided.do, decided.reason)
    if not present:
        return CallVerdict(Do.DENY, NOBODY_PRESENT)
    asks = always if decided.remember else None
    named = None
    if decided.approvers:
        beside = asks.column(tool.server_id, tool.name) if asks is not None else None
        named = approvers.resolve(now.organization_id, decided.approvers, beside)
        if not named.people:
            return CallVerdict(
                Do.DENY, f"nobody can approve this call: {named.problem}. Ask an admin to change the rule."
            )
    one_of_them = named is None or now.user_id in named.people
    standing = Standing()
    if asks is not None and one_of_them:
        pin = tool.definition.pin
        standing = asks(tool.server_id, tool.name, pin) if named is None else asks.read(named.beside, pin)
    if standing.holds:
        return CallVerdict(Do.ALLOW, standing.reason)
    return CallVerdict(
        Do.ASK,
        f"{standing.reason} {decided.reason}".strip(),
        can_edit=decided.edit,
        can_remember=asks is not None and one_of_them,
        approvers=None if named is None else named.people,
    )


def why_withdrawn(actor: Actor, agent_id: UUID | None, server_id: UUID, tool: str) -> str:
    """Why a tool that was offered may not be any more, for a person; "" if it may (its server is away, say).

    Two queries.
    """
    now = refreshed(actor)
    if now is None:
        return why_gone(actor)
    decided = _by_rows(now, agent_id, server_id, tool)
    return decided.reason if decided.do is Do.DENY else ""


def _by_rows(actor: Actor, agent_id: UUID | None, server_id: UUID, tool: str) -> RuleVerdict:
    """What agent, server, their grants and the rules say. One query."""
    server: Any = _about.first(server_id, agent_id or _NO_AGENT, actor.user_id)
    if server is not None and not is_visible(actor, server):
        server = None
    rules: Sequence[Rule] = ()
    if agent_id is not None:
        refusal = _NOT_OF_AGENT if server is None else _not_of_agent(actor, server, tool)
        if refusal:
            return RuleVerdict(Do.DENY, refusal)
        rules = server.agents[0]["rules"]
    if server is None or not server.enabled:
        return RuleVerdict(Do.DENY, "the server was switched off or removed")
    verdict = given_tool(actor, server, grants_of(server.given), tool)
    if not verdict:
        return RuleVerdict(Do.DENY, verdict.reason)
    return catalogue.decide(server, tool, rules, actor.group_rules)


_NOT_OF_AGENT = "the agent does not have this server any more"


def _not_of_agent(actor: Actor, server: _About, tool: str) -> str:
    """Why the agent does not offer this tool, of its servers or of a person's own; "" if it does."""
    agent = server.agents[0] if server.agents else None
    own = server.owner_id is not None
    if agent is None or not agent["enabled"] or not (own or server.used):
        return _NOT_OF_AGENT
    if own and not agent["user_servers"]:
        return f"the agent “{agent['name']}” does not use people's own servers any more"
    given = granted(actor, grants_of(server.agent_given))
    if not given:
        return f"The agent “{agent['name']}” is not yours to use any more. {given.reason}"
    globs = () if own else server.used[0]["tools"]
    if globs and not any(matches(glob, tool) for glob in globs):
        return "the agent does not offer this tool any more"
    return ""
