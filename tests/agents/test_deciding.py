"""The verdict at a call: every row that has a say is read at that moment, in at most three queries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.actors import Actor, find_actor
from accounts.models import ApiKey, Group, Membership, Organization, Role, User
from agents.deciding import Always, CallVerdict, ThroughAgent, decide_call, why_withdrawn
from agents.models import Agent, AgentGrant, AgentServer
from conversations.models import StandingApproval
from conversations.standing import CHANGED, always_of
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


def in_many_groups(actor: Actor, agent: Agent, server: MCPServer) -> None:
    for number in range(20):
        group = Group.objects.create(organization_id=actor.organization_id, slug=f"group-{number}")
        group.memberships.add(Membership.objects.get(user=actor.user_id))
        ServerGrant.objects.create(server=server, group=group)
        AgentGrant.objects.create(agent=agent, group=group)


def always_allowed(actor: Actor, server: MCPServer, name: str, definition: str = "p") -> Always:
    """What the actor has always allowed: this tool, in whichever chat."""
    StandingApproval.objects.create(
        organization_id=actor.organization_id,
        user_id=actor.user_id,
        server=server,
        tool=name,
        scope=StandingApproval.Scope.ALWAYS,
        definition=definition,
    )
    return always_of(actor.user_id, uuid4(), uuid4())


def approved_by(server: MCPServer, *names: str) -> None:
    server.rules = [{"tool": "read", "do": "allow"}, {"tool": "w", "do": "ask", "approvers": list(names)}]
    server.save()


def test_the_verdict_at_a_call_takes_at_most_three_queries(actor: Actor, agent: Agent, server: MCPServer) -> None:
    in_many_groups(actor, agent, server)
    nothing = always_of(actor.user_id, uuid4(), agent.pk)

    def verdict(name: str, always: Always | None = nothing, agent_id: UUID | None = agent.pk) -> CallVerdict:
        return counted(at_most=AT_MOST, verdict=lambda: decide_call(actor, agent_id, tool(server, name), always=always))

    assert verdict("read").do is Do.ALLOW
    assert verdict("w").do is Do.ASK
    assert verdict("w", None).do is Do.ASK
    assert verdict("w", agent_id=None).do is Do.ASK
    approved_by(server, "bob", "group:group-3", "alice")
    named = verdict("w")
    assert (named.do, named.can_remember) == (Do.ASK, True)
    assert set((named.approvers or {}).values()) == {"bob"}
    kept = verdict("w", always_allowed(actor, server, "w"))
    assert (kept.do, kept.reason) == (Do.ALLOW, "You always allow this tool.")
    approved_by(server, "alice")
    assert verdict("w", nothing).do is Do.DENY  # who is no member of the organization here
    approved_by(server)
    assert verdict("w", always_allowed(actor, server, "w")).do is Do.ALLOW
    AgentGrant.objects.create(agent=agent, user_id=actor.user_id, deny=True)
    denied = verdict("read")
    assert denied.do is Do.DENY
    assert "It is denied to you." in denied.reason


def test_so_does_that_on_a_server_of_ones_own(actor: Actor, agent: Agent, organization: Organization) -> None:
    Organization.objects.filter(pk=organization.pk).update(own_servers=Organization.OwnServers.MEMBERS)
    Agent.objects.as_system().filter(pk=agent.pk).update(user_servers=True)
    own = MCPServer.objects.create(
        organization=organization,
        owner_id=actor.user_id,
        slug="my-notes",
        title="Mine",
        url="https://notes.example/mcp",
    )
    nothing = always_of(actor.user_id, uuid4(), agent.pk)
    asked = counted(at_most=AT_MOST, verdict=lambda: decide_call(actor, agent.pk, tool(own, "w"), always=nothing))
    assert asked.do is Do.ASK, asked.reason
    always = always_allowed(actor, own, "w")
    kept = counted(at_most=AT_MOST, verdict=lambda: decide_call(actor, agent.pk, tool(own, "w"), always=always))
    assert kept.do is Do.ALLOW
    for change, words in (
        (lambda: Agent.objects.as_system().update(user_servers=False), "does not use people's own servers"),
        (lambda: AgentGrant.objects.all().delete(), "not yours to use"),
        (lambda: Organization.objects.update(own_servers="nobody"), "does not let its members"),
        (lambda: MCPServer.objects.as_system().filter(pk=own.pk).update(enabled=False), "switched off"),
        (lambda: MCPServer.objects.as_system().filter(pk=own.pk).update(owner=None), "does not have this server"),
    ):
        undo = transaction.savepoint()
        change()
        denied = decide_call(actor, agent.pk, tool(own, "w"), always=always)
        assert (denied.do, words in denied.reason) == (Do.DENY, True), denied.reason
        transaction.savepoint_rollback(undo)
    assert decide_call(actor, agent.pk, tool(own, "w"), always=always).do is Do.ALLOW


def test_who_is_among_the_approvers_and_always_allows_it_is_not_asked_and_nobody_else_decides_that(
    actor: Actor, agent: Agent, server: MCPServer, alice: User, organization: Organization
) -> None:
    always = always_allowed(actor, server, "w")
    approved_by(server, "bob", "alice")
    assert decide_call(actor, agent.pk, tool(server, "w"), always=always).do is Do.ALLOW
    StandingApproval.objects.as_system().update(definition="of-another")
    asked = decide_call(actor, agent.pk, tool(server, "w"), always=always)
    assert asked.do is Do.ASK
    assert asked.reason.startswith(CHANGED)
    StandingApproval.objects.as_system().update(definition="p")
    approved_by(server, "alice")
    Membership.objects.get_or_create(user=alice, organization=organization)
    asked = decide_call(actor, agent.pk, tool(server, "w"), always=always)
    assert (asked.do, asked.can_remember) == (Do.ASK, False)


def test_so_does_the_look_at_the_rows_with_which_it_is_made(actor: Actor, agent: Agent, server: MCPServer) -> None:
    in_many_groups(actor, agent, server)
    through = ThroughAgent(agent.pk)
    authorize_call(actor, server.pk, "read", through=through)
    with CaptureQueriesContext(connection) as queries:
        assert authorize_call(actor, server.pk, "read", through=through).allowed
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
    ServerGrant.objects.create(server=server, user=bob)  # as a guest too
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
