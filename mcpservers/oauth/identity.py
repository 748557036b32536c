"""Whose account it is, as far as the server says: for its name on our pages, and to know it again. Never for access."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from chatui.text import clean_json, shorten
from mcpservers.errors import LinkError
from mcpservers.oauth.grants import Granted
from mcpservers.oauth.metadata import Discovered
from mcpservers.oauth.web import Web
from mcpservers.visible import visible

LONGEST_NAME = 100
_NAMES = ("email", "preferred_username", "username", "login", "name", "workspace_name")


@dataclass(frozen=True, slots=True)
class Identity:
    """`name` for people, `subject` for us; "" where the server does not say."""

    name: str = ""
    subject: str = ""


async def identify(web: Web, granted: Granted, discovered: Discovered, client_id: str) -> Identity:
    """Who signed in: by the id token, the userinfo endpoint, or what came with the tokens; perhaps nobody known."""
    claims = claims_of(granted.id_token, discovered.issuer, client_id)
    if not _name(claims) and "openid" in (granted.scopes or discovered.scopes):
        told = await _userinfo(web, granted, discovered)
        if not claims or told.get("sub") == claims.get("sub"):  # OpenID Connect Core, 5.3.2
            claims = {**told, **claims}
    subject = claims.get("sub")
    return Identity(
        name=_name(claims) or _name(granted.said) or tidy_name(subject),
        subject=subject if isinstance(subject, str) and len(subject) <= 255 else "",
    )


def claims_of(id_token: str, issuer: str, client_id: str) -> dict[str, Any]:
    """The claims of an id token that its issuer gave us itself (OpenID Connect Core, 3.1.3.7); {} if it is not ours.

    Its signature adds nothing to the TLS that it came through, and no access hangs on it.
    """
    try:
        payload = id_token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        if not isinstance(claims, dict):
            return {}
        claims = clean_json(claims)
    except (IndexError, ValueError, RecursionError):
        return {}
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    return claims if claims.get("iss") == issuer and client_id in audiences else {}


async def _userinfo(web: Web, granted: Granted, discovered: Discovered) -> dict[str, Any]:
    place = discovered.userinfo_endpoint
    if not place or urlsplit(place).netloc != urlsplit(discovered.token_endpoint).netloc:
        return {}
    try:
        answer = await web.get(place, token=granted.token)
    except LinkError:
        return {}
    return (answer.json() or {}) if answer.status == 200 else {}


def _name(claims: Mapping[str, Any]) -> str:
    return next(filter(None, (tidy_name(claims.get(key)) for key in _NAMES)), "")


def tidy_name(value: object) -> str:
    """A name as it may be shown: one line without hidden characters, at most 100 long; "" if it is none."""
    return shorten(visible(value), LONGEST_NAME) if isinstance(value, str) else ""


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """`wanted` if no other account has it, else with a number; “Account 1” where the server told none."""
    names = set(taken)
    if wanted and wanted not in names:
        return wanted
    pattern, number = (f"{wanted} ({{}})", 2) if wanted else ("Account {}", 1)
    while pattern.format(number) in names:
        number += 1
    return pattern.format(number)
