"""Where the accounts of an MCP server come from: its own metadata (RFC 9728), its issuer's (RFC 8414, OIDC)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from mcpservers.oauth.challenges import Challenge

if TYPE_CHECKING:
    from mcpservers.models import MCPServer


@dataclass(frozen=True, slots=True)
class Discovered:
    """Everything that linking needs to know; addresses are checked, what was not told is empty."""

    resource: str  # RFC 8707, byte for byte; "" where none is sent
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str = ""
    revocation_endpoint: str = ""
    userinfo_endpoint: str = ""
    scopes: tuple[str, ...] = ()  # to ask for at first
    scopes_supported: tuple[str, ...] = ()
    auth_methods: tuple[str, ...] = ()  # token_endpoint_auth_methods_supported
    client_id_metadata: bool = False  # client_id_metadata_document_supported
    sends_iss: bool = False  # authorization_response_iss_parameter_supported
    pkce: bool = True  # S256 is announced; else an admin allowed that it is not
    warnings: tuple[str, ...] = ()


async def discover(server: MCPServer, *, challenge: Challenge | None = None, fresh: bool = False) -> Discovered:
    """The metadata of `server`, from its row while that holds, else from the network; stored.

    `challenge` is what the server just said, if it did. Raises `LinkError` with what an admin can do.
    """
    raise NotImplementedError


async def mark_needs_oauth(server_id: UUID, discovered: Discovered) -> bool:
    """Remember that a server without `oauth` in its definition wants a sign-in, so that its scope becomes *user*.

    For the connection that met a 401 with usable metadata. False, and nothing is stored, where the definition
    sends a credential of its own: then that is what was refused.
    """
    raise NotImplementedError


def known(server: MCPServer) -> Discovered | None:
    """What is stored of the server's metadata, however old; for pages. A row function without network."""
    raise NotImplementedError


def as_json(discovered: Discovered) -> dict[str, Any]:
    """`discovered` as its row keeps it."""
    raise NotImplementedError
