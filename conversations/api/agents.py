"""The agents that one may use, with their servers: state, tools, and what has to be set up first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.http import HttpResponse, JsonResponse

from accounts.actors import Actor
from agents.models import Agent, AgentServer
from conversations.api.door import Call
from conversations.api.variables import declared_variables
from conversations.usable import reaches, usable_agents
from mcpservers import catalogue
from mcpservers.approvals import Do, matches
from mcpservers.catalogue import OfferedTool, ServerState
from mcpservers.models import UserVariables


async def index(call: Call) -> HttpResponse:
    """No server is connected for this: states and tools are what is known of them."""
    agents, values = await call.rows(load)
    wanted = list({row.server_id for agent in agents for row in agent.servers.all()})
    states = {state.slug: state for state in await catalogue.server_states(call.actor, wanted)}
    return JsonResponse({"items": [agent_json(call.actor, agent, states, values) for agent in agents]})


def load(actor: Actor) -> tuple[list[Agent], dict[UUID, Mapping[str, str]]]:
    """The usable agents, and the actor's variables by server; a constant number of queries."""
    agents = usable_agents(actor)
    servers = {row.server_id for agent in agents for row in agent.servers.all()}
    stored = UserVariables.objects.filter(user_id=actor.user_id, server__in=servers)
    return agents, {row.server_id: row.values for row in stored}


def agent_json(
    actor: Actor, agent: Agent, states: Mapping[str, ServerState], values: Mapping[UUID, Mapping[str, str]]
) -> dict[str, Any]:
    rows = [row for row in agent.servers.all() if reaches(actor, row.server.grants.all())]
    profile = agent.model
    return {
        "slug": agent.slug,
        "name": agent.name,
        "description": agent.description,
        "starters": list(agent.starters),
        "model": {"title": profile.title or profile.name, "images": profile.images, "tools": profile.tools},
        "servers": [
            server_json(actor, agent, row, states.get(row.server.slug), values.get(row.server_id, {})) for row in rows
        ],
    }


def server_json(
    actor: Actor, agent: Agent, row: AgentServer, state: ServerState | None, values: Mapping[str, str]
) -> dict[str, Any]:
    """A server as this agent uses it: only the tools that the agent takes of it, decided by its rules too."""
    tools = state.tools if state else ()
    return {
        "slug": row.server.slug,
        "title": row.server.title,
        "description": row.server.description,
        "state": state.state if state else "unknown",
        "message": state.message if state else "",
        "tools": [tool_json(actor, agent, row, tool) for tool in tools if _takes(row.tools, tool.name)],
        "variables": declared_variables(row.server, values),
    }


def tool_json(actor: Actor, agent: Agent, row: AgentServer, tool: OfferedTool) -> dict[str, Any]:
    """`withheld` says why the model is not shown the tool; empty for one that it is."""
    decided = catalogue.decide(row.server, tool.name, agent.rules, actor.group_rules)
    denied = decided.reason if decided.do is Do.DENY else ""
    return {
        "name": tool.name,
        "title": tool.title or tool.name,
        "description": tool.description,
        "decision": decided.do.value,
        "withheld": tool.withheld or denied,
    }


def _takes(globs: Sequence[str], tool: str) -> bool:
    return not globs or any(matches(glob, tool) for glob in globs)
