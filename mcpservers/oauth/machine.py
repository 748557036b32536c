"""The organization's own account at a server, by client credentials or by the token of a workload (RFC 7523)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.utils import timezone

from chatui.rows import in_rows, writing
from mcpservers.models import LinkedAccount, MCPServer
from mcpservers.oauth import client_auth, dpop, registration
from mcpservers.oauth.config import WORKLOAD
from mcpservers.oauth.discovery import lately
from mcpservers.oauth.grants import JWT_BEARER, Granted, GrantRefusedError, request_token
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
    """A token for the machine account; sets issuer, resource and client on it, which the caller stores.

    RFC 6749, section 4.4, or RFC 7523, section 2.1. Raises `AssertionRefusedError`, `GrantRefusedError`, `LinkError`.
    """
    server = account.server
    discovered = await lately(server)
    async with Web(extra=server.allowances) as web:
        account.client = await registration.client_for(web, server, discovered)
        account.issuer, account.resource = discovered.issuer, discovered.resource
        form = _grant(server)
        if discovered.scopes:
            form["scope"] = " ".join(discovered.scopes)
        if discovered.resource:
            form["resource"] = discovered.resource
        credentials = await in_rows(client_auth.credentials_of, account.client, server)
        try:
            key = (account.tokens.get(dpop.KEY) or dpop.new_key()) if discovered.dpop else ""
            return await request_token(web, discovered.token_endpoint, discovered.issuer, credentials, form, key=key)
        except GrantRefusedError as refusal:
            if refusal.error != "invalid_grant" or "assertion" not in form:
                raise
            raise AssertionRefusedError(_way_out(refusal, form["assertion"], discovered.issuer)) from None


class AssertionRefusedError(Exception):
    """The workload's token is not taken (any more); the text is for admins, and says what to do."""


def _grant(server: MCPServer) -> dict[str, str]:
    oauth = server.oauth or {}
    if oauth.get("grant") == WORKLOAD:
        return {"grant_type": JWT_BEARER, "assertion": str(oauth.get("assertion") or "").strip()}
    return {"grant_type": "client_credentials"}


def _way_out(refusal: GrantRefusedError, assertion: str, issuer: str) -> str:
    expired = _expiry(assertion)
    if expired is not None and expired <= timezone.now():
        return (
            f"The workload's token (assertion) expired at {expired:%Y-%m-%d %H:%M:%S} UTC, and {issuer} does not take "
            f"it ({refusal}). Store a new one in the server's OAuth."
        )
    return (
        f"{issuer} does not take the workload's token (assertion): {refusal}. Its audience (aud) must be {issuer}, "
        "which must trust its issuer (iss) and know its subject (sub). Store a new one in the server's OAuth."
    )


def _expiry(assertion: str) -> datetime | None:
    """When `assertion` expires as it says itself, unverified; None where it does not say, or is no signed JWT."""
    import jwt  # slow to import, and seldom needed

    try:
        said = jwt.decode(assertion, options={"verify_signature": False}).get("exp")
        return datetime.fromtimestamp(float(said), UTC) if isinstance(said, int | float) else None
    except (jwt.PyJWTError, ValueError, OverflowError, OSError):
        return None
