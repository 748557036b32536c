"""An account's tokens as one query reads them, and what can be said of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import F
from django.utils import timezone

from chatui.errors import ChatUIError
from mcpservers.errors import SignInReason, SignInRequiredError, account_refused
from mcpservers.models import LinkedAccount
from mcpservers.oauth.dpop import token_in

State = LinkedAccount.State
LEAST_SECONDS = 5.0  # what a token must still live to be sent


@dataclass(frozen=True, slots=True)
class TokenRow:
    """An account as one query reads it."""

    id: UUID
    server_id: UUID
    slug: str
    title: str
    name: str
    user_id: UUID | None
    binding: str
    state: str
    version: int
    expires_at: datetime | None
    refresh_at: datetime | None
    renewed_at: datetime | None
    last_used_at: datetime | None
    scopes: list[str]
    tokens: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, account: LinkedAccount) -> TokenRow:
        """The same of an account that was just read, with its server."""
        values = {name: getattr(account, name) for name in _COLUMNS}
        return cls(id=account.pk, slug=account.server.slug, title=account.server.title, **values)

    @property
    def token(self) -> str:
        return token_in(self.tokens)

    @property
    def renewable(self) -> bool:
        return self.user_id is None or "refresh_token" in self.tokens

    def lives(self, seconds: float = LEAST_SECONDS) -> bool:
        """Whether the token can be sent, as far as we know."""
        return bool(self.token) and (
            self.expires_at is None or self.expires_at > timezone.now() + timedelta(seconds=seconds)
        )

    def is_due(self) -> bool:
        """Whether it should be renewed before it is used."""
        return not self.lives() or (self.refresh_at is not None and self.refresh_at <= timezone.now())

    def needs_person(self, reason: SignInReason) -> ChatUIError:
        """The error for a token that cannot be had: for a machine account no sign-in of a person helps."""
        if self.user_id is None:
            return account_refused(self.title)
        return SignInRequiredError(
            self.server_id,
            self.slug,
            self.title,
            reason=reason,
            scopes=self.scopes,
            account=self.name,
            account_id=self.id,
        )


_COLUMNS = (
    *("server_id", "name", "user_id", "binding", "state", "version", "expires_at", "refresh_at", "renewed_at"),
    *("last_used_at", "scopes", "tokens"),
)


def rows_of(account_id: UUID) -> Any:
    return LinkedAccount.objects.as_system().filter(pk=account_id)


def read(account_id: UUID) -> TokenRow | None:
    return next(iter(read_all(rows_of(account_id))), None)


def read_all(rows: Any) -> list[TokenRow]:
    """The accounts of a query; one query."""
    named = rows.values("id", *_COLUMNS, slug=F("server__slug"), title=F("server__title"))
    return [TokenRow(**values) for values in named]
