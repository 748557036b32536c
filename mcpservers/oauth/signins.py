"""The tokens of people's sign-ins to this product by OpenID Connect: kept encrypted, renewed, for use on their behalf.

allauth would keep them in clear; it is told not to (`SOCIALACCOUNT_STORE_TOKENS`), and its signals are listened to.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import jwt
from django.utils import timezone

from accounts.models import User
from chatui.netguard import allowance_of
from chatui.rows import in_rows
from mcpservers.errors import LinkError, NotReadyError, ServerUnavailableError
from mcpservers.models import SignInToken
from mcpservers.oauth import leases
from mcpservers.oauth.client_auth import Credentials
from mcpservers.oauth.grants import GrantRefusedError, request_token
from mcpservers.oauth.metadata import same_issuer
from mcpservers.oauth.web import Web

METADATA_SECONDS = 3600.0
LEAST_SECONDS = 10.0  # what a token must still live to be exchanged
_SIGN_IN = "Sign out and sign in again with your organization's account (OpenID Connect), not with a password."


@dataclass(frozen=True, slots=True)
class Provider:
    """Where people sign in to this product, and this product as its client; an operator's word."""

    id: str
    server_url: str
    client_id: str
    secret: str = field(repr=False)
    method: str = ""

    @property
    def allowance(self) -> str:
        return allowance_of(self.server_url)


@dataclass(frozen=True, slots=True)
class SignIn:
    """A person's sign-in. `version` changes with its tokens."""

    user_id: UUID
    provider: Provider
    version: int
    expires_at: datetime | None
    tokens: dict[str, str] = field(repr=False)

    @property
    def token(self) -> str:
        return self.tokens["access_token"]

    def lives(self, identity: bool = False) -> bool:
        """Whether its token can be used; with `identity` its identity token."""
        if identity:
            return expiry_of(self.tokens.get("id_token", "")) > time.time() + LEAST_SECONDS
        return self.expires_at is None or (self.expires_at - timezone.now()).total_seconds() > LEAST_SECONDS


def expiry_of(id_token: str) -> float:
    """When an identity token ends (POSIX time; 0 for what is none), as whom it is sent to will check."""
    try:
        expires = jwt.decode(id_token, options={"verify_signature": False})["exp"]
    except (jwt.PyJWTError, KeyError):
        return 0.0
    return float(expires) if isinstance(expires, int | float) else 0.0


# --- Signing in ---------------------------------------------------------------------------------------------------


def remember(user: User, **kwargs: Any) -> None:
    """Keep what a sign-in by OpenID Connect brought (a receiver of allauth's signals); of another sign-in nothing."""
    login = kwargs.get("sociallogin")
    token = getattr(login, "token", None)
    if login is None or token is None or not token.token:
        return
    tokens: Any = {"access_token": token.token}
    if token.token_secret:  # allauth keeps the refresh token there
        tokens["refresh_token"] = token.token_secret
    if getattr(token, "id_token", ""):  # `accounts.oidc` hands it on
        tokens["id_token"] = token.id_token
    rows = SignInToken.objects.filter(user=user)
    kept = rows.values_list("version", flat=True).first() or 0
    SignInToken.objects.update_or_create(
        user=user,
        defaults={
            "provider": login.account.provider,
            "tokens": tokens,
            "expires_at": token.expires_at,
            "version": kept + 1,
            "refreshing_until": None,
        },
    )


def connect_signals() -> None:
    """Listen to sign-ins and to accounts that are added to a person's own."""
    from allauth.account.signals import user_logged_in
    from allauth.socialaccount.signals import social_account_added, social_account_removed

    user_logged_in.connect(_signed_in, dispatch_uid="tokens of a sign-in")
    social_account_added.connect(_added, dispatch_uid="tokens of an added account")
    social_account_removed.connect(_removed, dispatch_uid="tokens of a removed account")


def _signed_in(sender: object, user: User, **kwargs: Any) -> None:
    remember(user, **kwargs)


def _added(sender: object, sociallogin: Any, **kwargs: Any) -> None:
    remember(sociallogin.user, sociallogin=sociallogin)


def _removed(sender: object, socialaccount: Any, **kwargs: Any) -> None:
    SignInToken.objects.filter(user_id=socialaccount.user_id, provider=socialaccount.provider).delete()


def _provider(provider_id: str) -> Provider | None:
    """As it is configured now: in the environment, or by a superuser in the admin."""
    from allauth.socialaccount.adapter import get_adapter

    for app in get_adapter().list_apps(None, provider=provider_id):
        server_url = app.settings.get("server_url")
        if app.provider == "openid_connect" and server_url:
            method = app.settings.get("token_auth_method") or ""
            return Provider(provider_id, server_url, app.client_id, app.secret, method)
    return None


# --- Using it -----------------------------------------------------------------------------------------------------


async def sign_in_of(user_id: UUID, *, identity: bool = False) -> SignIn:
    """The person's sign-in with a token (an identity token) that lives, renewed if need be.

    Raises `NotReadyError` where the person has to sign in again, `ServerUnavailableError` for now.
    """
    deadline = time.monotonic() + leases.WAIT_SECONDS
    found = await in_rows(stored, user_id)
    while not found.lives(identity):
        if "refresh_token" not in found.tokens:
            raise NotReadyError(f"Your sign-in has expired. {_SIGN_IN}")
        if await in_rows(leases.lease, SignInToken.objects.filter(user_id=user_id), found.version):
            await _renew(found)
        elif time.monotonic() > deadline:
            raise ServerUnavailableError("sign-in", public_message="Your sign-in is being renewed. Try again.")
        else:
            await asyncio.sleep(leases.LOOK_SECONDS)
        newer = await in_rows(stored, user_id)
        if newer.version != found.version and not newer.lives(identity):
            raise NotReadyError(f"Your sign-in has expired. {_SIGN_IN}")
        found = newer
    return found


def stored(user_id: UUID) -> SignIn:
    """The person's sign-in as it is kept, living or not. A row function; raises `NotReadyError` where there is none."""
    row = SignInToken.objects.filter(user_id=user_id).first()
    provider = _provider(row.provider) if row is not None else None
    if row is None or provider is None or not row.tokens.get("access_token"):
        raise NotReadyError(f"This server is called on your behalf. {_SIGN_IN}")
    return SignIn(user_id, provider, row.version, row.expires_at, row.tokens)


async def _renew(found: SignIn) -> None:
    rows = SignInToken.objects.filter(user_id=found.user_id)
    provider = found.provider
    form = {"grant_type": "refresh_token", "refresh_token": found.tokens["refresh_token"]}
    try:
        async with asyncio.timeout(leases.REDEEM_SECONDS), Web(extra=[provider.allowance]) as web:
            said = await metadata_of(web, provider)
            credentials = credentials_of(provider, said)
            granted = await request_token(web, said["token_endpoint"], said["issuer"], credentials, form)
    except GrantRefusedError as refusal:
        if refusal.passing or refusal.of_client:
            await in_rows(leases.give_back, rows, found.version)
            raise ServerUnavailableError(f"renewing a sign-in: {refusal}") from None
        await in_rows(leases.settle, rows, found.version, tokens={})
        raise NotReadyError(f"Your sign-in has ended. {_SIGN_IN}") from None
    except (LinkError, TimeoutError) as error:
        await in_rows(leases.give_back, rows, found.version)
        raise ServerUnavailableError(f"renewing a sign-in: {error}") from None
    expires_at = granted.times(timezone.now(), renewable=False)["expires_at"]
    tokens = granted.tokens(found.tokens)
    if granted.id_token:
        tokens["id_token"] = granted.id_token
    await in_rows(leases.settle, rows, found.version, tokens=tokens, expires_at=expires_at)


_metadata: dict[str, tuple[float, dict[str, str]]] = {}


async def metadata_of(web: Web, provider: Provider) -> dict[str, str]:
    """`issuer` and `token_endpoint` of a provider, of its own host, kept for an hour. Raises `LinkError`."""
    kept = _metadata.get(provider.server_url)
    if kept is not None and kept[0] > time.monotonic():
        return kept[1]
    place = provider.server_url
    if "/.well-known/" not in place:
        place = place.rstrip("/") + "/.well-known/openid-configuration"
    answer = await web.get(place)
    said = answer.json() if answer.status == 200 else None
    issuer, endpoint = (said or {}).get("issuer"), (said or {}).get("token_endpoint")
    if not isinstance(issuer, str) or not isinstance(endpoint, str):
        raise LinkError("bad_metadata", "The sign-in of this product does not work at the moment.", for_admin=place)
    if "/.well-known/" not in provider.server_url and not same_issuer(
        issuer.rstrip("/"), provider.server_url.rstrip("/")
    ):
        raise LinkError("issuer_mismatch", "The sign-in of this product is not set up well.", for_admin=place)
    methods = (said or {}).get("token_endpoint_auth_methods_supported")
    supported = [each for each in methods if isinstance(each, str)] if isinstance(methods, list) else []
    found = {"issuer": issuer, "token_endpoint": endpoint, "methods": " ".join(supported)}
    _metadata[provider.server_url] = (time.monotonic() + METADATA_SECONDS, found)
    return found


def credentials_of(provider: Provider, said: dict[str, str]) -> Credentials:
    """This product as the provider's client; it proves itself as allauth does when people sign in."""
    supported = said["methods"].split()
    basic = "client_secret_basic" in supported and "client_secret_post" not in supported
    wanted = provider.method or ("client_secret_basic" if basic else "client_secret_post")
    method = wanted if provider.secret else "none"
    return Credentials(provider.client_id, method, provider.secret)


def same_host(url: str, said: dict[str, str]) -> bool:
    """Whether `url` is at the provider that the person signed in with: a sign-in's token goes nowhere else."""
    one, other = urlsplit(url), urlsplit(said["token_endpoint"])
    return (one.scheme, one.netloc.lower()) == (other.scheme, other.netloc.lower())
