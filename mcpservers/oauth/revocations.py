"""Accounts that vanish with something else are revoked too, in the background: what it takes is kept until then.

Whoever deletes a person, a server or an organization, or gives a server another address, waits for nobody. Every way in
which an account can vanish passes here (`mcpservers.departing`); who disconnects one is told at once how it went.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from accounts import audit
from accounts.audit import Target
from accounts.models import AuditAction
from chatui.fields import DecryptionError
from chatui.rows import in_rows, writing
from mcpservers.models import LinkedAccount, MCPServer, Revocation
from mcpservers.oauth.revocation import UNREADABLE, Revocable, Told, revocable, tell

AT_MOST, AT_ONCE = 100, 8
SECONDS = 60.0  # for one account
# After how long it is tried again: about a day in all.
PAUSES = tuple(timedelta(minutes=minutes) for minutes in (1, 4, 16, 64, 256, 1024))


def to_revoke(account: LinkedAccount, server: MCPServer) -> Revocation | None:
    """What is to be kept of an account that goes, unsaved; None if there is nothing to revoke it with.

    Where there should be, the audit says why not.
    """
    try:
        found = revocable(account, server) if account.tokens else None
    except DecryptionError:
        found = UNREADABLE
    if found is None:
        return None
    if isinstance(found, str):
        _record(_of(account, server), AuditAction.LINK_NOT_REVOKED, found)
        return None
    return _of(account, server, what=found.as_json())


def _of(account: LinkedAccount, server: MCPServer, **fields: Any) -> Revocation:
    return Revocation(
        organization_id=server.organization_id,
        server_id=server.pk,
        server=server.slug,
        account_id=account.pk,
        person_id=account.user_id,
        **fields,
    )


def after_failure(account: LinkedAccount, what: Revocable) -> None:
    """Try again what failed while a person waited for it."""
    row = _of(account, account.server, what=what.as_json(), attempts=1, due_at=timezone.now() + PAUSES[0])
    with writing():
        row.save()


def again_later(row: Revocation, told: Told) -> None:
    """Note how an attempt went: done, to be made again, or given up."""
    with writing():
        if not told.warning:
            _record(row, AuditAction.LINK_REVOKED)
        elif not told.again or row.attempts > len(PAUSES):
            _record(row, AuditAction.LINK_NOT_REVOKED, told.warning)
        else:
            return  # it is due again as it was claimed
        Revocation.objects.as_system().filter(pk=row.pk).delete()


@dataclass(frozen=True, slots=True)
class Revoked:
    """How many accounts were revoked, and how many could not be (yet)."""

    done: int = 0
    failed: int = 0


async def revoke_due() -> Revoked:
    """Tell the authorization servers of what is due; nobody else tells the same meanwhile."""
    slots = asyncio.Semaphore(AT_ONCE)
    results = await asyncio.gather(*(_revoke(id, slots) for id in await in_rows(_due)))
    made = [done for done in results if done is not None]
    return Revoked(sum(made), len(made) - sum(made))


def _due() -> list[UUID]:
    rows = Revocation.objects.as_system().filter(due_at__lte=timezone.now()).order_by("due_at")
    return list(rows.values_list("pk", flat=True)[:AT_MOST])


async def _revoke(id: UUID, slots: asyncio.Semaphore) -> bool | None:
    async with slots:
        row = await in_rows(_claimed, id)
        if row is None:
            return None
        try:
            async with asyncio.timeout(SECONDS):
                told = await tell(Revocable.from_json(row.what))
        except TimeoutError:
            told = Told("The sign-in service did not answer in time.", again=True)
        await in_rows(again_later, row, told)
        return not told.warning


def _claimed(id: UUID) -> Revocation | None:
    """The row, due again after a pause, for whoever claims it first."""
    rows = Revocation.objects.as_system().filter(pk=id)
    try:
        row: Revocation | None = rows.first()
    except DecryptionError:
        again_later(rows.defer("what").get(), Told(UNREADABLE))
        return None
    if row is None or row.due_at > timezone.now():
        return None
    pause = PAUSES[min(row.attempts, len(PAUSES) - 1)]
    with writing():
        claimed = rows.filter(attempts=row.attempts).update(attempts=row.attempts + 1, due_at=timezone.now() + pause)
    row.attempts += 1
    return row if claimed else None


def _record(row: Revocation, action: AuditAction, reason: str = "") -> None:
    audit.record(
        action,
        organization_id=row.organization_id,
        target=Target("account", row.account_id),
        person_id=row.person_id,
        server_id=row.server_id,
        server=row.server,
        account_id=row.account_id,
        reason=reason,
    )


# --- Ways in which an account vanishes --------------------------------------------------------------------------------


def account_goes(instance: LinkedAccount, **_: Any) -> None:
    """Before an account is deleted, with whatever."""
    if getattr(instance, "revoked_by_hand", False):
        return
    row = to_revoke(instance, _server_of(instance))
    if row is not None:
        row.save()


def _server_of(account: LinkedAccount) -> MCPServer:
    """Its secrets are read if they are needed: an account goes even if nobody has the key to them any more."""
    server: MCPServer = MCPServer.objects.as_system().defer("headers", "env", "oauth").get(pk=account.server_id)
    return server


def server_moves(instance: MCPServer, update_fields: Any = None, **_: Any) -> None:
    """Before a server is saved: what was linked to another address, with what was stored for that."""
    moving: Any = instance
    moving.left_behind = []
    if instance._state.adding or (update_fields is not None and not {"url", "oauth"} & set(update_fields)):
        return
    try:
        before = MCPServer.objects.as_system().defer("headers", "env").filter(pk=instance.pk).first()
    except DecryptionError:
        return  # who linked what with a definition that nobody can read is not known
    if before is None or before.oauth_binding() == instance.oauth_binding():
        return
    linked = LinkedAccount.objects.as_system().filter(server_id=before.pk, binding=before.oauth_binding())
    rows = [to_revoke(account, before) for account in linked.defer("tokens")]
    moving.left_behind = [row for row in rows if row is not None]


def server_moved(instance: MCPServer, **_: Any) -> None:
    """After it was saved: not before, since a save may fail."""
    moving: Any = instance
    for row in moving.__dict__.pop("left_behind", ()):
        row.save()
