"""The doors' first step: from a session key or an API key to a user, with everything re-read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.http.cookie import parse_cookie
from django.utils.crypto import constant_time_compare

from accounts.actors import Actor, find_actor
from accounts.models import ApiKey, User, digest
from chatui.errors import ChatUIError

if TYPE_CHECKING:
    from django.contrib.sessions.backends.base import SessionBase

T = TypeVar("T")


def session_user(session_key: str | None) -> User | None:
    """The signed-in, active user of a session: None after sign-out, expiry, password change or deactivation.

    The same checks as `django.contrib.auth.get_user`, from a key instead of a request; two queries.
    """
    if not session_key:
        return None
    store: type[SessionBase] = import_module(settings.SESSION_ENGINE).SessionStore
    data: dict[str, Any] = store(session_key).load()
    user_id, backend = data.get(SESSION_KEY), data.get(BACKEND_SESSION_KEY)
    if not user_id or backend not in settings.AUTHENTICATION_BACKENDS:
        return None
    user = User.objects.filter(pk=UUID(user_id), is_active=True).first()
    if user is None:
        return None
    stored = data.get(HASH_SESSION_KEY) or ""
    hashes = [user.get_session_auth_hash(), *user.get_session_auth_fallback_hash()]
    return user if any(constant_time_compare(stored, current) for current in hashes) else None


def key_of(authorization: str | None) -> ApiKey | None:
    """The usable API key in an `Authorization: Bearer` header, with its user and organization; one query."""
    scheme, _, secret = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        return None
    return (
        ApiKey.objects.usable()
        .select_related("user", "organization")
        .filter(hash=digest(secret.strip()), user__is_active=True, organization__is_active=True)
        .first()
    )


class SignedOutError(ChatUIError):
    """There is no valid session or key (any more)."""

    code = "signed_out"
    status = 401
    public_message = "Please sign in."


class StrangerError(ChatUIError):
    """Signed in, but not (or no longer) a member of this organization."""

    code = "not_a_member"
    status = 403
    public_message = "You are not a member of this organization."


@dataclass(frozen=True, slots=True)
class Door:
    """How somebody came in, kept so that they can be looked at again: a session or a key, and an organization."""

    organization: str
    session_key: str | None = None
    authorization: str | None = None

    @classmethod
    def of(cls, organization: str, *, authorization: str | None, cookie: str | None) -> Door:
        """With an `Authorization` header the key alone counts; else the session cookie of a `Cookie` header."""
        if authorization is not None:
            return cls(organization, authorization=authorization)
        return cls(organization, session_key=parse_cookie(cookie or "").get(settings.SESSION_COOKIE_NAME))

    def actor(self) -> Actor:
        """Who this is now, from fresh rows. Raises `SignedOutError` or `StrangerError`."""
        if self.authorization is not None:
            key = key_of(self.authorization)
            if key is None:
                raise SignedOutError
            if key.organization.slug != self.organization:
                raise StrangerError
            actor = find_actor(key.user_id, key.organization_id, key=key)
        else:
            user = session_user(self.session_key)
            if user is None:
                raise SignedOutError
            actor = find_actor(user.pk, self.organization)
        if actor is None:
            raise StrangerError
        return actor

    def run(self, function: Callable[..., T], *args: Any) -> T:
        """`function(actor, *args)`: one unit of row work with a fresh actor."""
        return function(self.actor(), *args)
