"""The agents that one may use, with their servers: state, tools, and what has to be set up first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.http import HttpResponse, JsonResponse

from accounts.actors import Actor
from agents.models import Agent, AgentServer, ModelProfile
from conversations.api.door import Call
from conversations.api.variables import declared_variables
from conversations.chosen_model import name_of, other_models, with_other_models
from conversations.linking.overview import Account, account_json, own_accounts
from conversations.usable import own_servers, servers_of, usable_agents
from mcpservers import catalogue
from mcpservers.approvals import Do, matches
from mcpservers.catalogue import OfferedTool, ServerState
from mcpservers.giving import reaches
from mcpservers.models import MCPServer, UserVariables
from mcpservers.oauth.whose import whose_account


async def index(call: Call) -> HttpResponse:
    """No server is connected for this: states and tools are what is known of them."""
    agents, own = await call.rows(load)
    wanted = list({row.server_id for agent in agents for row in servers_of(agent, own.servers)})
    states = {state.slug: state for state in await catalogue.server_states(call.actor, wanted)}
    return JsonResponse({"items": [agent_json(call.actor, agent, states, own) for agent in agents]})


@dataclass(frozen=True, slots=True)
class Own:
    """What a person has: servers, and by server values of its variables, accounts at it."""

    values: Mapping[UUID, Mapping[str, str]]
    accounts: Mapping[UUID, Sequence[Account]]
    servers: Sequence[MCPServer] = ()


def load(actor: Actor) -> tuple[list[Agent], Own]:
    """The usable agents, and what the actor has at their servers; a constant number of queries."""
    agents = usable_agents(actor)
    with_other_models(agents)
    mine = own_servers(actor)
    servers = {row.server_id: row.server for agent in agents for row in servers_of(agent, mine)}
    stored = UserVariables.objects.filter(user_id=actor.user_id, server__in=servers)
    values = {row.server_id: row.values for row in stored}
    return agents, Own(values, own_accounts(actor, servers.values()), mine)


def agent_json(actor: Actor, agent: Agent, states: Mapping[str, ServerState], own: Own) -> dict[str, Any]:
    rows = [row for row in servers_of(agent, own.servers) if reaches(actor, row.server, row.server.grants.all())]
    profile = agent.model
    return {
        "slug": agent.slug,
        "name": agent.name,
        "description": agent.description,
        "starters": list(agent.starters),
        "model": model_json(profile),
        "other_models": [model_json(other) for other in other_models(agent)],
        "servers": [server_json(actor, agent, row, states.get(row.server.slug), own) for row in rows],
    }


def model_json(profile: ModelProfile) -> dict[str, Any]:
    return {
        "name": name_of(profile),
        "title": profile.title or profile.name,
        "images": profile.images,
        "tools": profile.tools,
    }


def server_json(actor: Actor, agent: Agent, row: AgentServer, state: ServerState | None, own: Own) -> dict[str, Any]:
    """A server as this agent uses it: only the tools that the agent takes of it, decided by its rules too."""
    tools = state.tools if state else ()
    return {
        "slug": row.server.slug,
        "title": row.server.title,
        "description": row.server.description,
        "own": row.server.owner_id is not None,
        "state": state.state if state else "unknown",
        "message": state.message if state else "",
        "retry_at": state.retry_at.isoformat() if state and state.retry_at else None,
        "tools": [tool_json(actor, agent, row, tool) for tool in tools if _takes(row.tools, tool.name)],
        "variables": declared_variables(row.server, own.values.get(row.server_id, {})),
        "identity": whose_account(row.server).value,
        "accounts": [account_json(account) for account in own.accounts.get(row.server_id, ())],
    }


def tool_json(actor: Actor, agent: Agent, row: AgentServer, tool: OfferedTool) -> dict[str, Any]:
    """`withheld` says why the model is not shown the tool; empty for one that it is. `notes` tell what was repaired."""
    decided = catalogue.decide(row.server, tool.name, agent.rules, actor.group_rules)
    denied = decided.reason if decided.do is Do.DENY else ""
    return {
        "name": tool.name,
        "title": tool.title or tool.name,
        "description": tool.description,
        "decision": decided.do.value,
        "withheld": tool.withheld or denied,
        "pin": tool.state.value,
        "notes": list(tool.definition.notes),
    }


def _takes(globs: Sequence[str], tool: str) -> bool:
    return not globs or any(matches(glob, tool) for glob in globs)
