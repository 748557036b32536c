"""What of an agent's rules and chosen tools names no tool that its servers have: told where it is written."""

from __future__ import annotations

from collections.abc import Iterable

from accounts import rule_warnings
from agents.models import Agent
from mcpservers.known_tools import subjects_of
from mcpservers.naming import SEPARATOR
from mcpservers.tool_warnings import lost


def warnings_of(agent: Agent) -> list[str]:
    """In words for an admin; of a server whose tools were never listed nothing is said."""
    rows = list(agent.servers.select_related("server"))
    names = subjects_of(agent.organization_id, [row.server_id for row in rows])
    chosen = (
        f"Tools of “{row.server}”: {words}"
        for row in rows
        if row.tools
        for words in lost(row.tools, _of_server(row.server.slug, names))
    )
    return [*rule_warnings.warnings(agent.organization_id, agent.rules, names), *chosen]


def _of_server(slug: str, subjects: Iterable[str]) -> list[str]:
    prefix = f"{slug}{SEPARATOR}"  # no other server's: a slug has no underscore
    return [subject.removeprefix(prefix) for subject in subjects if subject.startswith(prefix)]
