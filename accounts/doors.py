"""The doors' first step: from a session key or an API key to a user, with everything re-read."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.utils.crypto import constant_time_compare

from accounts.models import ApiKey, User, digest

if TYPE_CHECKING:
    from django.contrib.sessions.backends.base import SessionBase


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
