"""Agents of a configuration file: their model, servers, tools and grants by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agents.definitions import agent_findings
from agents.models import Agent, AgentServer, ModelProfile
from conversations.configuration import schema
from conversations.configuration.grants import apply_grants
from conversations.configuration.plan import FieldChange
from conversations.configuration.problems import Path
from conversations.configuration.reconciling import Scope, Surplus, wanted_values
from mcpservers.models import MCPServer

AGENT_FIELDS = (
    "description",
    "instructions",
    "starters",
    "max_rounds",
    "temperature",
    "top_p",
    "max_output_tokens",
    "reasoning_effort",
    "rules",
    "user_servers",
    "enabled",
)


def apply_agents(scope: Scope, organization: schema.Organization) -> Surplus:
    rows = Agent.objects.as_system().filter(organization=scope.organization).select_related("model__endpoint")
    stored = {row.slug: row for row in rows}
    path = (*scope.path, "agents")
    for slug, section in organization.agents.items():
        _apply_agent(scope, (*path, slug), stored.get(slug), slug, section)
    return [((*path, slug), row) for slug, row in stored.items() if slug not in organization.agents]


def _apply_agent(scope: Scope, path: Path, stored: Agent | None, slug: str, section: schema.Agent) -> None:
    message = f"there is no model “{section.model}” in this organization"
    model = scope.find("models", section.model, scope.profiles, (*path, "model"), message)
    others = _other_models(scope, path, section)
    servers = _servers(scope, path, section)
    if model is None or others is None or servers is None:
        return
    kept = slug if stored is None else stored.name
    wanted: dict[str, Any] = {"name": kept if section.name is None else section.name, "model": model}
    wanted |= wanted_values(Agent, section, AGENT_FIELDS)
    new = Agent(organization=scope.organization, slug=slug)
    row = scope.reconciler.put(path, stored, new, wanted, agent_findings)
    if row is None:
        return
    _apply_other_models(scope, path, row, others)
    _apply_servers(scope, path, row, servers)
    apply_grants(scope, path, row, section.grants)


def _other_models(scope: Scope, path: Path, section: schema.Agent) -> list[ModelProfile] | None:
    """Those wanted besides the agent's own, each once; None with the problems noted."""
    found = []
    for index, name in enumerate(section.other_models):
        message = f"there is no model “{name}” in this organization"
        model = scope.find("models", name, scope.profiles, (*path, "other_models", index), message)
        if model is None:
            return None
        found.append(model)
    return list(dict.fromkeys(found))


def _apply_other_models(scope: Scope, path: Path, agent: Agent, wanted: list[ModelProfile]) -> None:
    def names(rows: Iterable[ModelProfile]) -> list[str]:
        return sorted(f"{row.endpoint.slug}/{row.slug}" for row in rows)

    before = names(agent.other_models.select_related("endpoint"))
    after = names(wanted)
    if before != after:
        agent.other_models.set(wanted)
        scope.reconciler.note("change", path, [FieldChange("other_models", before, after)])


def _servers(scope: Scope, path: Path, section: schema.Agent) -> list[tuple[MCPServer, list[str]]] | None:
    """The servers in the file's order with the tools wanted of each; None with the problems noted."""
    known = len(scope.reconciler.problems)
    found = []
    for index, name in enumerate(section.servers):
        place, message = (*path, "servers", index), f"there is no server “{name}” in this organization"
        server = scope.find("servers", name, scope.servers, place, message)
        if name in section.servers[:index]:
            scope.reconciler.problem(place, f"“{name}” is named twice")
        if server is not None:
            found.append((server, section.tools.get(name, [])))
    for name in section.tools.keys() - set(section.servers):
        scope.reconciler.problem((*path, "tools", name), "is not one of this agent's servers")
    complete = len(found) == len(section.servers) and len(scope.reconciler.problems) == known
    return found if complete else None


def _apply_servers(scope: Scope, path: Path, agent: Agent, wanted: list[tuple[MCPServer, list[str]]]) -> None:
    before = [(item.server.slug, item.tools) for item in agent.servers.select_related("server")]
    after = [(server.slug, tools) for server, tools in wanted]
    if before == after:
        return
    agent.servers.all().delete()
    AgentServer.objects.bulk_create(
        AgentServer(agent=agent, server=server, tools=tools, position=position)
        for position, (server, tools) in enumerate(wanted)
    )
    changes = []
    if [slug for slug, _ in before] != [slug for slug, _ in after]:
        changes.append(FieldChange("servers", [slug for slug, _ in before], [slug for slug, _ in after]))
    tools_before, tools_after = ({slug: tools for slug, tools in pairs if tools} for pairs in (before, after))
    if tools_before != tools_after:
        changes.append(FieldChange("tools", tools_before, tools_after))
    scope.reconciler.note("change", path, changes)
