"""Tokens when they are wanted: current, renewed, and never redeemed twice."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import AuditRecord, Organization, User
from chatui.rows import in_rows
from mcpservers.errors import ServerUnavailableError, SignInRequiredError
from mcpservers.models import LinkedAccount, MCPServer, OAuthClient, OAuthDiscovery
from mcpservers.oauth import leases, tokenrows, tokens
from mcpservers.oauth.discovery import discover
from mcpservers.oauth.tokens import AccountTokens, refresh_due
from tests.fakes import authfaults
from tests.fakes.authserver import FakeAuthServer
from tests.mcpservers.oauth.conftest import Link, tokens_of
from tests.mcpservers.oauth.resource import Resource


def refreshes(auth: FakeAuthServer) -> int:
    return sum(heard.form.get("grant_type") == "refresh_token" for heard in auth.requests_of("token"))


async def change(account: LinkedAccount, **values: Any) -> None:
    await LinkedAccount.objects.as_system().filter(pk=account.pk).aupdate(**values)


async def expire(account: LinkedAccount) -> None:
    past = timezone.now() - timedelta(seconds=1)
    await change(account, expires_at=past, refresh_at=past)


async def stored(account: LinkedAccount) -> LinkedAccount:
    row: LinkedAccount = await LinkedAccount.objects.as_system().select_related("server", "client").aget(pk=account.pk)
    return row


async def asked(source: AccountTokens, refused: str = "") -> SignInRequiredError:
    with pytest.raises(SignInRequiredError) as raised:
        await (source.renewed(refused) if refused else source.current())
    return raised.value


# --- While it holds ---------------------------------------------------------------------------------------------------


async def test_a_valid_token_costs_one_query_and_no_write(link: Link, server: MCPServer, auth: FakeAuthServer) -> None:
    source = tokens_of(await link(server))
    before = len(auth.requests)

    def read() -> Any:
        with CaptureQueriesContext(connection) as queries:
            row = tokenrows.read(source.account_id)
        return row, [query["sql"] for query in queries]

    row, queries = await in_rows(read)
    assert len(queries) == 1
    assert queries[0].startswith("SELECT")
    assert row is not None
    assert not row.is_due()
    assert await source.current() == row.token
    assert len(auth.requests) == before
    assert not tokens._noting  # nothing is written beside the way either


async def test_the_last_use_is_remembered_to_the_minute(link: Link, server: MCPServer) -> None:
    account = await link(server)
    long_ago = timezone.now() - timedelta(hours=1)
    await change(account, last_used_at=long_ago)
    await tokens_of(account).current()
    await asyncio.gather(*tokens._noting)
    used = (await stored(account)).last_used_at
    assert used is not None
    assert used > long_ago
    await tokens_of(account).current()
    assert not tokens._noting


async def test_a_token_of_an_unknown_lifetime_is_used_until_it_is_refused(
    link: Link, server: MCPServer, auth: FakeAuthServer
) -> None:
    auth.token_changes = {"expires_in": None}
    account = await link(server)
    source = tokens_of(account)
    token = await source.current()
    assert refreshes(auth) == 0
    assert await source.renewed(token) != token
    assert refreshes(auth) == 1


# --- Renewing ---------------------------------------------------------------------------------------------------------


async def test_an_expired_token_is_renewed_before_it_is_used(
    link: Link, server: MCPServer, auth: FakeAuthServer
) -> None:
    account = await link(server)
    await expire(account)
    token = await tokens_of(account).current()
    assert auth.valid(token) is not None
    row = await stored(account)
    assert (row.version, row.refreshing_until, row.state) == (2, None, "ready")
    assert row.tokens["refresh_token"] != account.tokens["refresh_token"]
    assert row.renewed_at is not None
    assert await tokens_of(account).current() == token
    assert refreshes(auth) == 1


async def test_a_refresh_answer_without_a_refresh_token_keeps_the_one_that_there_is(
    link: Link, server: MCPServer, auth: FakeAuthServer
) -> None:
    auth.rotate = False
    auth.refresh_changes = {"refresh_token": None, "scope": None}
    account = await link(server)
    await expire(account)
    await tokens_of(account).current()
    row = await stored(account)
    assert row.tokens["refresh_token"] == account.tokens["refresh_token"]
    assert row.scopes == account.scopes


async def test_many_at_once_redeem_once(link: Link, server: MCPServer, auth: FakeAuthServer) -> None:
    account = await link(server)
    await expire(account)
    found = await asyncio.gather(*(tokens_of(account).current() for _ in range(20)))
    assert len(set(found)) == 1
    assert refreshes(auth) == 1


async def test_many_refused_at_once_redeem_once(link: Link, server: MCPServer, auth: FakeAuthServer) -> None:
    account = await link(server)
    token = account.tokens["access_token"]
    found = await asyncio.gather(*(tokens_of(account).renewed(token) for _ in range(20)))
    assert len(set(found)) == 1
    assert token not in found
    assert refreshes(auth) == 1


async def test_a_caller_that_leaves_loses_no_token(link: Link, server: MCPServer, auth: FakeAuthServer) -> None:
    account, gate = await link(server), asyncio.Event()
    await expire(account)
    auth.on("token", authfaults.after(gate))
    waiting = asyncio.create_task(tokens_of(account).current())
    await auth.heard("token", 2)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.set()
    auth.on("token", None)
    token = await tokens_of(account).current()
    assert auth.valid(token) is not None
    assert refreshes(auth) == 1


async def test_who_waits_for_another_process_takes_what_it_stores(
    link: Link, server: MCPServer, auth: FakeAuthServer
) -> None:
    account = await link(server)
    await expire(account)
    rows = LinkedAccount.objects.as_system().filter(pk=account.pk)
    assert await in_rows(leases.lease, rows, account.version)  # the other process
    assert not await in_rows(leases.lease, rows, account.version)
    until = (await stored(account)).refreshing_until
    assert until is not None
    assert timedelta(0) < until - timezone.now() <= timedelta(seconds=10)  # who dies holds it no longer
    waiting = asyncio.create_task(tokens_of(account).current())
    later = timezone.now() + timedelta(hours=1)
    values = {"tokens": {"access_token": "of-the-other"}, "expires_at": later, "refresh_at": later}
    assert await in_rows(leases.settle, rows, account.version, **values)
    assert await waiting == "of-the-other"
    assert refreshes(auth) == 0


async def test_a_process_that_died_holds_nobody_up_for_long(
    link: Link, server: MCPServer, auth: FakeAuthServer
) -> None:
    account = await link(server)
    await expire(account)
    await change(account, refreshing_until=timezone.now() - timedelta(seconds=1))
    assert auth.valid(await tokens_of(account).current()) is not None


async def test_who_waits_in_vain_is_told_to_try_again(
    link: Link, server: MCPServer, auth: FakeAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "WAIT_SECONDS", 0.2)
    account = await link(server)
    await expire(account)
    await change(account, refreshing_until=timezone.now() + timedelta(seconds=60))
    with pytest.raises(ServerUnavailableError) as raised:
        await tokens_of(account).current()
    assert "Try again" in raised.value.public_message
    assert refreshes(auth) == 0


@pytest.mark.parametrize(
    "fault",
    [
        authfaults.status(503),
        authfaults.status(429),
        authfaults.html,
        authfaults.die,
        authfaults.endless,
        authfaults.refusal("temporarily_unavailable"),
        authfaults.said("<html>", 400),
        authfaults.said({"token_type": "bearer"}),
    ],
)
async def test_an_ill_token_endpoint_ends_nothing(
    link: Link, server: MCPServer, auth: FakeAuthServer, fault: Any
) -> None:
    account = await link(server)
    await expire(account)
    auth.on("token", fault)
    with pytest.raises(ServerUnavailableError):
        await tokens_of(account).current()
    row = await stored(account)
    assert (row.state, row.tokens, row.refreshing_until) == ("ready", account.tokens, None)
    assert row.last_error
    auth.on("token", None)
    assert auth.valid(await tokens_of(account).current()) is not None


async def test_a_token_that_is_due_but_lives_is_used_while_the_endpoint_is_ill(
    link: Link, server: MCPServer, auth: FakeAuthServer
) -> None:
    account = await link(server)
    await change(account, refresh_at=timezone.now() - timedelta(seconds=1))
    auth.on("token", authfaults.status(503))
    assert await tokens_of(account).current() == account.tokens["access_token"]


# --- The end of a link ------------------------------------------------------------------------------------------------


async def test_a_grant_that_ended_asks_the_person(link: Link, server: MCPServer, auth: FakeAuthServer) -> None:
    account = await link(server)
    await expire(account)
    auth.memory.revoke_all()
    error = await asked(tokens_of(account))
    assert (error.reason, error.slug, error.account, error.account_id) == ("expired", "notes", account.name, account.pk)
    assert set(error.scopes) == set(account.scopes)
    row = await stored(account)
    assert (row.state, row.tokens, row.refreshing_until) == ("relink", {}, None)
    assert (await AuditRecord.objects.aget(action="link.changed")).details == {"state": "relink"}
    await asked(tokens_of(account))
    assert refreshes(auth) == 1  # it is not tried again and again


async def test_a_token_refused_right_after_it_was_renewed_asks_the_person_and_does_not_loop(
    link: Link, server: MCPServer, auth: FakeAuthServer
) -> None:
    source = tokens_of(await link(server))
    token = await source.renewed(await source.current())
    assert (await asked(source, token)).reason == "refused"
    assert (await asked(source)).reason == "expired"
    assert refreshes(auth) == 1


async def test_without_a_refresh_token_the_end_of_the_token_is_the_end(
    link: Link, server: MCPServer, auth: FakeAuthServer
) -> None:
    auth.refresh = "never"
    account = await link(server)
    assert account.refresh_at is None
    assert await tokens_of(account).current()
    await expire(account)
    assert (await asked(tokens_of(account))).reason == "expired"
    assert refreshes(auth) == 0


async def test_a_refused_token_that_cannot_be_renewed_asks_the_person(
    link: Link, server: MCPServer, auth: FakeAuthServer
) -> None:
    auth.refresh = "never"
    account = await link(server)
    assert (await asked(tokens_of(account), account.tokens["access_token"])).reason == "expired"


async def test_a_registration_that_was_forgotten_is_dropped_and_the_person_asked_once(
    link: Link, server: MCPServer, auth: FakeAuthServer
) -> None:
    account = await link(server)
    await expire(account)
    auth.forget_clients()
    await asked(tokens_of(account))
    assert not await OAuthClient.objects.as_system().aexists()
    again = await link(server, account_id=account.pk)
    assert again.pk == account.pk
    assert auth.count("register") == 2
    assert auth.valid(await tokens_of(again).current()) is not None


async def test_another_issuer_gets_nothing_of_the_old_one(
    link: Link, server: MCPServer, auth: FakeAuthServer, resource: Resource
) -> None:
    account = await link(server)
    await expire(account)
    async with FakeAuthServer() as evil:
        resource.changes = {"authorization_servers": [evil.issuer]}
        await discover(server, fresh=True)
        await asked(tokens_of(account))
        assert evil.count("token") == 0
        assert refreshes(auth) == 0
        again = await link(server, account_id=account.pk)
        assert (again.pk, again.issuer) == (account.pk, evil.issuer)
        assert again.client is not None
        assert again.client.issuer == evil.issuer


async def test_metadata_that_cannot_be_read_again_are_used_as_they_were(
    link: Link, server: MCPServer, auth: FakeAuthServer
) -> None:
    account = await link(server)
    await expire(account)
    await OAuthDiscovery.objects.as_system().aupdate(expires_at=timezone.now())
    auth.on("metadata", authfaults.status(500))
    assert auth.valid(await tokens_of(account).current()) is not None


# --- Never elsewhere --------------------------------------------------------------------------------------------------


async def test_a_definition_that_leads_elsewhere_takes_no_token_along(link: Link, server: MCPServer) -> None:
    account = await link(server)
    source = tokens_of(account)
    server.url = "https://evil.example/mcp"
    await server.asave()
    row = await stored(account)
    assert (row.state, row.tokens) == ("relink", {})
    assert (await asked(source)).reason == "expired"


async def test_a_title_that_changes_keeps_the_link(link: Link, server: MCPServer) -> None:
    account = await link(server)
    server.title = "Other"
    await server.asave()
    assert (await stored(account)).state == "ready"


async def test_a_source_of_one_definition_gives_no_token_that_was_linked_to_another(
    link: Link, server: MCPServer
) -> None:
    account = await link(server)
    source = tokens_of(account)
    await change(account, binding="0" * 32)
    assert (await asked(source)).reason == "none"


async def test_an_account_that_is_gone_asks_the_person(link: Link, server: MCPServer) -> None:
    account = await link(server)
    source = tokens_of(account)
    await LinkedAccount.objects.as_system().filter(pk=account.pk).adelete()
    error = await asked(source)
    assert (error.slug, error.server_id, error.reason) == ("notes", server.pk, "none")


# --- Ahead of time ----------------------------------------------------------------------------------------------------


async def test_tokens_are_renewed_ahead_of_time_while_they_are_in_use(
    link: Link, server: MCPServer, auth: FakeAuthServer
) -> None:
    account = await link(server)
    assert (await refresh_due()).renewed == 0
    await change(account, refresh_at=timezone.now())
    assert (await refresh_due()).renewed == 1
    assert refreshes(auth) == 1
    await change(account, refresh_at=timezone.now(), last_used_at=timezone.now() - timedelta(days=2))
    assert (await refresh_due()).renewed == 0


async def test_one_that_cannot_be_renewed_does_not_stop_the_others(
    link: Link, server: MCPServer, auth: FakeAuthServer
) -> None:
    good, bad = await link(server), await link(server, "grace", account_id=None)
    assert good.pk != bad.pk
    await LinkedAccount.objects.as_system().aupdate(refresh_at=timezone.now())
    ended = {"access_token": "a", "refresh_token": "rt-unknown"}
    await change(bad, tokens=ended)
    assert await refresh_due() == tokens.RefreshedTokens(renewed=1, failed=1)
    assert (await stored(bad)).state == "relink"


def test_those_that_are_due_are_read_in_one_query(
    organization: Organization, bob: User, django_assert_num_queries: Any
) -> None:
    server = MCPServer.objects.create(organization=organization, slug="notes", title="Notes", url="https://n.example")
    now = timezone.now()
    LinkedAccount.objects.bulk_create(
        LinkedAccount(
            organization=organization,
            server=server,
            user=bob,
            name=str(number),
            tokens={"access_token": "a", "refresh_token": "r"},
            refresh_at=now - timedelta(seconds=number),
            last_used_at=now,
        )
        for number in range(20)
    )
    with django_assert_num_queries(1):
        due = tokens._due()
    assert [row.name for row in due] == [str(number) for number in reversed(range(20))]


# --- Among processes --------------------------------------------------------------------------------------------------

RACER = """
import asyncio, json, sys
import django
django.setup()
from mcpservers.models import LinkedAccount
from mcpservers.oauth.tokens import AccountTokens

account = LinkedAccount.objects.as_system().select_related("server").get(pk=sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()

async def race():
    source = AccountTokens.of(account)
    return list(await asyncio.gather(*(source.current() for _ in range(3))))

print(json.dumps(asyncio.run(race())), flush=True)
"""


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite is one process's alone")
@pytest.mark.deadline(120)  # processes are started that race
async def test_four_processes_redeem_a_token_once(link: Link, server: MCPServer, auth: FakeAuthServer) -> None:
    account = await link(server)
    await expire(account)
    database = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}")
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "chatui.settings", "DATABASE_URL": urlunsplit(database)}
    racers = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            RACER,
            str(account.pk),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=settings.BASE_DIR,
            env=environment,
        )
        for _ in range(4)
    ]
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert await racer.stdout.readline() == b"ready\n"
        found = await asyncio.gather(*(racer.communicate(b"go\n") for racer in racers))
    finally:
        for racer in racers:
            if racer.returncode is None:
                racer.kill()
            await racer.wait()
    assert all(racer.returncode == 0 for racer in racers), [errors.decode()[-2000:] for _, errors in found]
    given = {token for output, _ in found for token in json.loads(output)}
    assert len(given) == 1
    assert auth.valid(given.pop()) is not None
    assert refreshes(auth) == 1
