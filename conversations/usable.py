"""The agents that an actor may use, and the servers among theirs: what lists show."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Prefetch

from accounts import policy
from accounts.actors import Actor
from agents.models import Agent, AgentServer
from chatui.errors import NotFoundError
from mcpservers.giving import reaches
from mcpservers.models import MCPServer


def usable_agents(actor: Actor) -> list[Agent]:
    """Enabled agents that are granted to the actor, each with its `model`, and its `servers` with their grants.

    A constant number of queries: agents, their grants, their servers, those servers' grants.
    """
    servers = (
        AgentServer.objects.filter(server__in=MCPServer.objects.visible_to(actor))
        .select_related("server")
        .prefetch_related("server__grants")
    )
    agents = (
        Agent.objects.visible_to(actor)
        .filter(enabled=True)
        .select_related("model__endpoint")
        .prefetch_related("grants", Prefetch("servers", servers))
    )
    return [agent for agent in agents if policy.granted(actor, agent.grants.all())]


def own_servers(actor: Actor) -> list[MCPServer]:
    """The enabled servers of the actor's own, which agents with `user_servers` offer besides theirs. One query."""
    if not policy.may_have_servers(actor):
        return []
    rows = MCPServer.objects.visible_to(actor).filter(owner=actor.user_id, enabled=True)
    return list(rows.prefetch_related("grants"))


def servers_of(agent: Agent, own: Iterable[MCPServer]) -> list[AgentServer]:
    """The servers of `agent` (of `usable_agents`) in their order, then the person's `own`, where it uses those."""
    rows = list(agent.servers.all())
    return rows + [AgentServer(agent=agent, server=server) for server in own] if agent.user_servers else rows


def usable_server(actor: Actor, slug: str) -> MCPServer:
    """The server, if it is enabled and granted to the actor. Raises `NotFoundError`."""
    rows = MCPServer.objects.visible_to(actor).filter(enabled=True, slug=slug).prefetch_related("grants")
    server: MCPServer | None = rows.first()
    if server is None or not reaches(actor, server, server.grants.all()):
        raise NotFoundError(public_message="There is no such server.")
    return server
