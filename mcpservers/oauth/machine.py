"""The organization's own account at a server, by client credentials: with a secret or a signed assertion (RFC 7523)."""

from __future__ import annotations

from typing import Any

from chatui.rows import in_rows, writing
from mcpservers.models import LinkedAccount, MCPServer
from mcpservers.oauth import client_auth, registration
from mcpservers.oauth.discovery import lately
from mcpservers.oauth.grants import Granted, request_token
from mcpservers.oauth.web import Web

NAME = "Organization"


def account_for(server: MCPServer, *, known: LinkedAccount | None = None) -> LinkedAccount:
    """The machine account of `server`, made now if there is none; for another definition it begins anew.

    One query, unless it is `known`.
    """
    account = known or LinkedAccount.objects.as_system().filter(server=server, user=None).first()
    binding = server.oauth_binding()
    if account is None or not account.works(binding):
        anew: dict[str, Any] = {
            "organization_id": server.organization_id,
            "binding": binding,
            "issuer": "",
            "resource": "",
            "client": None,
            "name": NAME,
            "is_default": True,
            "tokens": {},
            "expires_at": None,
            "refresh_at": None,
            "version": account.version + 1 if account is not None else 1,
            "refreshing_until": None,
            "renewed_at": None,
            "state": LinkedAccount.State.READY,
            "last_error": "",
        }
        with writing():
            account, _ = LinkedAccount.objects.as_system().update_or_create(server=server, user=None, defaults=anew)
    assert isinstance(account, LinkedAccount)
    account.server = server
    return account


async def redeem(account: LinkedAccount) -> Granted:
    """A token for the machine account (RFC 6749, 4.4); sets issuer, resource and client on it, which the caller stores.

    Raises `GrantRefusedError`, `LinkError`.
    """
    server = account.server
    discovered = await lately(server)
    async with Web(extra=server.allowances) as web:
        account.client = await registration.client_for(web, server, discovered)
        account.issuer, account.resource = discovered.issuer, discovered.resource
        form = {"grant_type": "client_credentials"}
        if discovered.scopes:
            form["scope"] = " ".join(discovered.scopes)
        if discovered.resource:
            form["resource"] = discovered.resource
        credentials = await in_rows(client_auth.credentials_of, account.client, server)
        return await request_token(web, discovered.token_endpoint, discovered.issuer, credentials, form)
