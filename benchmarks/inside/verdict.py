"""The verdict at a call, for somebody in 20 groups, each of which is granted the server and the agent: rows alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from accounts.models import Group, Membership
from agents.deciding import Standing, decide_call
from agents.models import Agent, AgentGrant, AgentServer
from benchmarks.figures import median
from benchmarks.inside.rows import Queries, somebody
from conversations.standing import always_of
from mcpservers.approvals import Do
from mcpservers.authorizing import authorize_call
from mcpservers.entries import Definition
from mcpservers.models import MCPServer, ServerGrant
from mcpservers.offers import OfferedTool

GROUPS = 20
TIMES = 300


def _prepared() -> tuple[Any, Agent, MCPServer]:
    actor, _ = somebody()
    agent = Agent.objects.as_system().get(slug="first")
    server = MCPServer.objects.create(
        organization_id=actor.organization_id,
        slug="verdict",
        title="Verdict",
        url="http://127.0.0.1:9/mcp",
        rules=[{"tool": "read", "do": "allow"}],
    )
    AgentServer.objects.create(agent=agent, server=server)
    ServerGrant.objects.create(server=server, whole_organization=True)
    membership = Membership.objects.get(user=actor.user_id, organization=actor.organization_id)
    for number in range(GROUPS):
        group = Group.objects.create(organization_id=actor.organization_id, slug=f"verdict-{number}")
        group.memberships.add(membership)
        ServerGrant.objects.create(server=server, group=group)
        AgentGrant.objects.create(agent=agent, group=group)
    return actor, agent, server


def _tool(server: MCPServer, name: str) -> OfferedTool:
    definition = Definition(f"{server.slug}__{name}", name, name, "", {}, {}, None, {}, pin="p")
    return OfferedTool(server.pk, server.slug, server.title, definition, Do.ALLOW, "")


def measure() -> dict[str, float]:
    """Medians in milliseconds and the queries: of what is `decided` of a call, and `authorized` when it is made.

    `asked` are the queries of a verdict that asks a person, who has allowed nothing for good.
    """
    queries = Queries()
    actor, agent, server = _prepared()
    always: Callable[[UUID, str, str], Standing] = always_of(actor.user_id, agent.pk, agent.pk)
    read, write = _tool(server, "read"), _tool(server, "write")
    assert decide_call(actor, agent.pk, read, always=always).do is Do.ALLOW
    assert decide_call(actor, agent.pk, write, always=always).do is Do.ASK
    assert authorize_call(actor, server.pk, "read").allowed
    found: dict[str, float] = {}
    for name, work in (
        ("decided", lambda: decide_call(actor, agent.pk, read, always=always)),
        ("authorized", lambda: authorize_call(actor, server.pk, "read")),
        ("asked", lambda: decide_call(actor, agent.pk, write, always=always)),
    ):
        took = []
        for _ in range(TIMES):
            with queries.taken() as noted:
                began = time.perf_counter()
                work()
                took.append((time.perf_counter() - began) * 1000)
        found[name], found[f"{name}_queries"] = median(took), len(noted)
    return found
