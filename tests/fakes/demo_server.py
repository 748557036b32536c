"""The demo's own server, over stdio, as an organization's."""

from __future__ import annotations

from typing import Any

from accounts.models import Organization
from mcpservers.models import MCPServer, ServerGrant

ASKED = {"tool": "add_note", "do": "ask"}
DENIED = {"tool": "draw_chart", "do": "deny"}
ALLOWED = {"tool": "*", "do": "allow"}


def make_demo_server(organization: Organization, *rules: dict[str, Any]) -> MCPServer:
    """It is granted to the whole organization; the first of the `rules` that matches decides."""
    server = MCPServer.objects.create(
        organization=organization,
        slug="demo",
        title="Demo tools",
        transport="stdio",
        command="python",
        args=["-m", "demo.mcp_server"],
        rules=list(rules),
    )
    ServerGrant.objects.create(server=server, whole_organization=True)
    return server
