"""What happens to one call of a server's tool: rules, approvers and standing approvals, on rows that are read now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from accounts import approvers
from accounts.actors import Actor, find_actor
from agents.models import AgentServer
from chatui.prepared import PreparedQuery
from mcpservers import catalogue
from mcpservers.approvals import Do, RuleVerdict, matches
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
_of_agent = PreparedQuery(
    lambda agent, server: AgentServer.objects.filter(agent_id=agent, server_id=server).select_related(
        "server", "agent"
    ),
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
    """The verdict on fresh rows of member, server and agent: two queries, and one or two more where somebody is asked.

    Where a person is to be asked and nobody can answer, the call is denied.
    """
    now = find_actor(actor.user_id, actor.organization_id)
    if now is None:
        return CallVerdict(Do.DENY, "you are no longer a member of this organization")
    decided = _by_rules(now, agent_id, tool)
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
    return CallVerdict(
        Do.ASK,
        f"{standing.reason} {decided.reason}".strip(),
        can_edit=decided.edit,
        can_remember=decided.remember and one_of_them and always is not None,
        approvers=None if named is None else named.people,
    )


def _by_rules(actor: Actor, agent_id: UUID | None, tool: OfferedTool) -> RuleVerdict:
    server: MCPServer | None
    if agent_id is None:
        server, rules = _server.first(tool.server_id), ()
    else:
        row = _of_agent.first(agent_id, tool.server_id)
        if row is None or not row.agent.enabled:
            return RuleVerdict(Do.DENY, "the agent does not have this server any more")
        if row.tools and not any(matches(glob, tool.name) for glob in row.tools):
            return RuleVerdict(Do.DENY, "the agent does not offer this tool any more")
        server, rules = row.server, row.agent.rules
    if server is None or not server.enabled:
        return RuleVerdict(Do.DENY, "the server was switched off or removed")
    return catalogue.decide(server, tool.name, rules, actor.group_rules)
