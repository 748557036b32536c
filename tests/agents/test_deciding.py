"""The verdict at a call: every row that has a say is read at that moment, in at most three queries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.actors import Actor, find_actor
from accounts.models import ApiKey, Group, Membership, Organization, Role, User
from agents.deciding import CallVerdict, Standing, decide_call, why_withdrawn
from agents.models import Agent, AgentGrant, AgentServer
from mcpservers.approvals import Do
from mcpservers.authorizing import authorize_call
from mcpservers.entries import Definition
from mcpservers.models import MCPServer, ServerGrant
from mcpservers.offers import OfferedTool

AT_MOST = 3


@pytest.fixture
def server(organization: Organization) -> MCPServer:
    made: MCPServer = MCPServer.objects.create(
        organization=organization,
        slug="notes",
        title="Notes",
        url="http://127.0.0.1:9/mcp",
        rules=[{"tool": "read", "do": "allow"}],
    )
    ServerGrant.objects.create(server=made, whole_organization=True)
    return made


@pytest.fixture
def agent(organization: Organization, server: MCPServer, make_agent: Callable[..., Agent]) -> Agent:
    return make_agent(organization, servers=[server])


@pytest.fixture
def actor(bob: User, actor_of: Callable[[User], Actor]) -> Actor:
    """Bob, who is in many groups, each of which is granted the server and the agent."""
    return actor_of(bob)


def tool(server: MCPServer, name: str = "read") -> OfferedTool:
    definition = Definition(f"notes__{name}", name, name, "", {}, {}, None, {}, pin="p")
    return OfferedTool(server.pk, server.slug, server.title, definition, Do.ALLOW, "")


def counted(*, at_most: int, verdict: Callable[[], CallVerdict]) -> CallVerdict:
    verdict()  # whose queries are written once
    with CaptureQueriesContext(connection) as queries:
        decided = verdict()
    assert len(queries) <= at_most, [query["sql"] for query in queries]
    return decided


def always(server_id: UUID, tool: str, pin: str) -> Standing:
    assert Membership.objects.exists()  # one query, as the real one
    return Standing(True, "You always allow this tool.")


def in_many_groups(actor: Actor, agent: Agent, server: MCPServer) -> None:
    for number in range(20):
        group = Group.objects.create(organization_id=actor.organization_id, slug=f"group-{number}")
        group.memberships.add(Membership.objects.get(user=actor.user_id))
        ServerGrant.objects.create(server=server, group=group)
        AgentGrant.objects.create(agent=agent, group=group)


def test_the_verdict_at_a_call_takes_at_most_three_queries(actor: Actor, agent: Agent, server: MCPServer) -> None:
    in_many_groups(actor, agent, server)
    allowed = counted(at_most=AT_MOST, verdict=lambda: decide_call(actor, agent.pk, tool(server)))
    assert allowed.do is Do.ALLOW
    kept = counted(at_most=AT_MOST, verdict=lambda: decide_call(actor, agent.pk, tool(server, "w"), always=always))
    assert kept.do is Do.ALLOW
    asked = counted(at_most=AT_MOST, verdict=lambda: decide_call(actor, agent.pk, tool(server, "w")))
    assert asked.do is Do.ASK
    AgentGrant.objects.create(agent=agent, user_id=actor.user_id, deny=True)
    denied = counted(at_most=AT_MOST, verdict=lambda: decide_call(actor, agent.pk, tool(server)))
    assert denied.do is Do.DENY
    assert "It is denied to you." in denied.reason


def test_so_does_the_look_at_the_rows_with_which_it_is_made(actor: Actor, agent: Agent, server: MCPServer) -> None:
    in_many_groups(actor, agent, server)
    authorize_call(actor, server.pk, "read")
    with CaptureQueriesContext(connection) as queries:
        assert authorize_call(actor, server.pk, "read").allowed
    assert len(queries) <= AT_MOST, [query["sql"] for query in queries]


def test_a_key_costs_no_query_more_and_ends_with_its_revocation(
    actor: Actor, agent: Agent, server: MCPServer, bob: User, organization: Organization
) -> None:
    key, _ = ApiKey.issue(user=bob, organization=organization)
    with_key = replace(actor, key_id=key.pk)
    allowed = counted(at_most=AT_MOST, verdict=lambda: decide_call(with_key, agent.pk, tool(server)))
    assert allowed.do is Do.ALLOW
    ApiKey.objects.filter(pk=key.pk).update(revoked_at=timezone.now())
    for reason in (
        decide_call(with_key, agent.pk, tool(server)).reason,
        authorize_call(with_key, server.pk, "read").reason,
        why_withdrawn(with_key, agent.pk, server.pk, "read"),
    ):
        assert reason == "The API key that this was started with is not valid any more."
    assert decide_call(actor, agent.pk, tool(server)).do is Do.ALLOW


def test_a_key_of_somebody_else_or_of_another_organization_is_none(
    actor: Actor, agent: Agent, server: MCPServer, bob: User, alice: User, other_organization: Organization
) -> None:
    Membership.objects.create(user=bob, organization=other_organization)
    others = [
        ApiKey.issue(user=alice, organization=agent.organization)[0],
        ApiKey.issue(user=bob, organization=other_organization)[0],
    ]
    for key in others:
        assert decide_call(replace(actor, key_id=key.pk), agent.pk, tool(server)).do is Do.DENY


@pytest.mark.parametrize("whom", ["organization", "group", "user"])
def test_grants_of_the_agent_count_as_those_of_a_server_do(
    whom: str, actor: Actor, agent: Agent, server: MCPServer, alice: User, bob: User
) -> None:
    group = Group.objects.create(organization_id=actor.organization_id, slug="writers")
    group.memberships.add(Membership.objects.get(user=bob))
    names = {"organization": {"whole_organization": True}, "group": {"group": group}, "user": {"user": bob}}[whom]
    AgentGrant.objects.all().delete()
    AgentGrant.objects.create(agent=agent, user=alice)  # of somebody else
    AgentGrant.objects.create(agent=agent, user=alice, deny=True)

    def verdict() -> CallVerdict:
        now = find_actor(bob.pk, actor.organization_id)
        assert now is not None
        return decide_call(now, agent.pk, tool(server))

    assert verdict().do is Do.DENY
    grant = AgentGrant.objects.create(agent=agent, **names)
    assert verdict().do is Do.ALLOW
    Membership.objects.filter(user=bob).update(role=Role.GUEST)
    assert verdict().do is (Do.DENY if whom == "organization" else Do.ALLOW)
    Membership.objects.filter(user=bob).update(role=Role.MEMBER)
    AgentGrant.objects.filter(pk=grant.pk).update(deny=True)
    AgentGrant.objects.create(agent=agent, whole_organization=True)
    assert verdict().do is Do.DENY


def test_nobody_is_asked_for_what_would_be_refused_anyway(actor: Actor, agent: Agent, server: MCPServer) -> None:
    assert decide_call(actor, agent.pk, tool(server, "write")).do is Do.ASK
    ServerGrant.objects.create(server=server, user_id=actor.user_id, deny=True)
    decided = decide_call(actor, agent.pk, tool(server, "write"))
    assert (decided.do, decided.reason) == (Do.DENY, "It is denied to you.")
    ServerGrant.objects.filter(deny=True).delete()
    Membership.objects.filter(user=actor.user_id).update(role=Role.AUDITOR)
    decided = decide_call(actor, agent.pk, tool(server, "write"))
    assert (decided.do, decided.reason) == (Do.DENY, "The role Auditor does not include “call_tool”.")


def test_what_was_withdrawn_is_explained_and_what_is_merely_away_is_not(
    actor: Actor, agent: Agent, server: MCPServer
) -> None:
    assert why_withdrawn(actor, agent.pk, server.pk, "read") == ""
    ServerGrant.objects.all().delete()
    assert why_withdrawn(actor, agent.pk, server.pk, "read") == "It is not granted to you."
    AgentServer.objects.all().delete()
    assert "does not have this server" in why_withdrawn(actor, agent.pk, server.pk, "read")
    Membership.objects.all().delete()
    assert "no longer a member" in why_withdrawn(actor, agent.pk, server.pk, "read")
