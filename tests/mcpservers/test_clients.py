"""Transports and protocol eras: which is tried, what is remembered, what is said when nothing works."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest
from mcp.client import streamable_http

from mcpservers.connections import ConnectionManager
from mcpservers.errors import ServerUnavailableError
from mcpservers.sessionhttp import STREAMS_PER_MINUTE
from mcpservers.transports import ConnectionTarget, target_of
from tests.fakes.mcp_server import (
    LEGACY,
    MODERN,
    Exchange,
    FakeMCPServer,
    Handler,
    after,
    body,
    die,
    hang,
    html,
    once,
    status,
)
from tests.fakes.mcp_targets import actor, definition, managed, target

CALL = {"name": "echo", "arguments": {"text": "hi"}}


async def era_of(manager: ConnectionManager, where: ConnectionTarget) -> dict[str, Any]:
    """Connect, call once, and say what is to be remembered."""
    async with manager.borrow(where) as connection:
        assert (await connection.request_raw("tools/call", CALL))["content"] == [{"type": "text", "text": "hi"}]
        return connection.era


async def refused(manager: ConnectionManager, where: ConnectionTarget) -> ServerUnavailableError:
    with pytest.raises(ServerUnavailableError) as caught:
        await era_of(manager, where)
    return caught.value


# --- Eras ---------------------------------------------------------------------------------------------------------


async def test_the_session_era_is_found_and_described() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        async with manager.borrow(target(server.url)) as connection:
            assert connection.protocol_version == LEGACY
            assert connection.server_info == {"name": "fake", "version": "1"}
            assert connection.instructions == "Be kind."
            assert connection.capabilities == {"tools": {"listChanged": True}}
            assert connection.era["mode"] == "legacy"
        client_info = (await server.heard("initialize")).params["clientInfo"]
        assert client_info["name"] == "chatui"


async def test_the_stateless_era_is_found_and_described() -> None:
    async with FakeMCPServer(era="modern") as server, managed() as manager:
        async with manager.borrow(target(server.url)) as connection:
            assert connection.protocol_version == MODERN
            assert connection.server_info == {"name": "fake", "version": "1"}
            assert connection.instructions == "Be kind."
            assert connection.era["mode"] == "modern"
            assert connection.era["discover"]["supportedVersions"] == [MODERN]
        assert server.sessions == []


async def test_a_remembered_session_era_is_not_probed_again() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        one = definition(server.url)
        one.era = await era_of(manager, target_of(one, actor(), {}))
        manager.drop(one.pk)
        await era_of(manager, target_of(one, actor(), {}))
        assert (server.count("server/discover"), server.count("initialize")) == (1, 2)


async def test_what_was_remembered_of_another_definition_does_not_count() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        one = definition(server.url)
        one.era = await era_of(manager, target_of(one, actor(), {}))
        one.headers = {"X-A": "1"}
        await era_of(manager, target_of(one, actor(), {}))
        assert server.count("server/discover") == 2


async def test_what_was_remembered_is_probed_again_after_a_day() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        one = definition(server.url)
        era = await era_of(manager, target_of(one, actor(), {}))
        manager.drop(one.pk)
        one.era = era | {"at": era["at"] - 25 * 3600}
        await era_of(manager, target_of(one, actor(), {}))
        assert server.count("server/discover") == 2


async def test_a_server_that_changed_its_era_is_probed_anew() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        one = definition(server.url)
        one.era = await era_of(manager, target_of(one, actor(), {}))
        manager.drop(one.pk)
        server.era = "modern"
        assert (await era_of(manager, target_of(one, actor(), {})))["mode"] == "modern"
        one.era = one.era | {"mode": "modern"}
        manager.drop(one.pk)
        server.era = "legacy"
        assert (await era_of(manager, target_of(one, actor(), {})))["mode"] == "legacy"


async def test_a_server_that_breaks_off_at_the_probe_gets_the_older_handshake() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        server.on("server/discover", die)
        assert (await era_of(manager, target(server.url)))["mode"] == "legacy"


async def test_every_later_request_carries_the_negotiated_version() -> None:
    async with FakeMCPServer(version="2025-03-26", strict_version=True) as server, managed() as manager:
        async with manager.borrow(target(server.url)) as connection:
            assert connection.protocol_version == "2025-03-26"
            await connection.request_raw("tools/call", CALL)
        await server.heard("GET")
        later = [each for each in server.exchanges if each.method not in ("initialize", "server/discover")]
        assert {each.headers["mcp-protocol-version"] for each in later} == {"2025-03-26"}


# --- Headers ------------------------------------------------------------------------------------------------------


async def test_a_name_in_any_script_is_sent_and_an_umlaut_stays_itself() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        headers = {"X-Latin": "Éöß", "X-User": "{{A}}"}
        where = target(server.url, headers=headers, variables={"A": {}}, values={"A": "Žofie 林"})
        await era_of(manager, where)
        assert server.exchanges[-1].headers["x-latin"] == "Éöß"
        assert server.exchanges[-1].headers["x-user"] == "b64:xb1vZmllIOaelw=="
        assert server.exchanges[-1].headers["user-agent"].startswith("chatui/")


# --- Transports ---------------------------------------------------------------------------------------------------


async def test_http_finds_a_server_that_speaks_only_sse_and_remembers_it() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        one = definition(server.sse_url)
        one.era = await era_of(manager, target_of(one, actor(), {}))
        assert one.era["transport"] == "sse"
        posts = server.count("POST")
        manager.drop(one.pk)
        await era_of(manager, target_of(one, actor(), {}))
        first = server.exchanges[len(server.exchanges) - server.count("POST") + posts - 1]
        assert first.verb == "GET"


async def test_a_remembered_sse_server_that_moved_on_is_found_again() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        one = definition(server.url)
        one.era = {"transport": "sse", "mode": "legacy", "definition": one.definition_hash(), "at": 1e12}
        server.on("GET", status(405))
        assert (await era_of(manager, target_of(one, actor(), {})))["transport"] == "streamable-http"


async def test_streamable_http_does_not_fall_back() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        error = await refused(manager, target(server.sse_url, transport="streamable-http"))
        assert "HTTP 405" in error.public_message
        assert server.count("GET") == 0


async def test_sse_is_spoken_where_it_is_asked_for() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        assert (await era_of(manager, target(server.sse_url, transport="sse")))["transport"] == "sse"
        assert {exchange.method for exchange in server.exchanges if exchange.verb == "POST"} == {
            "initialize",
            "notifications/initialized",
            "tools/call",
        }


# --- Values of the moment -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["streamable-http", "sse"])
async def test_what_changes_from_request_to_request_is_asked_for_once_to_connect(transport: str) -> None:
    asked: list[str] = []

    async def values() -> dict[str, str]:
        asked.append(f"token-number-{len(asked)}")
        return {"openid.access_token": asked[-1]}

    async with FakeMCPServer() as server, managed() as manager:
        url = server.sse_url if transport == "sse" else server.url
        made = definition(url, transport=transport, headers={"X-Token": "{{openid.access_token}}"})
        where = target_of(made, actor(), {}, late=values)
        async with manager.borrow(where):
            pass
        # The first is of connecting, the second of the first request.
        assert server.exchanges[0].headers["x-token"] == "token-number-1"
        assert where.redact(f"{asked[0]} {asked[-1]}") == "••• •••"


# --- The optional GET stream --------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [status(404), status(405), status(406), status(400, "No sessionId")])
async def test_a_server_without_the_optional_stream_is_a_good_server(answer: Handler) -> None:
    async with FakeMCPServer() as server, managed() as manager:
        server.on("GET", answer)
        await era_of(manager, target(server.url))
        await server.heard("GET")
        await era_of(manager, target(server.url))


async def test_a_stream_that_is_no_stream_is_not_asked_for_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the SDK would try, and however soon."""
    monkeypatch.setattr(streamable_http, "DEFAULT_RECONNECTION_DELAY_MS", 0)
    monkeypatch.setattr(streamable_http, "MAX_RECONNECTION_ATTEMPTS", 10)
    listen, given_up = streamable_http.StreamableHTTPTransport.handle_get_stream, asyncio.Event()

    async def until_it_gives_up(*args: Any) -> None:
        await listen(*args)
        given_up.set()

    monkeypatch.setattr(streamable_http.StreamableHTTPTransport, "handle_get_stream", until_it_gives_up)
    async with FakeMCPServer() as server, managed() as manager:
        server.on("GET", body("{}"))
        where = target(server.url)
        await era_of(manager, where)
        await given_up.wait()
        await era_of(manager, where)
        assert server.count("GET") == STREAMS_PER_MINUTE == 3


async def test_a_stream_that_ends_at_once_is_not_opened_for_ever() -> None:
    async def ends(exchange: Exchange) -> None:
        await exchange.open_stream()
        await exchange.chunk(b"retry: 1\nid: 1\ndata:\n\n")

    async with FakeMCPServer() as server, managed() as manager:
        server.on("GET", ends)
        where = target(server.url)
        await era_of(manager, where)
        await server.heard("GET", times=3)
        for _ in range(20):
            await era_of(manager, where)
        assert server.count("GET") == 3


# --- What is said when it cannot be connected to ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (html, "does not answer as an MCP server (text/html"),
        (status(401, "", www_authenticate="Bearer"), "wants a sign-in"),
        (status(403), "refuses the credentials"),
        (status(404), "nothing at this address"),
        (status(429), "asked too often"),
        (status(500, "Traceback: secret-token-1"), "HTTP 500"),
        (body("not json"), "not valid JSON-RPC"),
        (body("null"), "not valid JSON-RPC"),
        (status(302, location="/login?next=x"), "redirects to http://127.0.0.1"),
    ],
)
async def test_an_unfit_answer_fails_the_connect_in_words(answer: Handler, words: str) -> None:
    async with FakeMCPServer() as server, managed() as manager:
        server.on("POST", answer)
        server.on("GET", answer)
        error = await refused(manager, target(server.url, headers={"X-Token": "secret-token-1"}))
        assert words in error.public_message
        assert "“Fake” cannot be reached" in error.public_message
        assert "secret-token-1" not in str(error)


async def test_a_closed_port_is_said_to_refuse() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/mcp"
        async with managed() as manager:
            error = await refused(manager, target(url))
    assert error.public_message == "“Fake” cannot be reached: 127.0.0.1: the connection was refused."


async def test_an_unknown_name_is_said_to_be_unknown() -> None:
    async with managed() as manager:
        error = await refused(manager, target("https://nowhere.invalid/mcp"))
    assert "nowhere.invalid" in error.public_message


async def test_a_refused_address_says_what_an_operator_can_do() -> None:
    async with managed() as manager:
        error = await refused(manager, target("https://10.0.0.1/mcp"))
    assert "MCP_ALLOW_PRIVATE=10.0.0.1:443" in error.public_message


async def test_a_server_that_breaks_off_every_handshake_is_unavailable() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        server.on("initialize", die)
        await refused(manager, target(server.url))
        assert server.count("initialize") == 2
        server.on("initialize", once(die))
        await era_of(manager, target(server.url))


async def test_a_failing_connect_does_not_outlast_its_limit_however_many_ways_are_tried(
    ahead: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcpservers.clients.FALLBACK_SECONDS", 600)
    gate = asyncio.Event()
    async with FakeMCPServer() as server, managed() as manager:
        server.on("POST", html)
        server.on("GET", after(gate, hang))
        failing = asyncio.create_task(refused(manager, target(server.url, connect_timeout=60)))
        await server.heard("GET")
        ahead(60)
        error = await failing
        assert "text/html" in error.public_message  # the first failure says more than the time that ran out
