"""Rows of MCP servers, of what people link to them, and of what admins accepted of them."""

from mcpservers.models.linking import LinkAttempt, LinkedAccount, OAuthClient, OAuthDiscovery, SignInToken
from mcpservers.models.own import OwnServer
from mcpservers.models.pins import ToolSighting, ToolVersion, ToolView, accepted_somewhere, is_accepted
from mcpservers.models.revoking import Revocation
from mcpservers.models.servers import (
    FOR_PEOPLE,
    OWN_PREFIX,
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
    "FOR_PEOPLE",
    "OWN_PREFIX",
    "AbstractGrant",
    "CatalogueEntry",
    "LinkAttempt",
    "LinkedAccount",
    "MCPServer",
    "OAuthClient",
    "OAuthDiscovery",
    "OwnServer",
    "Revocation",
    "ServerGrant",
    "SignInToken",
    "ToolSighting",
    "ToolVersion",
    "ToolView",
    "Transport",
    "UserVariables",
    "accepted_somewhere",
    "is_accepted",
    "one_grantee",
    "server_slug_validator",
]
