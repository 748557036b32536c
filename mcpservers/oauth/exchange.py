"""On behalf of the user: the token of an OIDC sign-in, exchanged for one that a server takes (RFC 8693, or Entra's)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpservers.models import MCPServer

if TYPE_CHECKING:
    from accounts.actors import Actor


def is_on_behalf(server: MCPServer) -> bool:
    """Whether the server is called on behalf of the user (`oauth.obo`)."""
    return bool((server.oauth or {}).get("obo"))


class ExchangedTokens:
    """Gives tokens that stand for the actor at one server; kept encrypted in memory until they expire.

    Raises what `AccountTokens` raises; `SignInRequiredError` here means: sign in to this product by OpenID Connect.
    """

    def __init__(self, actor: Actor, server: MCPServer) -> None:
        self.actor, self.server = actor, server
        self.key = f"obo:{server.pk}:{actor.user_id}"

    async def current(self) -> str:
        """A token that is not about to expire."""
        raise NotImplementedError

    async def renewed(self, refused: str) -> str:
        """Another token than `refused`."""
        raise NotImplementedError
