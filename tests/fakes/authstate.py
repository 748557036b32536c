"""What the fake authorization server remembers: people, clients, codes and tokens, without any HTTP."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

JSON = dict[str, Any]


class OAuthRefusal(Exception):
    """An error of RFC 6749 5.2 or 4.1.2.1: `error`, `description`, and the HTTP status at the token endpoint."""

    def __init__(self, error: str, description: str = "", status: int = 400) -> None:
        super().__init__(f"{error}: {description}")
        self.error, self.description, self.status = error, description, status


@dataclass(frozen=True)
class Person:
    """Who may sign in on the consent page. `subject` is the `sub` of OpenID Connect."""

    username: str
    subject: str
    name: str
    email: str


PEOPLE = (
    Person("ada", "sub-ada", "Ada Lovelace", "ada@notes.example"),
    Person("grace", "sub-grace", "Grace Hopper", "grace@notes.example"),
)


@dataclass
class Client:
    """A registered client. `metadata` is what it said of itself; `secret` "" for a public one.

    The method `client_secret` is ours: it takes the secret as Basic or in the form.
    """

    id: str
    secret: str = ""
    auth_method: str = "none"
    redirect_uris: tuple[str, ...] = ()
    source: str = "configured"  # "configured" | "dynamic" | "document"
    metadata: JSON = field(default_factory=dict)
    key: str = ""  # PEM of the public key for private_key_jwt, if not in metadata["jwks"]


@dataclass
class Token:
    """An authorization code, access token or refresh token. `family`: everything that came from one consent."""

    value: str
    kind: str  # "code" | "access" | "refresh"
    client_id: str
    person: Person | None
    scopes: tuple[str, ...]
    resource: str = ""
    family: str = ""
    expires_at: float = 0.0
    revoked: bool = False
    spent: bool = False
    redirect_uri: str = ""
    challenge: str = ""
    nonce: str = ""
    audience: str = ""
    actor: str = ""  # the client that acts on behalf of `person`, after an exchange
    jkt: str = ""  # the thumbprint of the key that it is bound to

    @property
    def active(self) -> bool:
        return not (self.revoked or self.spent) and time.time() < self.expires_at


class Memory:
    """Clients and tokens, in the order in which they were made."""

    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}
        self.tokens: dict[str, Token] = {}
        self.assertions: set[str] = set()  # `jti` of client assertions seen

    def issue(self, kind: str, *, seconds: float, **fields: Any) -> Token:
        prefix = {"code": "c", "access": "at", "refresh": "rt"}[kind]
        fields.setdefault("family", secrets.token_hex(8))
        token = Token(f"{prefix}-{secrets.token_urlsafe(24)}", kind, expires_at=time.time() + seconds, **fields)
        self.tokens[token.value] = token
        return token

    def find(self, value: str, kind: str) -> Token | None:
        token = self.tokens.get(value)
        return token if token is not None and token.kind == kind else None

    def issued(self, kind: str) -> list[Token]:
        return [token for token in self.tokens.values() if token.kind == kind]

    def revoke_family(self, family: str) -> None:
        self._revoke(token for token in self.tokens.values() if token.family == family)

    def revoke_all(self, kind: str | None = None) -> None:
        """Every token, or every one of a kind, is refused from now on."""
        self._revoke(token for token in self.tokens.values() if kind in (None, token.kind))

    def expire_all(self, kind: str = "access") -> None:
        for token in self.issued(kind):
            token.expires_at = 0.0

    @staticmethod
    def _revoke(tokens: Iterable[Token]) -> None:
        for token in tokens:
            token.revoked = True


def words(text: str | None) -> tuple[str, ...]:
    return tuple((text or "").split())


def within(asked: Sequence[str], allowed: Iterable[str]) -> bool:
    return set(asked) <= set(allowed)


def bent(said: JSON, changes: JSON) -> JSON:
    """`said` with `changes`; those that are None are left out."""
    merged = said | changes
    return {name: value for name, value in merged.items() if not (name in changes and value is None)}
