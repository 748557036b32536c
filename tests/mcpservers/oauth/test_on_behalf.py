"""Calls with the sign-in that people have here: exchanged for the server's token, or put into a header as it is."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from accounts.actors import Actor
from accounts.models import User
from chatui.rows import in_rows
from mcpservers import catalogue, connections, entries
from mcpservers.calls import ToolOutcome, call_tool
from mcpservers.catalogue import WantedServer, offered_to
from mcpservers.models import MCPServer, SignInToken
from tests.fakes.authserver import FakeAuthServer
from tests.fakes.authstate import Person
from tests.fakes.mcp_protected import ProtectedMCPServer
from tests.fakes.mcp_server import FakeMCPServer
from tests.mcpservers.oauth.conftest import Make
from tests.mcpservers.oauth.test_exchange import OBO, SignIn, _nothing_kept, configure, sign_in, signed_in

__all__ = ["_nothing_kept", "signed_in"]
OPENID = {"Authorization": "Bearer {{openid.access_token}}"}


@pytest.fixture(autouse=True)
async def _closed() -> AsyncIterator[None]:
    entries.memory.clear()
    yield
    await catalogue.aclose()
    await connections.aclose()


@pytest.fixture
async def fake() -> AsyncIterator[FakeMCPServer]:
    async with FakeMCPServer(era="modern") as server:
        yield server
        await connections.aclose()


async def call(actor: Actor, server: MCPServer, tool: str) -> ToolOutcome:
    async def progress(*_: object) -> None: ...

    return await call_tool(actor, server.pk, tool, {}, turn_id=uuid4(), progress=progress)


async def test_a_server_is_called_on_behalf_of_who_asks(
    signed_in: SignIn,  # the fixture of that name
    actor: Actor,
    auth: FakeAuthServer,
    make_server: Make,
) -> None:
    row = await signed_in()
    async with ProtectedMCPServer(auth=auth, era="modern") as fake:
        server = await make_server(fake.url, oauth=OBO, obo_author="operator", connect_timeout=60)
        outcome = await call(actor, server, "whoami")
        assert json.loads(outcome.text)["owner"] == "ada"
        assert row.tokens["access_token"] not in fake.tokens
        await connections.aclose()


async def test_who_signs_in_by_openid_connect_is_acted_for_at_once(
    actor: Actor, bob: User, auth: FakeAuthServer, make_server: Make, settings: Any
) -> None:
    auth.people = (Person("ada", "sub-ada", "Ada", bob.email),)
    configure(settings, auth)
    async with ProtectedMCPServer(auth=auth, era="modern") as fake:
        server = await make_server(fake.url, oauth=OBO, obo_author="operator", connect_timeout=60)
        assert (await call(actor, server, "whoami")).status == "unavailable"
        assert (await in_rows(sign_in, Client(), auth)).status_code == 302
        assert json.loads((await call(actor, server, "whoami")).text)["owner"] == "ada"
        await connections.aclose()


async def test_an_exchanged_token_goes_where_the_definition_puts_it(
    signed_in: SignIn,  # as above
    actor: Actor,
    auth: FakeAuthServer,
    fake: FakeMCPServer,
    make_server: Make,
) -> None:
    row = await signed_in()
    headers = {"X-On-Behalf": "{{obo.access_token}}"}
    server = await make_server(fake.url, oauth=OBO, obo_author="operator", headers=headers, connect_timeout=60)
    assert (await call(actor, server, "echo")).status == "ok"
    sent = (await fake.heard("tools/call")).headers
    given = auth.valid(sent["x-on-behalf"])
    assert given is not None
    assert (given.audience, "authorization" in sent) == ("notes", False)
    assert row.tokens["access_token"] not in str([exchange.headers for exchange in fake.exchanges])


async def test_who_did_not_sign_in_so_is_told_and_the_server_is_not_blamed(
    actor: Actor, fake: FakeMCPServer, make_server: Make
) -> None:
    on_behalf = await make_server(fake.url, oauth=OBO, obo_author="operator", connect_timeout=60)
    openid = await make_server(fake.url, "openid", oauth=None, headers=OPENID, connect_timeout=60)
    for server in (on_behalf, openid):
        for _ in range(4):
            outcome = await call(actor, server, "echo")
            assert (outcome.status, outcome.sign_in) == ("unavailable", None)
            assert "OpenID Connect" in outcome.text
        (problem,) = (await offered_to(actor, [WantedServer(server.pk)])).problems
        assert "OpenID Connect" in problem.message
        assert not connections.all_refusals()
    assert not fake.exchanges


async def test_a_sign_in_goes_into_a_header_as_it_is_at_each_request_over_one_connection(
    signed_in: SignIn,  # as above
    actor: Actor,
    fake: FakeMCPServer,
    make_server: Make,
) -> None:
    await signed_in()
    server = await make_server(
        fake.url, oauth=None, headers=OPENID | {"X-Who": "{{user.username}}"}, connect_timeout=60
    )

    async def sent() -> tuple[str, str]:
        assert (await call(actor, server, "echo")).status == "ok"
        headers = (await fake.heard("tools/call")).headers
        return headers["authorization"], headers["x-who"]

    async def token() -> str:
        row = await in_rows(SignInToken.objects.get, user_id=actor.user_id)
        return f"Bearer {row.tokens['access_token']}"

    before = await token()
    assert await sent() == (before, "bob")
    await signed_in()
    assert await token() != before
    assert await sent() == (await token(), "bob")
    assert len(connections.manager().list_connections()) == 1


async def test_a_refusal_that_repeats_the_token_does_not_show_it(
    signed_in: SignIn,  # as above
    actor: Actor,
    fake: FakeMCPServer,
    make_server: Make,
) -> None:
    await signed_in()
    server = await make_server(fake.url, oauth=None, headers=OPENID, connect_timeout=60)

    async def repeat(exchange: Any) -> None:
        text = f"bad {exchange.headers['authorization']}"
        await exchange.result({"content": [{"type": "text", "text": text}], "isError": True})

    fake.on("tools/call", repeat)
    assert (await call(actor, server, "echo")).text == "bad Bearer •••"


async def test_what_renews_a_sign_in_never_leaves(
    signed_in: SignIn,  # as above
    actor: Actor,
    fake: FakeMCPServer,
    make_server: Make,
) -> None:
    await signed_in()
    headers = {"X-Token": "{{openid.refresh_token}}"}
    server = await make_server(fake.url, oauth=None, headers=headers, connect_timeout=60)
    assert (await call(actor, server, "echo")).status == "unavailable"
    assert not fake.exchanges
