"""The random value that ties a sign-in to the browser that began it, kept in the session and nowhere else."""

from __future__ import annotations

import secrets

from django.contrib.sessions.backends.base import SessionBase

KEY = "mcp_sign_in_browser"


def browser_of(session: SessionBase) -> str:
    """The value of this browser, made when it is first wanted; several sign-ins at once share it."""
    value = known_browser(session)
    if not value:
        value = session[KEY] = secrets.token_urlsafe(32)
    return value


def known_browser(session: SessionBase) -> str:
    """The value of this browser; "" for one that has begun nothing."""
    value = session.get(KEY)
    return value if isinstance(value, str) else ""
