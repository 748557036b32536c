"""The organization's own account at a server, by client credentials: with a secret or a signed assertion (RFC 7523)."""

from __future__ import annotations

from mcpservers.models import MCPServer


def is_machine(server: MCPServer) -> bool:
    """Whether the server is used with an account of the organization (`oauth.grant` is `client_credentials`)."""
    return (server.oauth or {}).get("grant") == "client_credentials"
