"""Telling the authorization server that an account is disconnected (RFC 7009)."""

from __future__ import annotations

from chatui.rows import in_rows
from mcpservers.errors import LinkError
from mcpservers.models import LinkedAccount, OAuthClient
from mcpservers.oauth import client_auth
from mcpservers.oauth.discovery import known
from mcpservers.oauth.metadata import Discovered
from mcpservers.oauth.web import Web

NOTHING_LEFT = "Nothing was kept here with which to revoke it: end the access there if you want to be sure."


async def revoke(account: LinkedAccount) -> str:
    """Tell the authorization server to forget the account's tokens (RFC 7009); "" or why that failed. Never raises."""
    if account.client is None or not account.tokens:
        return NOTHING_LEFT
    try:
        discovered = await in_rows(known, account.server)
        if discovered is None or discovered.issuer != account.issuer:
            return "The sign-in service could not be told, because this server names another one now."
        if not discovered.revocation_endpoint:
            return "The sign-in service offers no way to be told: end the access there if you want to be sure."
        return await _told(account, account.client, discovered)
    except LinkError as error:
        return f"The sign-in service could not be told: {error.public_message}"


async def _told(account: LinkedAccount, client: OAuthClient, discovered: Discovered) -> str:
    """Each token for itself: a service may know how to revoke one kind alone (RFC 7009, 2.2.1)."""
    warning = ""
    async with Web(extra=account.server.allowances) as web:
        for kind in ("refresh_token", "access_token"):
            if account.tokens.get(kind):
                headers, proof = client_auth.credentials_of(client, account.server).apply(discovered.issuer)
                form = {"token": account.tokens[kind], "token_type_hint": kind, **proof}
                answer = await web.post_form(discovered.revocation_endpoint, form, headers)
                if answer.status >= 400:
                    warning = f"The sign-in service did not take the disconnection (HTTP {answer.status})."
    return warning
