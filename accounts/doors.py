"""The doors' first step: from a session key or an API key to a user, with everything re-read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.http.cookie import parse_cookie
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from accounts.actors import Actor, actor_of, find_actor, membership_rows
from accounts.models import ApiKey, User, digest
from chatui.errors import ChatUIError
from chatui.prepared import PreparedQuery

if TYPE_CHECKING:
    from django.contrib.sessions.backends.base import SessionBase

T = TypeVar("T")
TOUCH_EVERY = timedelta(minutes=1)


def _signed_in(session_key: str | None) -> tuple[UUID, str] | None:
    """The user's id and the hash that the session holds of the password; None if nobody is signed in. One query."""
    if not session_key or not session_key.isalnum():  # a quoted cookie may hold any byte, NUL too
        return None
    store: type[SessionBase] = import_module(settings.SESSION_ENGINE).SessionStore
    data: dict[str, Any] = store(session_key).load()
    user_id, backend = data.get(SESSION_KEY), data.get(BACKEND_SESSION_KEY)
    if not user_id or backend not in settings.AUTHENTICATION_BACKENDS:
        return None
    return UUID(user_id), data.get(HASH_SESSION_KEY) or ""


def _still_holds(user: User, stored: str) -> bool:
    """Whether the password is still the one that the session was opened with."""
    hashes = [user.get_session_auth_hash(), *user.get_session_auth_fallback_hash()]
    return any(constant_time_compare(stored, current) for current in hashes)


def session_user(session_key: str | None) -> User | None:
    """The signed-in, active user of a session: None after sign-out, expiry, password change or deactivation.

    The same checks as `django.contrib.auth.get_user`, from a key instead of a request; two queries.
    """
    signed_in = _signed_in(session_key)
    if signed_in is None:
        return None
    user = User.objects.filter(pk=signed_in[0], is_active=True).first()
    return user if user is not None and _still_holds(user, signed_in[1]) else None


def session_actor(session_key: str | None, organization: str | None) -> Actor:
    """The actor of a session in `organization` (a slug; None: the one used last); two queries.

    Raises `SignedOutError` as `session_user` returns None, `StrangerError` for who is not an active member.
    """
    signed_in = _signed_in(session_key)
    if signed_in is None:
        raise SignedOutError
    rows = membership_rows(signed_in[0], organization)
    if not rows:
        if session_user(session_key) is None:
            raise SignedOutError
        raise StrangerError
    if not _still_holds(User(pk=signed_in[0], password=rows[0]["user__password"]), signed_in[1]):
        raise SignedOutError
    return actor_of(rows)


_keys = PreparedQuery(
    lambda hash, now: (
        ApiKey.objects.usable(now)
        .select_related("user", "organization")
        .filter(hash=hash, user__is_active=True, organization__is_active=True)
    ),
    str,
    datetime,
)


def key_of(authorization: str | None) -> ApiKey | None:
    """The usable API key in an `Authorization: Bearer` header, with its user and organization; one query."""
    scheme, _, secret = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        return None
    return _keys.first(digest(secret.strip()), timezone.now())


def touch(key: ApiKey) -> None:
    """Note that the key was used; a write at most once a minute."""
    now = timezone.now()
    if key.last_used_at is None or key.last_used_at < now - TOUCH_EVERY:
        ApiKey.objects.filter(pk=key.pk).update(last_used_at=now)


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
    """How somebody came in, kept so that they can be looked at again: a session or a key, and an organization.

    `organization` is a slug; None is the key's, or the one that the user used last.
    """

    organization: str | None
    session_key: str | None = None
    authorization: str | None = None

    @classmethod
    def of(cls, organization: str | None, *, authorization: str | None, cookie: str | None) -> Door:
        """With an `Authorization` header the key alone counts; else the session cookie of a `Cookie` header."""
        if authorization is not None:
            return cls(organization, authorization=authorization)
        return cls(organization, session_key=parse_cookie(cookie or "").get(settings.SESSION_COOKIE_NAME))

    def actor(self) -> Actor:
        """Who this is now, from fresh rows; two queries. Raises `SignedOutError` or `StrangerError`."""
        if self.authorization is None:
            return session_actor(self.session_key, self.organization)
        key = key_of(self.authorization)
        if key is None:
            raise SignedOutError(public_message="This API key is not valid (any more).")
        if self.organization not in (None, key.organization.slug):
            raise StrangerError
        actor = find_actor(key.user_id, key.organization_id, key=key)
        if actor is None:
            raise StrangerError
        touch(key)
        return actor

    def run(self, function: Callable[..., T], *args: Any) -> T:
        """`function(actor, *args)`: one unit of row work with a fresh actor."""
        return function(self.actor(), *args)
