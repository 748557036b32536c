"""Accounts that vanish with something else: revoked where they were linked, later, and nowhere else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, models
from django.utils import timezone

from accounts.actors import Actor
from accounts.models import AuditRecord
from chatui.rows import in_rows
from mcpservers import tasks
from mcpservers.models import LinkedAccount, MCPServer, Revocation
from mcpservers.oauth import accounts, revocations
from mcpservers.oauth.client_auth import Credentials
from mcpservers.oauth.revocation import UNREADABLE, Revocable
from tests.fakes import authfaults
from tests.fakes.authserver import FakeAuthServer
from tests.mcpservers.oauth.conftest import Link, Make
from tests.mcpservers.oauth.resource import Resource

# With whatever a row is deleted, the account is.
WITH = [
    field.name
    for field in LinkedAccount._meta.get_fields()
    if isinstance(field, models.ForeignKey) and field.remote_field.on_delete is models.CASCADE
]


@pytest.fixture
async def account(link: Link, make_server: Make, resource: Resource) -> LinkedAccount:
    return await link(await make_server(resource.url, oauth={"scopes": ["openid", "email"]}))


def moved(account: LinkedAccount) -> None:
    server = MCPServer.objects.as_system().get(pk=account.server_id)
    server.url, server.oauth = "https://elsewhere.example/mcp", {"client_id": "other", "client_secret": "new"}
    server.save()


def gone(account: LinkedAccount, way: str) -> None:
    match way:
        case "moved":
            moved(account)
        case "several":
            LinkedAccount.objects.as_system().all().delete()
        case _:
            getattr(account, way).delete()


@pytest.mark.parametrize("way", [*WITH, "several", "moved"])
async def test_whatever_it_goes_with_an_account_is_revoked_where_it_was_linked(
    account: LinkedAccount, auth: FakeAuthServer, way: str
) -> None:
    assert set(WITH) == {"organization", "server", "user"}, "another way: is it revoked there?"
    await in_rows(gone, account, way)
    assert auth.count("revoke") == 0, "nobody waited for it"
    assert not any([each.tokens async for each in LinkedAccount.objects.as_system()])
    row = await Revocation.objects.as_system().aget()
    assert account.tokens["refresh_token"] not in str(await _stored()), "kept, encrypted"
    assert (row.account_id, row.server, row.person_id) == (account.pk, "notes", account.user_id)
    done = await revocations.revoke_due()
    assert (done.done, done.failed) == (1, 0)
    assert auth.valid(account.tokens["access_token"]) is None
    assert not auth.memory.tokens[account.tokens["refresh_token"]].active
    assert not await Revocation.objects.as_system().aexists()
    entry = await AuditRecord.objects.aget(action="link.revoked")
    assert (entry.account_id, entry.person_id, entry.via) == (account.pk, account.user_id, "system")


async def _stored() -> list[Any]:
    def read() -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT what FROM mcpservers_revocation")
            return list(cursor.fetchall())

    return await in_rows(read)


async def test_a_server_that_is_changed_without_moving_or_could_not_be_saved_leaves_its_accounts_linked(
    account: LinkedAccount,
) -> None:
    def change() -> None:
        server = MCPServer.objects.as_system().get(pk=account.server_id)
        server.title = "Other"
        server.save()
        server.url, server.title = "https://elsewhere.example/mcp", None
        with pytest.raises(IntegrityError):
            server.save()

    await in_rows(change)
    assert not await Revocation.objects.as_system().aexists()


async def test_what_fails_for_now_is_tried_again_a_number_of_times_and_what_is_given_up_is_in_the_audit(
    account: LinkedAccount, auth: FakeAuthServer
) -> None:
    auth.on("revoke", authfaults.status(503))
    await in_rows(account.server.delete)
    rows = Revocation.objects.as_system()
    for attempt in range(1, len(revocations.PAUSES) + 1):
        assert (await revocations.revoke_due()).failed == 1
        row = await rows.aget()
        assert row.attempts == attempt
        assert (await revocations.revoke_due()) == revocations.Revoked(), "not before its time"
        await rows.aupdate(due_at=timezone.now() - timedelta(seconds=1))
    await revocations.revoke_due()
    assert not await rows.aexists()
    entry = await AuditRecord.objects.aget(action="link.not_revoked")
    assert (entry.account_id, "HTTP 503" in entry.reason) == (account.pk, True)


async def test_who_disconnects_is_told_what_failed_and_it_is_tried_again(
    account: LinkedAccount, actor: Actor, auth: FakeAuthServer
) -> None:
    auth.on("revoke", authfaults.status(503))
    assert (await accounts.disconnect(actor, account.pk)).warning
    auth.on("revoke", None)
    await Revocation.objects.as_system().aupdate(due_at=timezone.now())
    assert (await revocations.revoke_due()).done == 1
    assert not auth.memory.tokens[account.tokens["refresh_token"]].active


async def test_where_there_is_no_way_to_revoke_the_audit_says_so(
    link: Link, make_server: Make, resource: Resource, auth: FakeAuthServer
) -> None:
    auth.metadata_changes = {"revocation_endpoint": None}
    account = await link(await make_server(resource.url))
    await in_rows(gone, account, "user")
    assert not await Revocation.objects.as_system().aexists()
    assert "no way to be told" in (await AuditRecord.objects.aget(action="link.not_revoked")).reason


def _make_unreadable(table: str, *columns: str) -> None:
    with connection.cursor() as cursor:
        for column in columns:
            cursor.execute(f"UPDATE {table} SET {column} = 'gAAAAA-of-another-key'")


@pytest.mark.parametrize("way", [*WITH, "moved"])
async def test_what_nobody_has_the_key_to_any_more_goes_all_the_same_and_the_audit_says_that_it_was_not_revoked(
    account: LinkedAccount, way: str
) -> None:
    def go() -> None:
        _make_unreadable("mcpservers_linkedaccount", "tokens")
        if way == "user":
            _make_unreadable("mcpservers_mcpserver", "headers", "env", "oauth")
        gone(account, way)

    await in_rows(go)
    assert not await Revocation.objects.as_system().aexists()
    assert (await AuditRecord.objects.aget(action="link.not_revoked")).reason == UNREADABLE


async def test_one_that_nobody_has_the_key_to_any_more_keeps_no_other_from_being_revoked(
    account: LinkedAccount, auth: FakeAuthServer
) -> None:
    def go() -> None:
        revocations.after_failure(account, Revocable("", "", (), Credentials("", ""), {}))
        _make_unreadable("mcpservers_revocation", "what")
        account.delete()
        Revocation.objects.as_system().update(due_at=timezone.now())

    await in_rows(go)
    assert (await revocations.revoke_due()).done == 1
    assert not auth.memory.tokens[account.tokens["refresh_token"]].active
    assert not await Revocation.objects.as_system().aexists()
    assert (await AuditRecord.objects.aget(action="link.not_revoked")).reason == UNREADABLE


@pytest.mark.django_db(transaction=True)
def test_the_task_with_nothing_to_revoke_is_done_at_once() -> None:
    tasks.revoke_tokens()
