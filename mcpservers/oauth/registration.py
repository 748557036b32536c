"""Which client we are at an issuer: the configured one, else our metadata document, else one registered there."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction

from chatui.rows import in_rows, writing
from chatui.text import shorten
from mcpservers.errors import LinkError
from mcpservers.models import MCPServer, OAuthClient
from mcpservers.oauth import client_auth, client_metadata
from mcpservers.oauth.metadata import Discovered
from mcpservers.oauth.web import Answer, Web
from mcpservers.visible import visible

_LONGEST_ID = 4000
_SAFE_METHODS = ("client_secret_basic", "client_secret_post", "none")
Source = OAuthClient.Source


async def client_for(web: Web, server: MCPServer, discovered: Discovered) -> OAuthClient:
    """The client to sign in with, registered now if it must be. Raises `LinkError`."""
    if (server.oauth or {}).get("client_id"):
        method = client_auth.configured_method(server, discovered.auth_methods)
        return await in_rows(_configured, server, discovered.issuer, method)
    if discovered.client_id_metadata and client_metadata.is_served():
        return await in_rows(_of_document, server, discovered.issuer)
    known = await in_rows(_registered, server, discovered.issuer)
    if known is not None:
        return known
    if not discovered.registration_endpoint:
        raise _unregistered(discovered)
    values = await _register(web, discovered)
    return await in_rows(_keep, server, discovered.issuer, values)


def drop(client_id: UUID) -> None:
    """Forget a registration that its issuer does not know any more; the next sign-in registers anew."""
    with writing():
        OAuthClient.objects.as_system().filter(pk=client_id, source=Source.DYNAMIC).delete()


# --- Our document -------------------------------------------------------------------------------------------------


def _of_document(server: MCPServer, issuer: str) -> OAuthClient:
    return _put(server, issuer, Source.METADATA, {"client_id": client_metadata.client_id(), "auth_method": "none"})


def _configured(server: MCPServer, issuer: str, method: str) -> OAuthClient:
    values = {"client_id": str((server.oauth or {})["client_id"]), "auth_method": method}
    return _put(server, issuer, Source.CONFIGURED, values)


def _put(server: MCPServer, issuer: str, source: str, values: dict[str, Any]) -> OAuthClient:
    found = _row(server, issuer, source)
    if found is not None and all(getattr(found, name) == value for name, value in values.items()):
        return found
    row: OAuthClient
    with writing():
        row, _ = OAuthClient.objects.as_system().update_or_create(
            server=server,
            issuer=issuer,
            source=source,
            defaults={"organization_id": server.organization_id, **values},
        )
    return row


def _row(server: MCPServer, issuer: str, source: str) -> OAuthClient | None:
    return OAuthClient.objects.as_system().filter(server=server, issuer=issuer, source=source).first()


# --- Registration -------------------------------------------------------------------------------------------------


def _registered(server: MCPServer, issuer: str) -> OAuthClient | None:
    """The registration that there is, if it can still be used: its secret has not expired, our address is the same."""
    row = _row(server, issuer, Source.DYNAMIC)
    if row is None:
        return None
    expires = row.registration.get("secret_expires_at") or 0
    if row.registration.get("redirect_uri") == client_metadata.redirect_uri() and not 0 < expires < time.time() + 60:
        return row
    drop(row.pk)
    return None


async def _register(web: Web, discovered: Discovered) -> dict[str, Any]:
    """RFC 7591. What we asked for does not count, what was answered does."""
    methods = discovered.auth_methods or ("client_secret_basic",)
    wanted = client_metadata.description()
    wanted["token_endpoint_auth_method"] = next((each for each in _SAFE_METHODS if each in methods), "none")
    if discovered.scopes:
        wanted["scope"] = " ".join(discovered.scopes)
    answer = await web.post_json(discovered.registration_endpoint, wanted)
    said = answer.json()
    if answer.status not in (200, 201) or said is None:
        raise _refused(answer, said)
    client_id, secret = said.get("client_id"), said.get("client_secret")
    if not isinstance(client_id, str) or not 0 < len(client_id) <= _LONGEST_ID:
        raise _refused(answer, None)
    secret = secret if isinstance(secret, str) else ""
    expires = said.get("client_secret_expires_at")
    return {
        "client_id": client_id,
        "secrets": {"client_secret": secret} if secret else {},
        "auth_method": _answered_method(said, secret, wanted["token_endpoint_auth_method"]),
        "registration": {
            "redirect_uri": client_metadata.redirect_uri(),
            "secret_expires_at": expires if isinstance(expires, int) and not isinstance(expires, bool) else 0,
        },
    }


def _answered_method(said: dict[str, Any], secret: str, wanted: str) -> str:
    method = said.get("token_endpoint_auth_method") or wanted
    if method in ("client_secret_basic", "client_secret_post"):
        return str(method) if secret else "none"
    return "client_secret_basic" if secret and method != "none" else "none"


def _keep(server: MCPServer, issuer: str, values: dict[str, Any]) -> OAuthClient:
    """Store a registration; one that was stored meanwhile is used instead, for a sign-in may have begun with it."""
    row = OAuthClient(
        organization_id=server.organization_id, server=server, issuer=issuer, source=Source.DYNAMIC, **values
    )
    try:
        with writing(), transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        row = OAuthClient.objects.as_system().get(server=server, issuer=issuer, source=Source.DYNAMIC)
    return row


def _refused(answer: Answer, said: dict[str, Any] | None) -> LinkError:
    words = [said.get(key) for key in ("error", "error_description")] if said else []
    told = shorten(visible(": ".join(word for word in words if isinstance(word, str))), 300)
    return LinkError(
        "registration_refused",
        "The sign-in service does not let this product register itself. Tell an administrator, who can enter a client.",
        for_admin=f"The registration at {answer.url} failed (HTTP {answer.status}{f', {told}' if told else ''}). "
        f"Register a client there by hand with the redirect address {client_metadata.redirect_uri()} and enter its "
        "client_id in the server's OAuth.",
    )


def _unregistered(discovered: Discovered) -> LinkError:
    return LinkError(
        "no_registration",
        "This product is not known to the sign-in service, which lets nobody register. Tell an administrator.",
        for_admin=f"{discovered.issuer} offers neither client ID metadata documents nor registration. Register a "
        f"client there by hand with the redirect address {client_metadata.redirect_uri()} and enter its client_id (and "
        "client_secret) in the server's OAuth.",
    )
