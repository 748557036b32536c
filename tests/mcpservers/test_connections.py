"""The pool: who shares a connection with whom, when one is rebuilt, and that nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from chatui.errors import DrainingError
from mcpservers import connections
from mcpservers.connections import ConnectionManager
from mcpservers.errors import ConnectionLostError, RequestFailedError, RequestTimeoutError, ServerUnavailableError
from mcpservers.transports import ConnectionTarget, target_of
from tests.fakes.idle import turns_of_the_loop
from tests.fakes.mcp_server import Exchange, FakeMCPServer, after, hang, status
from tests.fakes.mcp_targets import GLOBEX, actor, definition, managed, target

CALL = {"name": "echo", "arguments": {"text": "hi"}}
Ahead = Callable[[float], None]
TOKEN: dict[str, Any] = {"headers": {"Authorization": "Bearer {{TOKEN}}"}, "variables": {"TOKEN": {}}}


async def call(manager: ConnectionManager, where: ConnectionTarget) -> str:
    async with manager.borrow(where) as connection:
        return str((await connection.request_raw("tools/call", CALL))["content"][0]["text"])


# --- Who shares ---------------------------------------------------------------------------------------------------


async def test_an_app_connection_is_reused_by_everybody_in_the_organization() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        one = definition(server.url)
        for who in (actor("alice"), actor("bob")):
            assert await call(manager, target_of(one, who, {})) == "hi"
        assert len(server.sessions) == 1


async def test_two_users_with_the_same_key_of_their_own_have_two_sessions() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        one = definition(server.url, **TOKEN)
        for who in (actor("alice"), actor("bob"), actor("alice")):
            await call(manager, target_of(one, who, {"TOKEN": "shared-key"}))
        assert len(server.sessions) == 2


async def test_two_organizations_with_the_same_definition_have_two_sessions() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        one = definition(server.url)
        await call(manager, target_of(one, actor(), {}))
        one.organization_id = GLOBEX
        await call(manager, target_of(one, actor("charlie", GLOBEX), {}))
        assert len(server.sessions) == 2


async def test_each_user_sees_the_tools_of_the_own_credentials_only() -> None:
    async def listed(exchange: Exchange) -> None:
        admin = exchange.headers["authorization"] == "Bearer admin-key"
        await exchange.result({"tools": [{"name": "admin_tool" if admin else "basic", "inputSchema": {}}]})

    async with FakeMCPServer() as server, managed() as manager:
        server.on("tools/list", listed)
        one = definition(server.url, **TOKEN)
        names = {}
        for name, key in (("alice", "admin-key"), ("bob", "basic-key")):
            async with manager.borrow(target_of(one, actor(name), {"TOKEN": key})) as connection:
                names[name] = [tool["name"] for tool in (await connection.request_raw("tools/list"))["tools"]]
        assert names == {"alice": ["admin_tool"], "bob": ["basic"]}


async def test_a_cookie_set_for_one_user_is_not_sent_for_another() -> None:
    async def answer(exchange: Exchange) -> None:
        text = exchange.headers.get("cookie", "none")
        body = '{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"%s"}]}}'
        await exchange.respond(200, body % (exchange.message["id"], text), "application/json", set_cookie="who=alice")

    async with FakeMCPServer() as server, managed() as manager:
        server.on("tools/call", answer)
        one = definition(server.url, **TOKEN)
        alice, bob = (target_of(one, actor(name), {"TOKEN": "key-of-us"}) for name in ("alice", "bob"))
        assert [await call(manager, where) for where in (alice, alice, bob)] == ["none", "who=alice", "none"]


# --- Opening ------------------------------------------------------------------------------------------------------


async def test_concurrent_first_uses_open_one_connection() -> None:
    gate = asyncio.Event()
    async with FakeMCPServer() as server, managed() as manager:
        server.on("initialize", after(gate, server.reply))
        calls = [asyncio.create_task(call(manager, target(server.url))) for _ in range(8)]
        await server.heard("initialize")
        gate.set()
        # Eight targets of eight definitions are eight servers; the same one is opened once.
        await asyncio.gather(*calls)
        assert len(server.sessions) == 8
        same = target(server.url)
        await asyncio.gather(*(call(manager, same) for _ in range(8)))
        assert len(server.sessions) == 9


async def test_one_who_stops_waiting_does_not_cancel_the_opening_for_the_others() -> None:
    gate = asyncio.Event()
    async with FakeMCPServer() as server, managed() as manager:
        server.on("initialize", after(gate, server.reply))
        same = target(server.url)
        first, second = (asyncio.create_task(call(manager, same)) for _ in range(2))
        await server.heard("initialize")
        first.cancel()
        gate.set()
        assert await second == "hi"
        assert first.cancelled()
        assert server.count("initialize") == 1


async def test_a_failed_opening_is_told_to_all_who_wait_and_then_forgotten() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        server.on("POST", status(503))
        same = target(server.url, transport="streamable-http")
        failures = await asyncio.gather(*(call(manager, same) for _ in range(3)), return_exceptions=True)
        assert [type(failure) for failure in failures] == [ServerUnavailableError] * 3
        assert "HTTP 503" in str(failures[0])
        server.on("POST", None)
        assert await call(manager, same) == "hi"


async def test_a_server_that_never_answers_costs_the_connect_timeout_and_delays_no_other(ahead: Ahead) -> None:
    async with FakeMCPServer() as silent, FakeMCPServer() as server, managed() as manager:
        silent.on("POST", hang)
        waiting = asyncio.create_task(call(manager, target(silent.url, connect_timeout=60)))
        await silent.heard("POST")
        assert await asyncio.gather(*(call(manager, target(server.url)) for _ in range(4))) == ["hi"] * 4
        assert not waiting.done()
        ahead(60)
        with pytest.raises(ServerUnavailableError, match="no answer within 60 s"):
            await waiting
        assert len(manager.list_connections()) == 4


async def test_a_server_that_starts_slowly_works_when_the_limit_is_raised(ahead: Ahead) -> None:
    gate = asyncio.Event()
    async with FakeMCPServer() as server, managed() as manager:
        server.on("initialize", after(gate, server.reply))
        hasty = asyncio.create_task(call(manager, target(server.url, connect_timeout=60)))
        await server.heard("initialize")
        ahead(60)
        with pytest.raises(ServerUnavailableError):
            await hasty
        patient = asyncio.create_task(call(manager, target(server.url, connect_timeout=600)))
        await server.heard("initialize", times=2)
        gate.set()
        assert await patient == "hi"


# --- Staleness ----------------------------------------------------------------------------------------------------


async def test_a_changed_definition_is_used_from_the_next_borrow_on() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        one = definition(server.url, headers={"X-A": "1"})
        await call(manager, target_of(one, actor(), {}))
        one.headers = {"X-A": "2"}
        await call(manager, target_of(one, actor(), {}))
        assert (await server.heard("tools/call", times=2)).headers["x-a"] == "2"
        await server.until(lambda: len(server.ended) == 1)
        assert server.ended == {server.sessions[0]}
        assert [info.state for info in manager.list_connections()].count("ready") == 1


async def test_changed_values_of_a_user_are_used_from_the_next_borrow_on() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        one = definition(server.url, **TOKEN)
        for value in ("first-value", "second-value"):
            await call(manager, target_of(one, actor(), {"TOKEN": value}))
        await server.until(lambda: server.ended == {server.sessions[0]})
        calls = [exchange for exchange in server.exchanges if exchange.method == "tools/call"]
        assert [exchange.headers["authorization"] for exchange in calls] == [
            "Bearer first-value",
            "Bearer second-value",
        ]


async def test_a_stale_connection_in_use_is_closed_when_its_last_lease_comes_back() -> None:
    gate = asyncio.Event()
    async with FakeMCPServer() as server, managed() as manager:
        one = definition(server.url)
        server.on("tools/call", after(gate, server.reply))
        old = asyncio.create_task(call(manager, target_of(one, actor(), {})))
        await server.heard("tools/call")
        one.headers = {"X-A": "2"}
        new = asyncio.create_task(call(manager, target_of(one, actor(), {})))
        await server.heard("tools/call", times=2)
        assert not server.ended
        assert sorted(info.state for info in manager.list_connections()) == ["closing", "ready"]
        gate.set()
        assert await asyncio.gather(old, new) == ["hi", "hi"]
        await server.until(lambda: server.ended == {server.sessions[0]})


async def test_the_address_is_checked_again_at_every_connect(settings: Any) -> None:
    async with FakeMCPServer() as server, managed() as manager:
        where = target(server.url)
        await call(manager, where)
        manager.drop(where.server_id)
        settings.MCP_ALLOW_PRIVATE = []
        seen = server.connections
        with pytest.raises(ServerUnavailableError, match="MCP_ALLOW_PRIVATE"):
            await call(manager, where)
        assert server.connections == seen


async def test_dropping_a_server_closes_the_connections_of_one_user_or_of_all() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        one = definition(server.url, **TOKEN)
        for name in ("alice", "bob", "carol"):
            await call(manager, target_of(one, actor(name), {"TOKEN": "a-token"}))
        assert manager.drop(one.pk, user_id=actor("bob").user_id) == 1
        assert manager.drop(one.pk) == 2
        assert {info.state for info in manager.list_connections()} == {"closing"}
        await server.until(lambda: len(server.ended) == 3)


# --- Loss ---------------------------------------------------------------------------------------------------------


async def test_a_session_that_the_server_forgot_is_told_apart_and_rebuilt() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        where = target(server.url)
        await call(manager, where)
        server.forget_sessions()
        with pytest.raises(ConnectionLostError) as caught:
            await call(manager, where)
        assert not caught.value.sent  # the server refused it unread
        assert await call(manager, where) == "hi"
        assert len(server.sessions) == 2


async def test_a_connection_that_left_a_call_unanswered_is_kept_if_it_still_answers() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        where = target(server.url)
        server.on("tools/call", hang)
        async with manager.borrow(where) as connection:
            with pytest.raises(RequestTimeoutError):
                await connection.request_raw("tools/call", CALL, timeout=0.2)
        server.on("tools/call", None)
        assert await call(manager, where) == "hi"
        assert server.count("ping") == 1
        assert len(server.sessions) == 1


async def test_a_connection_that_left_a_call_unanswered_is_replaced_if_it_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcpservers.connection.PROBE_SECONDS", 0.2)
    async with FakeMCPServer() as server, managed() as manager:
        where = target(server.url)
        server.on("tools/call", hang)
        server.on("ping", hang)
        async with manager.borrow(where) as connection:
            with pytest.raises(RequestTimeoutError):
                await connection.request_raw("tools/call", CALL, timeout=0.2)
        server.on("tools/call", None)
        assert await call(manager, where) == "hi"
        assert len(server.sessions) == 2


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_change_of_the_tool_list_is_heard(era: str) -> None:
    async with FakeMCPServer(era=era) as server, managed() as manager:
        heard: asyncio.Queue[ConnectionTarget] = asyncio.Queue()
        manager.on_tools_changed.append(heard.put)
        where = target(server.url)
        await call(manager, where)
        await server.until(lambda: bool(server.open_streams))
        await server.notify("notifications/tools/list_changed")
        assert await heard.get() == where


async def test_a_stream_of_changes_that_ended_is_opened_again_and_counts_as_a_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcpservers.clients.RELISTEN_SECONDS", 0.05)
    async with FakeMCPServer(era="modern") as server, managed() as manager:
        heard: asyncio.Queue[ConnectionTarget] = asyncio.Queue()
        manager.on_tools_changed.append(heard.put)
        where = target(server.url)
        await call(manager, where)
        await server.until(lambda: bool(server.open_streams))
        (stream,) = server.open_streams.values()
        stream.abort()
        assert await heard.get() == where
        await server.heard("subscriptions/listen", times=2)
        assert await call(manager, where) == "hi"


async def test_a_server_that_does_not_listen_although_it_said_so_is_a_good_server() -> None:
    async with FakeMCPServer(era="modern") as server, managed() as manager:
        server.on("subscriptions/listen", status(404))
        where = target(server.url)
        await call(manager, where)
        await server.heard("subscriptions/listen")
        assert await call(manager, where) == "hi"
        assert server.count("subscriptions/listen") == 1


async def test_a_session_that_was_silent_for_long_is_asked_before_it_is_used_again_and_no_other(settings: Any) -> None:
    settings.MCP = settings.MCP | {"PING_SECONDS": 0}
    async with FakeMCPServer() as server, FakeMCPServer(era="modern") as modern, managed() as manager:
        for url in (server.url, modern.url):
            where = target(url)
            for _ in range(3):
                await call(manager, where)
        assert server.count("ping") == 3
        assert modern.count("ping") == modern.count("server/discover") - 1 == 0


async def test_a_session_that_was_used_a_moment_ago_is_not_asked() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        where = target(server.url)
        for _ in range(5):
            await call(manager, where)
        assert server.count("ping") == 0


async def test_a_session_that_ended_while_it_was_silent_costs_no_call(settings: Any) -> None:
    settings.MCP = settings.MCP | {"PING_SECONDS": 0}
    async with FakeMCPServer() as server, managed() as manager:
        where = target(server.url)
        await call(manager, where)
        server.forget_sessions()
        assert await call(manager, where) == "hi"
        assert len(server.sessions) == 2


async def test_a_server_without_ping_is_a_good_server(settings: Any) -> None:
    settings.MCP = settings.MCP | {"PING_SECONDS": 0}

    async def unknown(exchange: Exchange) -> None:
        await exchange.error(-32601, "Method not found")

    async with FakeMCPServer() as server, managed() as manager:
        server.on("ping", unknown)
        where = target(server.url)
        for _ in range(2):
            await call(manager, where)
        assert len(server.sessions) == 1


# --- Idling and closing -------------------------------------------------------------------------------------------


async def test_a_users_idle_connection_is_closed_by_timer_and_a_leased_one_is_not(settings: Any) -> None:
    settings.MCP = settings.MCP | {"IDLE_SECONDS": 0.1}
    gate = asyncio.Event()
    async with FakeMCPServer() as server, managed() as manager:
        server.on("tools/call", after(gate, server.reply))
        one = definition(server.url, **TOKEN)
        busy = asyncio.create_task(call(manager, target_of(one, actor("alice"), {"TOKEN": "a-token"})))
        await server.heard("tools/call")
        async with manager.borrow(target_of(one, actor("bob"), {"TOKEN": "a-token"})):
            pass
        await server.until(lambda: len(server.ended) == 1)  # Bob's, although Alice's is older
        ready = [info.user_id for info in manager.list_connections() if info.state == "ready"]
        assert ready == [actor("alice").user_id]
        gate.set()
        assert await busy == "hi"
        await server.until(lambda: len(server.ended) == 2)


async def test_a_shared_connection_idles_longer_than_a_users_and_ends_too(settings: Any, ahead: Ahead) -> None:
    settings.MCP = settings.MCP | {"IDLE_SECONDS": 60, "APP_IDLE_SECONDS": 300}
    async with FakeMCPServer() as server, managed() as manager:
        await call(manager, target(server.url))
        await call(manager, target_of(definition(server.url, **TOKEN), actor(), {"TOKEN": "a-token"}))
        shared, own = server.sessions
        ahead(120)
        await server.until(lambda: server.ended == {own})
        ahead(200)
        await server.until(lambda: server.ended == {own, shared})


async def test_the_last_error_of_a_connection_is_shown_without_our_secrets() -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.error(-32000, f"bad key {exchange.headers['authorization']}")

    async with FakeMCPServer() as server, managed() as manager:
        server.on("tools/call", refuse)
        where = target_of(definition(server.url, **TOKEN), actor(), {"TOKEN": "hunter22"})
        with pytest.raises(RequestFailedError):
            await call(manager, where)
        (info,) = manager.list_connections()
        assert (info.state, info.last_error) == ("ready", "bad key •••")


async def test_closing_ends_every_session_and_leaves_no_task() -> None:
    before = asyncio.all_tasks()
    async with FakeMCPServer() as server:
        manager = ConnectionManager()
        await asyncio.gather(*(call(manager, target(server.url)) for _ in range(5)))
        await manager.aclose()
        assert server.ended == set(server.sessions)
        assert manager.list_connections() == []
        with pytest.raises(DrainingError):
            await call(manager, target(server.url))
    assert asyncio.all_tasks() == before


async def test_closing_waits_for_no_server_longer_than_the_grace(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.MCP = settings.MCP | {"CLOSE_SECONDS": 0.5}
    monkeypatch.setattr("mcpservers.sessionhttp.DELETE_SECONDS", 600)
    async with FakeMCPServer() as server:
        manager = ConnectionManager()
        server.on("DELETE", hang)
        where = target(server.url)
        server.on("tools/call", hang)
        stuck = asyncio.create_task(call(manager, where))
        await server.heard("tools/call")
        await manager.aclose()
        with pytest.raises(ConnectionLostError):
            await stuck


async def test_closing_while_a_connection_opens_ends_the_opening() -> None:
    async with FakeMCPServer() as server:
        manager = ConnectionManager()
        server.on("initialize", hang)
        opening = asyncio.create_task(call(manager, target(server.url)))
        await server.heard("initialize")
        await manager.aclose()
        with pytest.raises(DrainingError):
            await opening


async def test_the_manager_of_a_loop_is_one_until_it_is_closed() -> None:
    first = connections.manager()
    assert connections.manager() is first
    await connections.aclose()
    assert connections.manager() is not first
    await connections.aclose()


async def test_live_connections_are_listed_and_closed_from_another_thread() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        loop = asyncio.get_running_loop()
        connections._managers[loop] = manager
        await call(manager, target(server.url, title="Tickets"))
        (info,) = await asyncio.to_thread(connections.live_connections)
        assert (info.title, info.scope, info.leases, info.state) == ("Tickets", "app", 0, "ready")
        assert (info.transport, info.protocol_version) == ("streamable-http", "2025-11-25")
        assert info.age >= info.idle >= 0
        await asyncio.to_thread(connections.close_connection, info.id)
        await server.until(lambda: server.ended == {server.newest})
        del connections._managers[loop]


async def test_an_idle_connection_uses_no_processor_time() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        await asyncio.gather(*(call(manager, target(server.url)) for _ in range(10)))
        assert await turns_of_the_loop(0.5) < 30
