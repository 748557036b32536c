"""Rows of MCP servers, of what people link to them, and of what admins accepted of them."""

from mcpservers.models.linking import LinkAttempt, LinkedAccount, OAuthClient, OAuthDiscovery, SignInToken
from mcpservers.models.pins import ToolSighting, ToolVersion, ToolView
from mcpservers.models.servers import (
    AbstractGrant,
    CatalogueEntry,
    MCPServer,
    ServerGrant,
    Transport,
    UserVariables,
    one_grantee,
    server_slug_validator,
)

__all__ = [
    "AbstractGrant",
    "CatalogueEntry",
    "LinkAttempt",
    "LinkedAccount",
    "MCPServer",
    "OAuthClient",
    "OAuthDiscovery",
    "ServerGrant",
    "SignInToken",
    "ToolSighting",
    "ToolVersion",
    "ToolView",
    "Transport",
    "UserVariables",
    "one_grantee",
    "server_slug_validator",
]
