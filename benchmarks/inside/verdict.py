"""The verdict at a call, for somebody in 20 groups, each of which is granted the server and the agent: rows alone."""

from __future__ import annotations

import time
from typing import Any

from accounts.models import Group, Membership, Organization
from agents.deciding import ThroughAgent, decide_call
from agents.models import Agent, AgentGrant, AgentServer
from benchmarks.figures import median
from benchmarks.inside.rows import Queries, somebody
from conversations.models import StandingApproval
from conversations.standing import always_of
from mcpservers.approvals import Do
from mcpservers.authorizing import authorize_call
from mcpservers.entries import Definition
from mcpservers.models import MCPServer, ServerGrant
from mcpservers.offers import OfferedTool

GROUPS = 20
TIMES = 300


def _prepared() -> tuple[Any, Agent, MCPServer, MCPServer]:
    actor, _ = somebody()
    agent = Agent.objects.as_system().get(slug="first")
    server = MCPServer.objects.create(
        organization_id=actor.organization_id,
        slug="verdict",
        title="Verdict",
        url="http://127.0.0.1:9/mcp",
        rules=[{"tool": "read", "do": "allow"}, {"tool": "named", "do": "ask", "approvers": [actor.username]}],
    )
    Organization.objects.filter(pk=actor.organization_id).update(own_servers=Organization.OwnServers.MEMBERS)
    Agent.objects.as_system().filter(pk=agent.pk).update(user_servers=True)
    own = MCPServer.objects.create(
        organization_id=actor.organization_id, owner_id=actor.user_id, slug="my-verdict", title="Own", url=server.url
    )
    always = {"user_id": actor.user_id, "server": server, "tool": "kept", "scope": StandingApproval.Scope.ALWAYS}
    StandingApproval.objects.create(organization_id=actor.organization_id, definition="p", **always)
    AgentServer.objects.create(agent=agent, server=server)
    ServerGrant.objects.create(server=server, whole_organization=True)
    membership = Membership.objects.get(user=actor.user_id, organization=actor.organization_id)
    for number in range(GROUPS):
        group = Group.objects.create(organization_id=actor.organization_id, slug=f"verdict-{number}")
        group.memberships.add(membership)
        ServerGrant.objects.create(server=server, group=group)
        AgentGrant.objects.create(agent=agent, group=group)
    return actor, agent, server, own


def _tool(server: MCPServer, name: str) -> OfferedTool:
    definition = Definition(f"{server.slug}__{name}", name, name, "", {}, {}, None, {}, pin="p")
    return OfferedTool(server.pk, server.slug, server.title, definition, Do.ALLOW, "")


def measure() -> dict[str, float]:
    """Medians in milliseconds and the queries: of what is `decided` of a call, and `authorized` when it is made.

    `most_queries` are those of the dearest verdict: where a person is asked, who has (`kept`) or has not (`asked`)
    allowed it for good, where approvers are (`approved`), and on a server of one's own (`own`).
    """
    queries = Queries()
    actor, agent, server, own = _prepared()
    always = always_of(actor.user_id, agent.pk, agent.pk)
    read, write = _tool(server, "read"), _tool(server, "write")
    named, kept, mine = _tool(server, "named"), _tool(server, "kept"), _tool(own, "write")
    assert decide_call(actor, agent.pk, read, always=always).do is Do.ALLOW
    assert decide_call(actor, agent.pk, kept, always=always).do is Do.ALLOW
    for asking in (write, named, mine):
        assert decide_call(actor, agent.pk, asking, always=always).do is Do.ASK
    through = ThroughAgent(agent.pk)
    assert authorize_call(actor, server.pk, "read", through=through).allowed
    found: dict[str, float] = {}
    for name, work in (
        ("decided", lambda: decide_call(actor, agent.pk, read, always=always)),
        ("authorized", lambda: authorize_call(actor, server.pk, "read", through=through)),
        ("asked", lambda: decide_call(actor, agent.pk, write, always=always)),
        ("kept", lambda: decide_call(actor, agent.pk, kept, always=always)),
        ("approved", lambda: decide_call(actor, agent.pk, named, always=always)),
        ("own", lambda: decide_call(actor, agent.pk, mine, always=always)),
    ):
        took = []
        for _ in range(TIMES):
            with queries.taken() as noted:
                began = time.perf_counter()
                work()
                took.append((time.perf_counter() - began) * 1000)
        found[name], found[f"{name}_queries"] = median(took), len(noted)
    found["most_queries"] = max(value for name, value in found.items() if name.endswith("_queries"))
    return found
