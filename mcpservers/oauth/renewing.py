"""Renewing the tokens of an account: by whom (one process), where (its own issuer), and what becomes of the account."""

from __future__ import annotations

import asyncio
import time
import weakref
from typing import Any
from uuid import UUID

from django.utils import timezone

from accounts import audit
from accounts.audit import Target
from chatui.rows import in_rows
from mcpservers.errors import LinkError, ServerUnavailableError, SignInRequiredError, account_refused
from mcpservers.models import LinkedAccount, OAuthClient
from mcpservers.oauth import client_auth, dpop, leases, machine, registration
from mcpservers.oauth.discovery import lately
from mcpservers.oauth.grants import Granted, GrantRefusedError, request_token
from mcpservers.oauth.tokenrows import State, TokenRow, read, rows_of
from mcpservers.oauth.web import Web

_Running = dict[UUID, asyncio.Task[TokenRow]]
_running: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Running] = weakref.WeakKeyDictionary()


async def newer(row: TokenRow) -> TokenRow:
    """The account with newer tokens than `row` has. One asks for all in a process; among processes the lease decides.

    Raises `SignInRequiredError`, `ServerUnavailableError`.
    """
    running = _running.setdefault(asyncio.get_running_loop(), {})
    while True:
        task = running.get(row.id)
        if task is None or task.done():
            task = running[row.id] = asyncio.create_task(_wait_or_redeem(row), name=f"tokens-{row.id}")
            task.add_done_callback(lambda done: _ended(running, row.id, done))
        found = await asyncio.shield(task)  # whoever leaves, the redeemed token is stored
        if found.version > row.version:  # else it was on its way before `row` was read
            return found


def _ended(running: _Running, account_id: UUID, done: asyncio.Task[TokenRow]) -> None:
    if running.get(account_id) is done:
        del running[account_id]
    if not done.cancelled():
        done.exception()  # seen, even if nobody waits any more


async def _wait_or_redeem(old: TokenRow) -> TokenRow:
    deadline = time.monotonic() + leases.WAIT_SECONDS
    row: TokenRow | None = old
    while True:
        if row is None:
            raise SignInRequiredError(old.server_id, old.slug, old.title)
        if row.version != old.version:
            if row.state != State.READY:
                raise row.needs_person("expired")
            return row
        if await in_rows(leases.lease, rows_of(row.id), row.version):
            return await _redeem(row)
        if time.monotonic() > deadline:
            raise ServerUnavailableError(
                f"Another process renews the sign-in to “{row.title}” and does not end.",
                public_message=f"Your sign-in to “{row.title}” is being renewed. Try again in a moment.",
            )
        await asyncio.sleep(leases.LOOK_SECONDS)
        row = await in_rows(read, old.id)


async def _redeem(row: TokenRow) -> TokenRow:
    """Redeem, with the lease held, and store. Raises `SignInRequiredError`, `ServerUnavailableError`."""
    try:
        async with asyncio.timeout(leases.REDEEM_SECONDS):
            account = await in_rows(_account, row.id)
            granted = await (machine.redeem(account) if account.user_id is None else _refresh(account))
    except LinkedAccount.DoesNotExist:
        raise SignInRequiredError(row.server_id, row.slug, row.title) from None
    except _EndedError as ended:
        await end(row, str(ended))
        raise row.needs_person("expired") from None
    except machine.AssertionRefusedError as refused:
        await end(row, str(refused))
        raise account_refused(row.title, str(refused)) from None
    except (LinkError, GrantRefusedError, TimeoutError) as error:
        await in_rows(leases.give_back, rows_of(row.id), row.version, last_error=_words(error))
        raise _not_now(row, error) from None
    except BaseException:
        await asyncio.shield(in_rows(leases.give_back, rows_of(row.id), row.version))
        raise
    now = timezone.now()
    tokens = granted.tokens(row.tokens)
    values: dict[str, Any] = {
        "tokens": tokens,
        "state": State.READY,
        "last_error": "",
        "renewed_at": now,
        **granted.times(now, renewable=row.user_id is None or "refresh_token" in tokens),
    }
    if row.user_id is None:
        values |= {"issuer": account.issuer, "resource": account.resource, "client": account.client}
    if granted.scopes is not None:
        values["scopes"] = list(granted.scopes)
    await in_rows(leases.settle, rows_of(row.id), row.version, **values)
    stored = await in_rows(read, row.id)
    if stored is None:
        raise SignInRequiredError(row.server_id, row.slug, row.title)
    if stored.state != State.READY:
        raise stored.needs_person("expired")
    return stored


def _account(account_id: UUID) -> LinkedAccount:
    account: LinkedAccount = LinkedAccount.objects.as_system().select_related("server", "client").get(pk=account_id)
    return account


class _EndedError(Exception):
    """The grant is gone for good; the text is for people."""


async def _refresh(account: LinkedAccount) -> Granted:
    """RFC 6749, section 6, at the issuer that gave the token. Raises `_EndedError` and what redeeming raises."""
    discovered, client = await lately(account.server), account.client
    if discovered.issuer != account.issuer or client is None:  # the server names another one now
        raise _EndedError("The sign-in service of this server has changed.")
    form = {"grant_type": "refresh_token", "refresh_token": str(account.tokens.get("refresh_token") or "")}
    if account.resource:
        form["resource"] = account.resource
    credentials = client_auth.credentials_of(client, account.server)
    async with Web(extra=account.server.allowances) as web:
        try:
            key = str(account.tokens.get(dpop.KEY) or "")
            return await request_token(web, discovered.token_endpoint, discovered.issuer, credentials, form, key=key)
        except GrantRefusedError as refusal:
            if refusal.of_client and client.source == OAuthClient.Source.DYNAMIC:
                await in_rows(registration.drop, client.pk)
                raise _EndedError("The sign-in service has forgotten this product.") from None
            if refusal.passing or refusal.of_client:
                raise
            raise _EndedError(f"The sign-in service ended the sign-in ({refusal.error}).") from None


def _words(error: Exception) -> str:
    match error:
        case LinkError():
            return error.for_admin
        case GrantRefusedError():
            return f"The token endpoint refused: {error}"
    return "The sign-in service did not answer in time."


def _not_now(row: TokenRow, error: Exception) -> ServerUnavailableError:
    whose = "The organization's sign-in" if row.user_id is None else "Your sign-in"
    return ServerUnavailableError(
        f"The tokens of an account at “{row.title}” could not be renewed: {_words(error)}",
        public_message=f"{whose} to “{row.title}” could not be renewed just now. Try again later.",
    )


async def end(row: TokenRow, why: str) -> None:
    """The account must be linked again. A machine account keeps trying: what ails it is for an admin to mend."""
    await in_rows(_end_row, row, why)


def _end_row(row: TokenRow, why: str) -> None:
    if row.user_id is None:
        leases.give_back(rows_of(row.id), row.version, last_error=why)
        return
    ended = leases.settle(rows_of(row.id), row.version, tokens={}, state=State.RELINK, refresh_at=None, last_error=why)
    if ended:
        organization_id = rows_of(row.id).values_list("organization_id", flat=True).first()
        audit.record(
            "link.changed",
            organization_id=organization_id,
            target=Target("account", row.id),
            person_id=row.user_id,
            server_id=row.server_id,
            server=row.slug,
            account_id=row.id,
            reason=why,
            details={"state": "relink"},
        )
