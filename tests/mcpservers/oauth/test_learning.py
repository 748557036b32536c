"""A server that says nothing of accounts in its definition is found out by what it refuses, wherever it does."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from accounts.actors import Actor
from chatui.rows import in_rows
from mcpservers import catalogue, connections, entries
from mcpservers.calls import call_tool
from mcpservers.catalogue import Offer, WantedServer, offered_to
from mcpservers.errors import LinkError
from mcpservers.models import MCPServer
from mcpservers.oauth import flow
from tests.fakes.authserver import FakeAuthServer
from tests.fakes.mcp_protected import ProtectedMCPServer
from tests.fakes.mcp_server import Handler, html, status
from tests.mcpservers.oauth.conftest import Link, Make


@pytest.fixture(autouse=True)
async def _closed() -> AsyncIterator[None]:
    entries.memory.clear()
    yield
    await catalogue.aclose()
    await connections.aclose()


async def _unheard(*_: object) -> None: ...


async def offer(actor: Actor, server: MCPServer) -> Offer:
    return await offered_to(actor, [WantedServer(server.pk)])


def codes(offered: Offer) -> list[str]:
    return [problem.code for problem in offered.problems]


async def signs_in(server: MCPServer) -> bool:
    return (await in_rows(MCPServer.objects.as_system().get, pk=server.pk)).signs_in


@pytest.mark.parametrize(
    ("era", "open_methods"),
    [
        ("legacy", ("initialize", "notifications/initialized")),  # it lets everybody in, and list nothing
        ("modern", ("initialize",)),  # it refuses the probe, and does not know the handshake that comes after it
    ],
)
async def test_a_sign_in_is_asked_for_whichever_request_was_refused(
    actor: Actor, make_server: Make, link: Link, auth: FakeAuthServer, era: str, open_methods: tuple[str, ...]
) -> None:
    async with ProtectedMCPServer(auth=auth, era=era, open_methods=open_methods) as fake:
        server = await make_server(fake.url, "plain", oauth=None, connect_timeout=60)
        assert codes(await offer(actor, server)) == ["needs_sign_in"]
        assert await signs_in(server)
        await link(server)
        offered = await offer(actor, server)
        assert ([tool.name for tool in offered.tools], codes(offered)) == (["whoami", "list_notes", "add_note"], [])
        await connections.aclose()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"prm_changes": {"resource": "https://elsewhere.example/mcp"}}, "resource_mismatch"),
        ({"prm_changes": {"authorization_servers": ["http://10.0.0.1"]}}, "address_refused"),
    ],
    ids=str,
)
async def test_metadata_that_cannot_be_used_are_explained_where_one_signs_in(
    actor: Actor, make_server: Make, auth: FakeAuthServer, changes: dict[str, Any], reason: str
) -> None:
    async with ProtectedMCPServer(auth=auth, era="modern", **changes) as fake:
        server = await make_server(fake.url, "plain", oauth=None, connect_timeout=60)
        assert codes(await offer(actor, server)) == ["needs_sign_in"]
        with pytest.raises(LinkError) as refused:
            await flow.begin(actor, server.pk, browser="b")
        assert refused.value.reason == reason
        await connections.aclose()


async def test_the_same_for_a_lying_issuer(actor: Actor, make_server: Make, auth: FakeAuthServer) -> None:
    auth.metadata_changes = {"issuer": "https://elsewhere.example"}
    async with ProtectedMCPServer(auth=auth, era="modern") as fake:
        server = await make_server(fake.url, "plain", oauth=None, connect_timeout=60)
        assert codes(await offer(actor, server)) == ["needs_sign_in"]
        with pytest.raises(LinkError) as refused:
            await flow.begin(actor, server.pk, browser="b")
        assert refused.value.reason == "issuer_mismatch"
        await connections.aclose()


@pytest.mark.parametrize("open_methods", [("initialize", "notifications/initialized"), ()], ids=["lists", "connects"])
async def test_a_refresh_learns_it_too_and_says_to_sign_in(
    actor: Actor, make_server: Make, auth: FakeAuthServer, open_methods: tuple[str, ...]
) -> None:
    async with ProtectedMCPServer(auth=auth, era="legacy", open_methods=open_methods) as fake:
        server = await make_server(fake.url, "plain", oauth=None, connect_timeout=60)
        report = await catalogue.refresh(server.pk, actor=actor)
        assert "sign in" in report.error
        assert "HTTP 401" not in report.error
        assert await signs_in(server)


async def test_a_refusal_without_a_word_of_accounts_stays_one(actor: Actor, make_server: Make) -> None:
    async with (
        FakeAuthServer(metadata_at=frozenset()) as auth,
        ProtectedMCPServer(auth=auth, era="modern", prm_at="none", challenge="none") as fake,
    ):
        server = await make_server(fake.url, "plain", oauth=None, connect_timeout=60)
        offered = await offer(actor, server)
        assert codes(offered) == ["unavailable"]
        assert "HTTP 401" in offered.problems[0].message
        assert not await signs_in(server)
        await connections.aclose()


@pytest.mark.parametrize("how", ["offer", "call", "refresh"])
async def test_a_refusal_to_connect_is_looked_into_once_however_many_wait(
    actor: Actor, make_server: Make, how: str
) -> None:
    async with (
        FakeAuthServer(metadata_at=frozenset()) as auth,
        ProtectedMCPServer(auth=auth, era="modern", prm_at="none", challenge="none") as fake,
    ):
        server = await make_server(fake.url, "plain", oauth=None, connect_timeout=60)
        match how:
            case "offer":
                await offer(actor, server)
            case "refresh":
                await catalogue.refresh(server.pk, actor=actor)
            case _:
                made = (call_tool(actor, server.pk, "whoami", {}, turn_id=uuid4(), progress=_unheard) for _ in range(3))
                assert {outcome.status for outcome in await asyncio.gather(*made)} == {"unavailable"}
        looked = Counter(exchange.path for exchange in fake.exchanges if "/.well-known/" in exchange.path)
        assert set(looked.values()) == {1}
        await connections.aclose()


@pytest.mark.parametrize("fault", [html, status(500), status(404)], ids=["html", "500", "404"])
async def test_a_server_that_names_metadata_has_accounts_though_they_cannot_be_read(
    actor: Actor, make_server: Make, auth: FakeAuthServer, fault: Handler
) -> None:
    async with ProtectedMCPServer(auth=auth, era="modern") as fake:
        fake.on("prm", fault)
        server = await make_server(fake.url, "plain", oauth=None, connect_timeout=60)
        assert codes(await offer(actor, server)) == ["needs_sign_in"]
        with pytest.raises(LinkError):
            await flow.begin(actor, server.pk, browser="b")
        await connections.aclose()


async def test_a_server_that_moved_to_another_issuer_is_signed_in_to_there_and_gets_nothing_of_the_first(
    actor: Actor, make_server: Make, link: Link, auth: FakeAuthServer
) -> None:
    async with FakeAuthServer() as second, ProtectedMCPServer(auth=auth, era="modern") as fake:
        server = await make_server(fake.url, "plain", connect_timeout=60)
        account = await link(server)
        before = account.tokens
        auth.memory.revoke_all()
        fake.auth = second
        await connections.aclose()
        offered = await offer(actor, server)
        assert codes(offered) == ["needs_sign_in"]
        assert offered.problems[0].sign_in is not None
        assert offered.problems[0].sign_in.host == second.origin.removeprefix("http://")
        assert (await link(server, account_id=account.pk)).issuer == second.issuer
        assert [tool.name for tool in (await offer(actor, server)).tools] == ["whoami", "list_notes", "add_note"]
        heard = "".join(f"{each.body!r}{each.query}{each.headers}" for each in second.requests)
        assert not any(str(value) in heard for value in [*before.values(), *auth.memory.clients])
        await connections.aclose()
