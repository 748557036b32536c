"""What happens to one call of a server's tool: rules, approvers and standing approvals, on rows that are read now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import F, FilteredRelation, Q

from accounts import approvers
from accounts.actors import Actor, refreshed, why_gone
from accounts.policy import Action, Verdict, allows, granted, may_have_servers
from agents.models import Agent, AgentGrant, AgentServer
from chatui.prepared import PreparedQuery
from mcpservers import catalogue
from mcpservers.approvals import Do, RuleVerdict, matches
from mcpservers.authorizing import grant_refusal
from mcpservers.catalogue import OfferedTool
from mcpservers.models import MCPServer

NOBODY_PRESENT = (
    "this tool needs a person's approval, and nobody is present to give it. "
    "An admin can allow it by a rule of the server or the agent."
)


@dataclass(frozen=True, slots=True)
class Standing:
    """What a person's earlier *Always allow* says: whether it holds for this definition, and that in words."""

    holds: bool = False
    reason: str = ""


# (server, tool, pin of its definition) → what the person has said of it before; row work.
Always = Callable[[UUID, str, str], Standing]


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


_server = PreparedQuery(lambda server: MCPServer.objects.as_system().filter(pk=server), UUID)
_SAY = (
    "tools",
    "agent__name",
    "agent__enabled",
    "agent__rules",
    "server__slug",
    "server__enabled",
    "server__rules",
    "server__read_only",
)
# A row for each of the agent's grants that may concern the user, one without any where there is none.
_of_agent = PreparedQuery(
    lambda agent, server, user: (
        AgentServer.objects.filter(agent_id=agent, server_id=server)
        .annotate(
            given=FilteredRelation(
                "agent__grants", condition=Q(agent__grants__user=None) | Q(agent__grants__user_id=user)
            ),
            grant=F("given__pk"),
            grant_whole=F("given__whole_organization"),
            grant_group=F("given__group_id"),
            grant_user=F("given__user_id"),
            grant_deny=F("given__deny"),
        )
        .select_related("server", "agent")
        .only(*_SAY)  # to decrypt a server's secrets for each of the rows would take longer than all the rest
    ),
    UUID,
    UUID,
    UUID,
)


def decide_call(
    actor: Actor,
    agent_id: UUID | None,
    tool: OfferedTool,
    *,
    present: bool = True,
    always: Always | None = None,
) -> CallVerdict:
    """The verdict on fresh rows of member (and key), agent, its grants, and server: two queries, three with `always`.

    Before somebody is asked, the server's grants are looked at too (a call reads them anyway), and who may approve:
    one or two more. Where a person is to be asked and nobody can answer, the call is denied.
    """
    now = refreshed(actor)
    if now is None:
        return CallVerdict(Do.DENY, why_gone(actor))
    may = allows(now, Action.CALL_TOOL)
    decided = _by_rules(now, agent_id, tool.server_id, tool.name) if may else RuleVerdict(Do.DENY, may.reason)
    if decided.do is not Do.ASK:
        return CallVerdict(decided.do, decided.reason)
    if not present:
        return CallVerdict(Do.DENY, NOBODY_PRESENT)
    named = approvers.resolve(now.organization_id, decided.approvers) if decided.approvers else None
    if named is not None and not named.people:
        return CallVerdict(Do.DENY, f"nobody can approve this call: {named.problem}. Ask an admin to change the rule.")
    one_of_them = named is None or now.user_id in named.people
    standing = Standing()
    if always is not None and decided.remember and one_of_them:
        standing = always(tool.server_id, tool.name, tool.definition.pin)
    if standing.holds:
        return CallVerdict(Do.ALLOW, standing.reason)
    refusal = grant_refusal(now, tool.server_id, tool.name)
    if refusal:
        return CallVerdict(Do.DENY, refusal)
    return CallVerdict(
        Do.ASK,
        f"{standing.reason} {decided.reason}".strip(),
        can_edit=decided.edit,
        can_remember=decided.remember and one_of_them and always is not None,
        approvers=None if named is None else named.people,
    )


def why_withdrawn(actor: Actor, agent_id: UUID | None, server_id: UUID, tool: str) -> str:
    """Why a tool that was offered may not be any more, for a person; "" if it may (its server is away, say).

    Three queries.
    """
    now = refreshed(actor)
    if now is None:
        return why_gone(actor)
    decided = _by_rules(now, agent_id, server_id, tool)
    if decided.do is Do.DENY:
        return decided.reason
    return grant_refusal(now, server_id, tool)


def _by_rules(actor: Actor, agent_id: UUID | None, server_id: UUID, tool: str) -> RuleVerdict:
    server: MCPServer | None
    if agent_id is None:
        server, rules = _server.first(server_id), ()
    else:
        rows = _of_agent(agent_id, server_id, actor.user_id)
        if not rows and (own := _of_own(actor, agent_id, server_id, tool)) is not None:
            return own
        if not rows or not rows[0].agent.enabled:
            return RuleVerdict(Do.DENY, "the agent does not have this server any more")
        row = rows[0]
        given = granted(actor, [_grant(row) for row in rows if row.grant is not None])
        if not given:
            return _not_yours(row.agent, given)
        if row.tools and not any(matches(glob, tool) for glob in row.tools):
            return RuleVerdict(Do.DENY, "the agent does not offer this tool any more")
        server, rules = row.server, row.agent.rules
    if server is None or not server.enabled:
        return RuleVerdict(Do.DENY, "the server was switched off or removed")
    return catalogue.decide(server, tool, rules, actor.group_rules)


def _not_yours(agent: Agent, verdict: Verdict) -> RuleVerdict:
    return RuleVerdict(Do.DENY, f"The agent “{agent.name}” is not yours to use any more. {verdict.reason}")


def _of_own(actor: Actor, agent_id: UUID, server_id: UUID, tool: str) -> RuleVerdict | None:
    """The verdict on a server of the person's own, which no agent has; None if it is none. Three queries."""
    own = MCPServer.objects.visible_to(actor).filter(pk=server_id, owner=actor.user_id)
    server: MCPServer | None = own.defer("headers", "env", "oauth").first()
    agents = Agent.objects.visible_to(actor).filter(pk=agent_id, enabled=True)
    agent: Agent | None = agents.prefetch_related("grants").first() if server is not None else None
    if server is None or agent is None:
        return None
    if not agent.user_servers:
        return RuleVerdict(Do.DENY, f"the agent “{agent.name}” does not use people's own servers any more")
    if not (given := granted(actor, agent.grants.all())):
        return _not_yours(agent, given)
    if not (may := may_have_servers(actor)):
        return RuleVerdict(Do.DENY, may.reason)
    if not server.enabled:
        return RuleVerdict(Do.DENY, "the server was switched off")
    return catalogue.decide(server, tool, agent.rules, actor.group_rules)


def _grant(row: Any) -> AgentGrant:
    return AgentGrant(
        whole_organization=row.grant_whole, group_id=row.grant_group, user_id=row.grant_user, deny=row.grant_deny
    )
