"""The agents that an actor may use, and the servers among theirs: what lists show."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Prefetch

from accounts import policy
from accounts.actors import Actor
from agents.models import Agent, AgentServer
from chatui.errors import NotFoundError
from mcpservers.models import MCPServer, ServerGrant


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


def reaches(actor: Actor, grants: Iterable[ServerGrant]) -> bool:
    """Whether a server's grants give the actor the server, or any tool of it. A deny of the whole server wins."""
    rows = list(grants)
    whole = [grant for grant in rows if not grant.tool]
    single = (grant for grant in rows if grant.tool and not grant.deny)
    return bool(policy.granted(actor, whole)) or any(policy.granted(actor, [*whole, grant]) for grant in single)


def usable_server(actor: Actor, slug: str) -> MCPServer:
    """The server, if it is enabled and granted to the actor. Raises `NotFoundError`."""
    rows = MCPServer.objects.visible_to(actor).filter(enabled=True, slug=slug).prefetch_related("grants")
    server: MCPServer | None = rows.first()
    if server is None or not reaches(actor, server.grants.all()):
        raise NotFoundError(public_message="There is no such server.")
    return server
