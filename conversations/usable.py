"""The agents that an actor may use, with what lists of them show."""

from __future__ import annotations

from django.db.models import Prefetch

from accounts import policy
from accounts.actors import Actor
from agents.models import Agent, AgentServer
from mcpservers.models import MCPServer


def usable_agents(actor: Actor) -> list[Agent]:
    """Enabled agents that are granted to the actor, each with `model`, and `servers` that are enabled with theirs.

    A constant number of queries: agents, their grants, their servers, those servers' grants.
    """
    servers = (
        AgentServer.objects.filter(server__in=MCPServer.objects.visible_to(actor).filter(enabled=True))
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
