"""What a request to a server is signed with: bearer tokens, asked for when they are wanted, and values that change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlencode
from uuid import UUID

from mcpservers.oauth.challenges import Challenge

if TYPE_CHECKING:
    from mcpservers.errors import SignInRequiredError
    from mcpservers.models import LinkedAccount

LATE_NAMESPACES = ("openid.", "obo.")  # placeholders whose values are tokens, which change while a connection lives


class TokenSource(Protocol):
    """Where the bearer tokens of one account come from. A connection holds the source, never a token."""

    @property
    def key(self) -> str:
        """Names the account, in pools and logs."""
        ...

    async def current(self) -> str:
        """A token that is not about to expire. Raises `SignInRequiredError`, or `ServerUnavailableError` for now."""
        ...

    async def renewed(self, refused: str) -> str:
        """Another token than `refused`, which the server answered with 401. Raises as `current`, and never loops."""
        ...


LateValues = Callable[[], Awaitable[Mapping[str, str]]]  # the values of `LATE_NAMESPACES` that a definition uses, now


@dataclass(frozen=True, slots=True)
class Account:
    """The linked account that a target acts with. `link` changes when it is linked anew, not when it is refreshed."""

    id: UUID
    name: str
    scopes: tuple[str, ...]
    link: str

    @classmethod
    def of(cls, row: LinkedAccount) -> Account:
        linked = [row.binding, row.issuer, row.subject, sorted(row.scopes), str(row.client_id)]
        return cls(row.pk, row.name, tuple(row.scopes), hashlib.sha256(json.dumps(linked).encode()).hexdigest()[:16])


@dataclass(frozen=True, slots=True)
class SignIn:
    """What a person needs for a sign-in: the card of the chat. `url` is a path of this site."""

    server: str  # slug
    title: str
    url: str
    scopes: tuple[str, ...]
    account: str  # "" for a first one
    host: str
    message: str
    new_scopes: tuple[str, ...] = ()  # of `scopes`: beyond what the account has

    def card(self) -> dict[str, object]:
        """As `PersonNeeded.card` and `authorization.required` have it."""
        return {
            "server": self.server,
            "title": self.title,
            "url": self.url,
            "scopes": list(self.scopes),
            "new_scopes": list(self.new_scopes),
            "account": self.account or None,
            "host": self.host,
        }


def sign_in_of(organization_slug: str, error: SignInRequiredError) -> SignIn:
    """Where `error` sends a member of the organization."""
    asked = {"account": str(error.account_id or ""), "scopes": " ".join(error.scopes)}
    query = urlencode({name: value for name, value in asked.items() if value})
    url = f"/o/{organization_slug}/connections/{error.slug}/begin" + (f"?{query}" if query else "")
    return SignIn(
        error.slug, error.title, url, error.scopes, error.account, error.host, error.public_message, error.new_scopes
    )


def wants_more(challenge: Challenge) -> bool:
    """Whether the server says that the token is good, but does not allow enough (RFC 6750, section 3.1)."""
    return challenge.error == "insufficient_scope"


def union(*scopes: Sequence[str]) -> tuple[str, ...]:
    """All of them, in order, each once."""
    return tuple(dict.fromkeys(scope for some in scopes for scope in some))
