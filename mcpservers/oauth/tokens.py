"""The token of one account, when it is wanted: renewed ahead of time or on refusal, redeemed once across processes."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Q
from django.utils import timezone

from chatui.rows import in_rows
from mcpservers.errors import ServerUnavailableError, SignInRequiredError
from mcpservers.models import LinkedAccount
from mcpservers.oauth import attempts, renewing
from mcpservers.oauth.tokenrows import State, TokenRow, read, read_all, rows_of

logger = logging.getLogger(__name__)
RIGHT_AFTER_SECONDS = 60.0  # a token refused so soon after it was renewed is not renewed again
FRESH_SECONDS = 1.0  # for which a reading counts as one of now
USED_SECONDS = 60.0  # how exactly the last use is remembered
IN_USE = timedelta(days=1)  # accounts that nobody used for longer are renewed when they are used
AT_ONCE, AT_MOST = 8, 500


class AccountTokens:
    """Gives the bearer tokens of one account, and only for the `binding` that it was made for.

    `key` names the account, in pools and logs; the server is named for when the account is gone.
    """

    def __init__(
        self, account_id: UUID, *, binding: str = "", server_id: UUID | None = None, slug: str = "", title: str = ""
    ) -> None:
        self.account_id, self.binding = account_id, binding
        self.server_id, self.slug, self.title = server_id or account_id, slug, title or "This server"
        self.key = f"account:{account_id}"
        self._just_read: tuple[float, TokenRow] | None = None

    @classmethod
    def of(cls, account: LinkedAccount) -> AccountTokens:
        """For an account that was just read, for the definition that it was linked to.

        The first token that is asked for, within a moment, is of that very reading: without a query.
        """
        server = account.server
        made = cls(account.pk, binding=account.binding, server_id=server.pk, slug=server.slug, title=server.title)
        made._just_read = time.monotonic(), TokenRow.of(account)
        return made

    async def current(self) -> str:
        """A token that is not about to expire. One query and no write while it is not due.

        Raises `SignInRequiredError`; `ServerUnavailableError` where it cannot be renewed just now.
        """
        row = await self._row()
        if row.is_due():
            row = await self._renewed(row)
        _note_use(row)
        return row.token

    async def renewed(self, refused: str) -> str:
        """Another token than `refused`, which the server answered with 401. Raises as `current`, and never loops."""
        row = await self._row()
        if row.token != refused:  # renewed meanwhile, by whomever
            return row.token if not row.is_due() else (await self._renewed(row)).token
        since = timezone.now() - row.renewed_at if row.renewed_at is not None else None
        if since is not None and since < timedelta(seconds=RIGHT_AFTER_SECONDS):
            await renewing.end(row, "The server did not accept a token that had just been renewed.")
            raise row.needs_person("refused")
        if not row.renewable:
            await renewing.end(row, "The server does not accept the token any more, and it cannot be renewed.")
            raise row.needs_person("expired")
        return (await renewing.newer(row)).token

    async def _row(self) -> TokenRow:
        (read_at, row), self._just_read = self._just_read or (0.0, None), None
        if row is None or time.monotonic() - read_at > FRESH_SECONDS:
            row = await in_rows(read, self.account_id)
        if row is None or (self.binding and row.binding != self.binding):
            raise SignInRequiredError(self.server_id, self.slug, self.title)
        if row.state != State.READY:
            raise row.needs_person("expired")
        return row

    async def _renewed(self, row: TokenRow) -> TokenRow:
        if not row.renewable:
            if row.lives(0):
                return row
            await renewing.end(row, "The sign-in has ended, and the server gave nothing to renew it with.")
            raise row.needs_person("expired")
        try:
            return await renewing.newer(row)
        except ServerUnavailableError:
            if row.lives():
                return row  # it was to be renewed ahead of time: there is time left
            raise


# --- Beside the way -----------------------------------------------------------------------------------------------


def _note_use(row: TokenRow) -> None:
    """Remember that it was used, at most once a minute, and without the caller waiting for it."""
    now = timezone.now()
    if row.last_used_at is None or now - row.last_used_at > timedelta(seconds=USED_SECONDS):
        task = asyncio.create_task(in_rows(_store_use, row.id, now))
        _noting.add(task)
        task.add_done_callback(_noted)


_noting: set[asyncio.Task[None]] = set()


def _noted(task: asyncio.Task[None]) -> None:
    _noting.discard(task)
    if not task.cancelled() and task.exception() is not None:
        logger.warning("The last use of an account could not be stored: %s", type(task.exception()).__name__)


def _store_use(account_id: UUID, now: datetime) -> None:
    rows_of(account_id).filter(Q(last_used_at=None) | Q(last_used_at__lt=now)).update(last_used_at=now)


@dataclass(frozen=True, slots=True)
class RefreshedTokens:
    """How many tokens were renewed ahead of time, and how many could not be."""

    renewed: int = 0
    failed: int = 0


async def refresh_due() -> RefreshedTokens:
    """Renew the tokens that expire soon, of accounts in use, some at a time; forget sign-ins never completed."""
    await in_rows(attempts.forget_old)
    due = await in_rows(_due)
    slots = asyncio.Semaphore(AT_ONCE)
    results = await asyncio.gather(*(_ahead(row, slots) for row in due))
    return RefreshedTokens(sum(results), len(results) - sum(results))


def _due() -> list[TokenRow]:
    now = timezone.now()
    accounts = LinkedAccount.objects.as_system().filter(
        state=State.READY, refresh_at__lte=now, last_used_at__gte=now - IN_USE, server__enabled=True
    )
    return read_all(accounts.order_by("refresh_at")[:AT_MOST])


async def _ahead(row: TokenRow, slots: asyncio.Semaphore) -> bool:
    async with slots:
        try:
            await renewing.newer(row)
        except (SignInRequiredError, ServerUnavailableError):
            return False
        return True
