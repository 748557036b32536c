"""Requests are signed with the token of the moment, in both eras and over SSE, for the server's own origin alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from chatui.errors import ChatUIError
from mcpservers.connections import ConnectionManager
from mcpservers.errors import RequestFailedError, ServerUnavailableError, SignInRequiredError
from mcpservers.transports import ConnectionTarget, target_of
from tests.fakes.authserver import FakeAuthServer
from tests.fakes.authstate import Person
from tests.fakes.mcp_protected import ProtectedMCPServer
from tests.fakes.mcp_server import Exchange, FakeMCPServer, status
from tests.fakes.mcp_targets import actor, definition, managed
from tests.fakes.wallet import Wallet

SERVER = UUID(int=7)
KINDS = ("legacy", "modern", "sse")


@pytest.fixture
async def auth() -> AsyncIterator[FakeAuthServer]:
    async with FakeAuthServer() as server:
        yield server


@pytest.fixture(params=KINDS)
async def server(request: pytest.FixtureRequest, auth: FakeAuthServer) -> AsyncIterator[ProtectedMCPServer]:
    era = "modern" if request.param == "modern" else "legacy"
    async with ProtectedMCPServer(auth=auth, era=era) as server:
        server.kind = request.param
        yield server


@pytest.fixture
async def manager() -> AsyncIterator[ConnectionManager]:
    async with managed() as manager:
        yield manager


def signed(server: ProtectedMCPServer, wallet: Wallet | None, who: Any = None, **fields: Any) -> ConnectionTarget:
    """A target that acts with the wallet's account."""
    sse = getattr(server, "kind", "legacy") == "sse"
    fields = {"oauth": {}, "transport": "sse" if sse else "http", "id": SERVER} | fields
    made = definition(server.sse_url if sse else server.url, **fields)
    if wallet is None:
        return target_of(made, who or actor(), {})
    return target_of(made, who or actor(), {}, account=wallet.account, source=wallet)


async def whoami(manager: ConnectionManager, to: ConnectionTarget, tool: str = "whoami") -> Any:
    async with manager.borrow(to) as connection:
        answer = await connection.request("tools/call", {"name": tool, "arguments": {"text": "x"}}, timeout=60)
        return answer["structuredContent"]


# --- With a token -----------------------------------------------------------------------------------------------------


async def test_every_request_carries_the_accounts_token(server: ProtectedMCPServer, manager: ConnectionManager) -> None:
    wallet = Wallet(server)
    assert (await whoami(manager, signed(server, wallet)))["owner"] == "ada"
    assert server.tokens == [wallet.token]
    assert all(exchange.headers.get("authorization") == f"Bearer {wallet.token}" for exchange in server.exchanges)


async def test_a_new_token_serves_the_same_connection(server: ProtectedMCPServer, manager: ConnectionManager) -> None:
    wallet = Wallet(server)
    to = signed(server, wallet)
    async with manager.borrow(to) as first:
        await first.request("tools/list", timeout=60)
    wallet.token = wallet._issued()
    async with manager.borrow(to) as second:
        await second.request("tools/list", timeout=60)
    assert first is second
    assert len(server.tokens) == 2


async def test_a_refused_token_is_renewed_and_the_call_made_once(
    server: ProtectedMCPServer, manager: ConnectionManager
) -> None:
    wallet = Wallet(server, scopes=("notes:read", "notes:write"))
    to = signed(server, wallet)
    await whoami(manager, to)
    server.auth.memory.expire_all()
    assert await whoami(manager, to, "add_note") == {"added": 2}
    assert wallet.asked.count("renewed") == 1
    assert server.calls_of("ada") == ["whoami", "add_note"]


async def test_a_token_that_is_refused_while_new_ends_in_a_sign_in(
    server: ProtectedMCPServer, manager: ConnectionManager
) -> None:
    wallet = Wallet(server)
    to = signed(server, wallet)
    await whoami(manager, to)
    server.refuse_all = True
    with pytest.raises(SignInRequiredError) as raised:
        await whoami(manager, to)
    assert (raised.value.reason, raised.value.account) == ("refused", "Ada Lovelace")
    assert wallet.asked.count("renewed") == 2
    server.refuse_all = False
    assert (await whoami(manager, to))["owner"] == "ada"
    assert server.count("initialize") <= 1 or server.era == "modern"


async def test_an_account_that_has_ended_is_told_without_a_request(
    server: ProtectedMCPServer, manager: ConnectionManager
) -> None:
    wallet = Wallet(server)
    to = signed(server, wallet)
    await whoami(manager, to)
    heard, wallet.ended = len(server.exchanges), True
    with pytest.raises(SignInRequiredError) as raised:
        await whoami(manager, to)
    assert raised.value.reason == "expired"
    assert server.count("tools/call") == 1
    assert len(server.exchanges) == heard


async def test_more_access_is_asked_for_by_name(server: ProtectedMCPServer, manager: ConnectionManager) -> None:
    wallet = Wallet(server)
    to = signed(server, wallet)
    with pytest.raises(SignInRequiredError) as raised:
        await whoami(manager, to, "add_note")
    error = raised.value
    assert (error.reason, error.scopes) == ("insufficient_scope", ("notes:read", "notes:write"))
    assert error.new_scopes == ("notes:write",)
    assert error.account_id == wallet.account_id
    assert (await whoami(manager, to))["owner"] == "ada", "the connection serves on"


@pytest.mark.parametrize("of_organization", [True, False])
@pytest.mark.parametrize("refused", ["more access", "the token"])
async def test_where_no_person_signs_in_nobody_is_asked_to(
    of_organization: bool, refused: str, server: ProtectedMCPServer, manager: ConnectionManager
) -> None:
    """The organization's account and calls on behalf of people: a sign-in of theirs would change nothing."""
    wallet = Wallet(server)
    to = replace(signed(server, wallet), links=False)
    if not of_organization:
        to = replace(to, account=None)
    await whoami(manager, to)
    server.refuse_all = refused == "the token"
    with pytest.raises(ServerUnavailableError) as raised:
        await whoami(manager, to, "add_note")
    assert raised.value.public_message.endswith("is not accepted. Tell an administrator.")
    assert ("The organization's account" in raised.value.public_message) is of_organization
    assert ("more access (notes:write)" in str(raised.value)) is (refused == "more access")
    server.refuse_all = False
    assert (await whoami(manager, to))["owner"] == "ada", "the connection serves on"


async def test_a_plain_403_is_the_servers_own_answer(auth: FakeAuthServer, manager: ConnectionManager) -> None:
    async with ProtectedMCPServer(auth=auth, era="modern") as server:
        to = signed(server, Wallet(server))
        await whoami(manager, to)
        server.on("tools/call", status(403, "not yours"))
        with pytest.raises(RequestFailedError) as raised:
            await whoami(manager, to)
        assert raised.value.http_status == 403


async def test_a_token_endpoint_that_is_ill_costs_the_call_and_not_the_account(
    server: ProtectedMCPServer, manager: ConnectionManager
) -> None:
    wallet = Wallet(server)
    to = signed(server, wallet)
    await whoami(manager, to)

    async def ill() -> str:
        raise ServerUnavailableError("The sign-in of “Fake” does not answer.")

    well, wallet.current = wallet.current, ill  # the fake is bent
    with pytest.raises(ServerUnavailableError):
        await whoami(manager, to)
    wallet.current = well  # and straight again
    assert (await whoami(manager, to))["owner"] == "ada"


# --- Without one ------------------------------------------------------------------------------------------------------


async def test_who_has_no_account_is_asked_to_sign_in_and_the_server_is_not_blamed(
    server: ProtectedMCPServer, manager: ConnectionManager
) -> None:
    server.challenge_scope = "notes:read profile"
    for _ in range(5):
        with pytest.raises(SignInRequiredError) as raised:
            await whoami(manager, signed(server, None))
    assert (raised.value.reason, raised.value.scopes) == ("none", ("notes:read", "profile"))
    assert manager.breaker.refusal(signed(server, None).circuit) is None


async def test_a_server_that_lists_for_anybody_is_listed(
    server: ProtectedMCPServer, manager: ConnectionManager
) -> None:
    server.open_listing = True
    async with manager.borrow(signed(server, None)) as connection:
        assert len((await connection.request("tools/list", timeout=60))["tools"]) == 3
        with pytest.raises(SignInRequiredError):
            await connection.request("tools/call", {"name": "whoami"}, timeout=60)
        assert connection.alive


async def test_a_wrong_header_of_the_definition_is_no_sign_in(server: ProtectedMCPServer) -> None:
    async with managed() as manager:
        to = signed(server, None, oauth=None, headers={"Authorization": "Bearer typed"})
        with pytest.raises(ServerUnavailableError, match="sign-in, or the credentials are wrong"):
            await whoami(manager, to)


async def test_what_is_learnt_of_a_refusal_makes_it_a_sign_in(server: ProtectedMCPServer) -> None:
    heard: list[str] = []

    async def learn(to: ConnectionTarget, error: ChatUIError) -> SignInRequiredError:
        assert isinstance(error, ServerUnavailableError)
        heard.append(error.challenge)
        return SignInRequiredError(to.server_id, to.slug, to.title)

    async with managed(learn=learn) as manager:
        with pytest.raises(SignInRequiredError):
            await whoami(manager, signed(server, None, oauth=None))
    assert heard == [f'Bearer resource_metadata="{server.prm_url}"']


# --- Nowhere else -----------------------------------------------------------------------------------------------------


async def test_a_token_does_not_follow_a_redirect_to_another_origin(
    auth: FakeAuthServer, manager: ConnectionManager
) -> None:
    async with FakeMCPServer() as elsewhere, ProtectedMCPServer(auth=auth) as server:
        to = signed(server, Wallet(server))
        await whoami(manager, to)

        async def lead_away(exchange: Exchange) -> None:
            await exchange.respond(307, location=elsewhere.url)

        server.on("tools/call", lead_away)
        with suppress(ChatUIError):  # whatever comes of it: see what went there
            await whoami(manager, to)
        assert elsewhere.exchanges
        assert all("authorization" not in exchange.headers for exchange in elsewhere.exchanges)


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_over_sse_no_token_leaves_the_origin_by_a_redirect(
    verb: str, auth: FakeAuthServer, manager: ConnectionManager
) -> None:
    async with FakeMCPServer() as elsewhere, ProtectedMCPServer(auth=auth) as server:

        async def lead_away(exchange: Exchange) -> None:
            await exchange.respond(307, location=f"http://127.0.0.1:{elsewhere.port}{exchange.path}")

        elsewhere.on(verb, status(404))
        server.kind = "sse"
        wallet = Wallet(server)
        to = signed(server, wallet)
        if verb == "POST":
            await whoami(manager, to)
        server.on(verb, lead_away)
        with pytest.raises(ChatUIError):
            await whoami(manager, to)
        assert server.exchanges[-1].headers["authorization"] == f"Bearer {wallet.token}"
        assert [exchange.verb for exchange in elsewhere.exchanges] == [verb]
        assert wallet.token not in str(elsewhere.exchanges[0].headers)


@pytest.mark.parametrize("form", ["{}/messages?session_id=1", "//127.0.0.1:{port}/messages", "{}@/messages"])
async def test_over_sse_no_token_leaves_the_origin_by_the_endpoint(
    form: str, auth: FakeAuthServer, manager: ConnectionManager
) -> None:
    async with FakeMCPServer() as elsewhere, ProtectedMCPServer(auth=auth) as server:

        async def name_another(exchange: Exchange) -> None:
            await exchange.open_stream()
            there = f"http://127.0.0.1:{elsewhere.port}"
            await exchange.send_event(form.format(there, port=elsewhere.port), event="endpoint")
            await exchange.server.closed.wait()

        server.on("GET", name_another)
        server.kind = "sse"
        with pytest.raises(ServerUnavailableError, match="endpoint"):
            await whoami(manager, signed(server, Wallet(server)))
        assert elsewhere.connections == 0


async def test_errors_never_show_the_token(auth: FakeAuthServer, manager: ConnectionManager) -> None:
    async with ProtectedMCPServer(auth=auth, era="modern") as server:
        wallet = Wallet(server)
        to = signed(server, wallet)
        await whoami(manager, to)

        async def repeat(exchange: Exchange) -> None:
            await exchange.error(-32000, f"bad {exchange.headers['authorization']}")

        server.on("tools/call", repeat)
        with pytest.raises(RequestFailedError) as raised:
            await whoami(manager, to)
        assert str(raised.value) == "bad Bearer •••"
        assert wallet.token not in repr(to)


# --- Who is who -------------------------------------------------------------------------------------------------------


async def test_users_and_accounts_never_mix(server: ProtectedMCPServer, manager: ConnectionManager) -> None:
    """Four users with two accounts each, their calls in any order: each is answered as its own account."""
    server.auth.people += tuple(Person(f"p{n}", f"sub-p{n}", f"P {n}", f"p{n}@x.example") for n in range(6))
    people = iter(server.auth.people)
    targets = []
    for name in ("bob", "carol", "dave", "erin"):
        for _ in range(2):
            wallet = Wallet(server, next(people))
            targets.append((wallet, signed(server, wallet, actor(name))))
    calls = [each for each in targets for _ in range(6)]
    random.Random(7).shuffle(calls)

    async def call(wallet: Wallet, to: ConnectionTarget) -> None:
        assert (await whoami(manager, to))["owner"] == wallet.person.username

    await asyncio.gather(*(call(*each) for each in calls))
    server.auth.memory.expire_all()  # everybody's token is renewed in the midst of it
    await asyncio.gather(*(call(*each) for each in calls))
    assert server.trespasses == []
    assert len(manager.list_connections()) == 8
    for wallet, _ in targets:
        assert server.calls_of(wallet.person.username) == ["whoami"] * 12


async def test_an_account_that_is_linked_anew_gets_a_connection_of_its_own(
    server: ProtectedMCPServer, manager: ConnectionManager
) -> None:
    wallet = Wallet(server)
    before = signed(server, wallet)
    await whoami(manager, before)
    relinked = definition(before.url, oauth={}, transport=before.transport.value, id=SERVER)
    after = target_of(relinked, actor(), {}, account=replace(wallet.account, link="anew"), source=wallet)
    assert (before.key.slot, before.key == after.key) == (after.key.slot, False)
    await whoami(manager, after)
    live = [info for info in manager.list_connections() if info.state != "closing"]
    assert len(live) == 1
