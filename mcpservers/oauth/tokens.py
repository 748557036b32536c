"""The token of one account, when it is wanted: refreshed ahead of time or on refusal, redeemed once across processes."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from mcpservers.models import LinkedAccount


class AccountTokens:
    """Gives the bearer tokens of one account, and only for the `binding` that it was made for.

    `key` names the account, in pools and logs.
    """

    def __init__(self, account_id: UUID, *, binding: str = "") -> None:
        self.account_id, self.binding = account_id, binding
        self.key = f"account:{account_id}"

    async def current(self) -> str:
        """A token that is not about to expire. Raises `SignInRequiredError`, or `ServerUnavailableError` for now."""
        raise NotImplementedError

    async def renewed(self, refused: str) -> str:
        """Another token than `refused`, which the server answered with 401. Raises as `current`, and never loops."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class RefreshedTokens:
    """How many tokens were renewed ahead of time, and how many could not be."""

    renewed: int = 0
    failed: int = 0


async def refresh_due() -> RefreshedTokens:
    """Renew the tokens that expire soon, of accounts in use; for Celery beat."""
    raise NotImplementedError


async def revoke(account: LinkedAccount) -> str:
    """Tell the authorization server to forget the account's tokens (RFC 7009); "" or why that failed. Never raises."""
    raise NotImplementedError
