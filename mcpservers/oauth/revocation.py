"""Telling the authorization server that an account is disconnected (RFC 7009)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from mcpservers.errors import LinkError
from mcpservers.models import LinkedAccount, MCPServer, OAuthDiscovery
from mcpservers.oauth import client_auth
from mcpservers.oauth.client_auth import Credentials
from mcpservers.oauth.discovery import told_by
from mcpservers.oauth.web import Web

NOTHING_LEFT = "Nothing was kept here with which to revoke it: end the access there if you want to be sure."
UNREADABLE = "Nobody has the key to what was kept here any more: end the access there if you want to be sure."
NO_WAY = "The sign-in service offers no way to be told: end the access there if you want to be sure."
ANOTHER = "The sign-in service could not be told, because this server names another one now."
_KINDS = ("refresh_token", "access_token")
_PASSING = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class Revocable:
    """All that it takes to revoke an account's tokens, once the account and its server are gone.

    `endpoint` is the one of the issuer that gave them, and `credentials` are those that were for it.
    """

    endpoint: str
    issuer: str
    allowances: Sequence[str] | None  # of the server, as in `MCPServer.allowances`
    credentials: Credentials = field(repr=False)
    tokens: Mapping[str, str] = field(repr=False)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(**{**value, "credentials": Credentials(**value["credentials"])})


@dataclass(frozen=True, slots=True)
class Told:
    """How telling went: "" or why it failed, and whether it may go better later."""

    warning: str = ""
    again: bool = False


def revocable(account: LinkedAccount, server: MCPServer) -> Revocable | str:
    """What it takes to revoke the account, or why nothing can; two queries at most.

    `server` is the definition with which it was linked: what stands in a later one is for other addresses.
    """
    tokens = {kind: account.tokens[kind] for kind in _KINDS if account.tokens.get(kind)}
    if account.client is None or not tokens:
        return NOTHING_LEFT
    row = OAuthDiscovery.objects.as_system().filter(server_id=server.pk, binding=account.binding).first()
    discovered = told_by(row, server) if row is not None else None
    if discovered is None or discovered.issuer != account.issuer:
        return ANOTHER
    if not discovered.revocation_endpoint:
        return NO_WAY
    credentials = client_auth.credentials_of(account.client, server)
    return Revocable(discovered.revocation_endpoint, discovered.issuer, server.allowances, credentials, tokens)


async def tell(what: Revocable) -> Told:
    """Have the authorization server forget the tokens (RFC 7009). Never raises."""
    try:
        return await _tell(what)
    except LinkError as error:
        return Told(
            f"The sign-in service could not be told: {error.public_message}", again=error.code != "client_refused"
        )


async def _tell(what: Revocable) -> Told:
    """Each token for itself: a service may know how to revoke one kind alone (RFC 7009, 2.2.1)."""
    told = Told()
    async with Web(extra=what.allowances) as web:
        for kind, token in what.tokens.items():
            headers, proof = what.credentials.apply(what.issuer)
            answer = await web.post_form(what.endpoint, {"token": token, "token_type_hint": kind, **proof}, headers)
            if answer.status >= 400:
                again = answer.status >= 500 or answer.status in _PASSING
                told = Told(
                    f"The sign-in service did not take the disconnection (HTTP {answer.status}).", again or told.again
                )
    return told
