"""Linking an account in two requests: `begin` leads to the authorization server, `complete` redeems what comes back."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from uuid import UUID

from chatui.rows import in_rows
from chatui.text import shorten
from mcpservers.errors import LinkError
from mcpservers.models import LinkedAccount, MCPServer, OAuthClient
from mcpservers.oauth import attempts, client_auth, client_metadata, dpop, registration
from mcpservers.oauth.attempts import Taken
from mcpservers.oauth.challenges import scopes_in
from mcpservers.oauth.discovery import configured_scopes, discover
from mcpservers.oauth.grants import Granted, GrantRefusedError, request_token
from mcpservers.oauth.identity import identify
from mcpservers.oauth.metadata import Discovered
from mcpservers.oauth.undivided import undivided
from mcpservers.oauth.web import Web
from mcpservers.oauth.whose import Whose, whose_account
from mcpservers.visible import visible

if TYPE_CHECKING:
    from accounts.actors import Actor


@dataclass(frozen=True, slots=True)
class Begun:
    """Where to send the browser, the host that the person will see there, and what is asked for."""

    url: str
    host: str
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Completed:
    """The account that was linked; its tokens are stored."""

    organization_id: UUID
    server_id: UUID
    server_slug: str
    server_title: str
    account_id: UUID
    account: str
    return_to: str  # a path of this site, or ""


# --- The first request --------------------------------------------------------------------------------------------


async def begin(
    actor: Actor,
    server_id: UUID,
    *,
    browser: str,
    account_id: UUID | None = None,
    scopes: Sequence[str] = (),
    return_to: str = "",
) -> Begun:
    """Begin to link an account (`account_id`: to link that one again) and return where the person signs in.

    `browser` is the random value that this browser's session keeps; `scopes` are asked for besides those that the
    account has and the server names. Raises `NotFoundError` for a server or an account that the actor may not use,
    `LinkError` for everything else.
    """
    start = await in_rows(attempts.prepare, actor, server_id, account_id)
    try:
        if not browser:
            raise LinkError("no_browser", "Sign in with a browser to link an account.")
        _require_linkable(start.server)
        discovered = await discover(start.server)
        async with Web(extra=start.server.allowances) as web:
            client = await registration.client_for(web, start.server, discovered)
    except LinkError as error:
        error.about(start.server, return_to)
        await in_rows(attempts.failed, actor.user_id, start.server, error)
        raise
    wanted = scopes_for(start.server, discovered, start.account, scopes)
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
    await in_rows(attempts.store, actor, start, client, discovered, state, verifier, browser, wanted, return_to)
    url = _authorization_url(start, client, discovered, wanted, state, verifier)
    return Begun(url, discovered.host, wanted)


def _require_linkable(server: MCPServer) -> None:
    if not server.enabled:
        raise LinkError("off", f"“{server.title}” is switched off.", status=409)
    whose = whose_account(server)
    if whose is Whose.ORGANIZATION:
        raise LinkError("machine", "This server is used with an account of the organization: nobody links one.")
    if whose is Whose.ON_BEHALF:
        raise LinkError("on_behalf", "This server is called on your behalf, with your sign-in here: nobody links one.")


def scopes_for(
    server: MCPServer, discovered: Discovered | None, account: LinkedAccount | None = None, more: Sequence[str] = ()
) -> tuple[str, ...]:
    """What a sign-in asks for: all that the account has, what the server names, what a call needed, and to stay.

    Before anything is discovered (None) it is what is known of that.
    """
    had = scopes_in(account.scopes) if account is not None else ()
    named = discovered.scopes if discovered is not None else configured_scopes(server)
    wanted = [*had, *named, *scopes_in(list(more))]
    if discovered is not None and "offline_access" in discovered.scopes_supported:  # else some give no refresh token
        wanted.append("offline_access")
    return tuple(dict.fromkeys(wanted))


def _authorization_url(
    start: attempts.Start,
    client: OAuthClient,
    discovered: Discovered,
    scopes: tuple[str, ...],
    state: str,
    verifier: str,
) -> str:
    """RFC 6749, 4.1.1, with PKCE (RFC 7636, 4.3) and the resource (RFC 8707, 2.1)."""
    asked = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": client_metadata.redirect_uri(),
        "state": state,
        "code_challenge": code_challenge(verifier),
        "code_challenge_method": "S256",
        "resource": discovered.resource,
        "scope": " ".join(scopes),
        "prompt": _prompt(start, discovered, scopes),
    }
    parts = urlsplit(discovered.authorization_endpoint)
    query = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] not in asked]
    query += [(name, value) for name, value in asked.items() if value]
    return urlunsplit(parts._replace(query=urlencode(query), fragment=""))


def code_challenge(verifier: str) -> str:
    """RFC 7636, 4.2."""
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _prompt(start: attempts.Start, discovered: Discovered, scopes: tuple[str, ...]) -> str:
    configured = (start.server.oauth or {}).get("prompt")
    if configured is not None:
        return str(configured)
    words = []
    if start.another and "select_account" in discovered.prompts:
        words.append("select_account")
    # OpenID Connect Core, 11: else offline_access is ignored. Where an admin chose the scopes it may be forbidden.
    if "offline_access" in scopes and not (start.server.oauth or {}).get("scopes"):
        words.append("consent")
    return " ".join(words)


# --- The second request -------------------------------------------------------------------------------------------


async def complete(user_id: UUID, query: Mapping[str, str], *, browser: str) -> Completed:
    """Redeem the answer of the authorization server, store the tokens, and say what was linked.

    Raises `LinkError`; its `reason` is `declined` when the person said no, `used` for an answer that was seen before,
    is too old, or belongs to another user or browser.
    """
    taken = await in_rows(attempts.take, user_id, query.get("state", ""), browser)
    try:
        _check_answer(query, taken.discovered)
        # From here on there may be a token that only we know: it is stored, whoever still listens.
        account = await undivided(_redeem(taken, query["code"]))
    except LinkError as error:
        error.about(taken.server, taken.return_to)
        await in_rows(attempts.failed, user_id, taken.server, error)
        raise
    server = taken.server
    return Completed(
        organization_id=server.organization_id,
        server_id=server.pk,
        server_slug=server.slug,
        server_title=server.title,
        account_id=account.pk,
        account=account.name,
        return_to=taken.return_to,
    )


def _check_answer(query: Mapping[str, str], discovered: Discovered) -> None:
    """RFC 9207, section 2.4, before anything else is believed; then RFC 6749, 4.1.2.1."""
    issuer = query.get("iss")
    if issuer is None and discovered.sends_iss:
        raise _mixed_up(discovered, "none")
    if issuer is not None and issuer != discovered.issuer:
        raise _mixed_up(discovered, shorten(visible(issuer), 200))
    error = query.get("error")
    if error == "access_denied":
        raise LinkError("declined", "You did not allow access, so nothing was linked.", status=403)
    if error:
        raise _refused(error, query.get("error_description", ""))
    if not query.get("code"):
        raise LinkError("bad_answer", "The sign-in service sent you back without an answer. Start again.")


def _mixed_up(discovered: Discovered, said: str) -> LinkError:
    return LinkError(
        "issuer_mismatch",
        "The answer does not come from the sign-in service that was asked, so nothing was linked. Start again; if it "
        "happens again, tell an administrator.",
        for_admin=f"The answer names {said} as issuer, not {discovered.issuer} (RFC 9207).",
    )


def _refused(error: str, description: str) -> LinkError:
    told = shorten(visible(f"{error}: {description}" if description else error), 300)
    return LinkError(
        "refused",
        f"The sign-in service refused: “{told}”. Start again, and tell an administrator if it happens again.",
        for_admin=f"The authorization server refused the request: {told}",
    )


async def _redeem(taken: Taken, code: str) -> LinkedAccount:
    """RFC 6749, 4.1.3, then who it is, then the row."""
    discovered, client = taken.discovered, taken.client
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": taken.redirect_uri,
        "code_verifier": taken.verifier,
    }
    if discovered.resource:
        form["resource"] = discovered.resource
    credentials = client_auth.credentials_of(client, taken.server)
    async with Web(extra=taken.server.allowances) as web:
        try:
            key = dpop.new_key() if discovered.dpop else ""
            granted = await request_token(web, discovered.token_endpoint, discovered.issuer, credentials, form, key=key)
        except GrantRefusedError as refusal:
            raise await _explained(refusal, client) from None
        granted = _with_scopes(granted, taken.scopes)
        who = await identify(web, granted, discovered, client.client_id)
    return await in_rows(attempts.link, taken, granted, who)


def _with_scopes(granted: Granted, asked: tuple[str, ...]) -> Granted:
    """RFC 6749, 5.1: what is not said is as it was asked for."""
    return granted if granted.scopes is not None else replace(granted, scopes=asked)


async def _explained(refusal: GrantRefusedError, client: OAuthClient) -> LinkError:
    detail = f"The token endpoint refused: {refusal}"
    if refusal.of_client and client.source == OAuthClient.Source.DYNAMIC:
        await in_rows(registration.drop, client.pk)
        message = "The sign-in service has forgotten this product, which is registered anew when you start again."
        return LinkError("client_forgotten", message, for_admin=f"{detail}. The registration was dropped.")
    if refusal.of_client:
        message = "The sign-in service does not accept this product. Tell an administrator."
        return LinkError("client_refused", message, for_admin=f"{detail}. Check client_id and client_secret.")
    if refusal.passing:
        message = "The sign-in service does not work at the moment. Start again later."
        return LinkError("unreachable", message, for_admin=detail)
    return LinkError("refused", "The sign-in was refused or took too long. Start again.", for_admin=detail)
