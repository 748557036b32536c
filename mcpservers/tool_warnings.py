"""What of a server's rules, read-only tools and grants names no tool that it has: told where it is written."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from accounts import rule_warnings
from mcpservers.approvals import matches
from mcpservers.known_tools import names_of
from mcpservers.models import MCPServer


def warnings_of(server: MCPServer) -> list[str]:
    """In words for an admin; a server whose tools were never listed has none of patterns without a tool."""
    names = names_of(server)
    grants = server.grants.exclude(tool="").order_by("tool").values_list("tool", flat=True)
    return [
        *rule_warnings.warnings(server.organization_id, server.rules, names),
        *(f"Read-only tools: {words}" for words in lost(server.read_only, names)),
        *(f"Grants: {words}" for words in lost(grants, names)),
    ]


def lost(globs: Iterable[str], names: Collection[str]) -> list[str]:
    """The patterns that match none of the known `names`, each once, in words."""
    if not names:
        return []
    unmatched = [glob for glob in dict.fromkeys(globs) if not any(matches(glob, name) for name in names)]
    return [f"“{glob}” matches no tool that is known." for glob in unmatched]
