"""What in a file cannot be meant as things are: patterns without a tool, rules that decide nothing, lost approvers."""

from __future__ import annotations

from accounts import rule_warnings
from agents import tool_warnings as of_agents
from agents.models import Agent
from conversations.configuration import schema
from conversations.configuration.problems import dotted
from conversations.configuration.reconciling import Scope
from mcpservers import tool_warnings as of_servers
from mcpservers.known_tools import subjects_of


def note_warnings(scope: Scope, section: schema.Organization) -> None:
    """Note for the operator what the admin warns of, of all that the file names. Nothing is refused for it."""
    notes = scope.reconciler.plan.notes
    names = subjects_of(scope.organization.pk)
    for slug in section.groups:
        group = scope.groups.get(slug)
        if group is not None:
            found = rule_warnings.warnings(scope.organization.pk, group.rules, names)
            notes += [f"{dotted((*scope.path, 'groups', slug))}: {words}" for words in found]
    for slug in section.servers:
        server = scope.servers.get(slug)
        if server is not None:
            found = of_servers.warnings_of(server)
            notes += [f"{dotted((*scope.path, 'servers', slug))}: {words}" for words in found]
    agents = Agent.objects.as_system().filter(organization=scope.organization, slug__in=list(section.agents))
    for agent in agents.order_by("slug"):
        place = dotted((*scope.path, "agents", agent.slug))
        notes += [f"{place}: {words}" for words in of_agents.warnings_of(agent)]
