"""Which tools are known, as rules name them: what servers list now, whoever's list it is."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from mcpservers.models import MCPServer, ToolSighting


def names_of(server: MCPServer) -> frozenset[str]:
    """The server's own names of its tools; empty where they have not been listed. One query."""
    rows = ToolSighting.objects.filter(view__server=server, listed=True)
    return frozenset(rows.values_list("version__tool", flat=True))


def subjects_of(organization_id: UUID, servers: Iterable[UUID] | None = None) -> frozenset[str]:
    """`server__tool` of every server of the organization, or of these; one query."""
    rows = ToolSighting.objects.filter(view__server__organization=organization_id, listed=True)
    rows = rows.filter(view__server__owner=None)  # what people add for themselves is theirs to know
    if servers is not None:
        rows = rows.filter(view__server__in=list(servers))
    found = rows.values_list("view__server__slug", "version__tool")
    return frozenset(f"{slug}__{tool}" for slug, tool in found)
