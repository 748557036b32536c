"""How many connections there may be, and which one makes room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mcpservers.connections import ConnectionManager
from mcpservers.errors import BusyError, ConnectionLostError
from mcpservers.health import troubles
from mcpservers.transports import ConnectionTarget, target_of
from tests.fakes.mcp_server import FakeMCPServer, after, hang, status
from tests.fakes.mcp_targets import actor, definition, managed, target
from tests.mcpservers.test_connections import TOKEN, call

Ahead = Callable[[float], None]


@pytest.fixture(autouse=True)
def _small(settings: Any) -> None:
    settings.MCP = settings.MCP | {"USER_CONNECTIONS": 2, "PROCESS_CONNECTIONS": 4, "BUSY_SECONDS": 0.2}


def of_user(server: FakeMCPServer, name: str) -> ConnectionTarget:
    """A target of a server of its own, for that user."""
    return target_of(definition(server.url, **TOKEN), actor(name), {"TOKEN": "a-token"})


def ready(manager: ConnectionManager) -> list[Any]:
    return [info.server_id for info in manager.list_connections() if info.state == "ready"]


async def test_above_the_users_limit_the_longest_idle_goes_first() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        first, second, third = (of_user(server, "bob") for _ in range(3))
        other = of_user(server, "alice")
        for where in (other, first, second, first, third):  # the second is now idle longest of Bob's
            await call(manager, where)
        assert ready(manager) == [other.server_id, first.server_id, third.server_id]
        await server.until(lambda: len(server.ended) == 1)


async def test_a_shared_connection_counts_for_no_user() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        for where in (target(server.url), of_user(server, "bob"), target(server.url), of_user(server, "bob")):
            await call(manager, where)
        assert len(ready(manager)) == 4


async def test_above_the_processes_limit_anybodys_longest_idle_goes() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        for where in [target(server.url) for _ in range(3)] + [of_user(server, name) for name in ("bob", "alice")]:
            await call(manager, where)
        assert len(ready(manager)) == 4
        await server.until(lambda: server.ended == {server.sessions[0]})


async def test_where_every_one_is_in_use_a_clear_error_says_so_and_costs_nobody_anything() -> None:
    gate = asyncio.Event()
    async with FakeMCPServer() as server, managed() as manager:
        server.on("tools/call", after(gate, server.reply))
        busy = [asyncio.create_task(call(manager, of_user(server, "bob"))) for _ in range(2)]
        await server.heard("tools/call", times=2)
        where = of_user(server, "bob")
        with pytest.raises(BusyError, match="in use"):
            await call(manager, where)
        assert manager.breaker.refusal(where.circuit) is None
        gate.set()
        assert await asyncio.gather(*busy) == ["hi", "hi"]
        assert await call(manager, where) == "hi"


async def test_who_waits_gets_the_place_of_the_one_that_comes_back(settings: Any) -> None:
    settings.MCP = settings.MCP | {"BUSY_SECONDS": 60}
    gate = asyncio.Event()
    async with FakeMCPServer() as server, managed() as manager:
        server.on("tools/call", after(gate, server.reply))
        busy = [asyncio.create_task(call(manager, of_user(server, "bob"))) for _ in range(5)]
        await server.heard("tools/call", times=2)
        gate.set()
        assert await asyncio.gather(*busy) == ["hi"] * 5
        assert len(ready(manager)) == 2


async def test_what_was_just_opened_is_not_taken_away_before_it_was_used(settings: Any) -> None:
    settings.MCP = settings.MCP | {"BUSY_SECONDS": 60}
    gate = asyncio.Event()

    async def record(*_: object) -> None:
        await gate.wait()  # storing what was learnt takes a while

    async with FakeMCPServer() as server, managed(record=record) as manager:
        calls = [asyncio.create_task(call(manager, of_user(server, "bob"))) for _ in range(6)]
        await server.heard("notifications/initialized", times=2)
        gate.set()
        assert await asyncio.gather(*calls) == ["hi"] * 6
        assert server.count("initialize") == 6


async def test_openings_at_once_never_exceed_the_limit() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        server.on("initialize", hang)
        opening = [asyncio.create_task(call(manager, of_user(server, "bob"))) for _ in range(5)]
        waiting = set(opening)
        while len(waiting) > 2:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            assert all(isinstance(task.exception(), BusyError) for task in done)
        await server.heard("initialize", times=2)
        assert server.count("initialize") == 2
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)


async def test_a_failed_or_an_abandoned_opening_gives_its_place_back() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        server.on("POST", status(503))
        for _ in range(5):
            with pytest.raises(Exception, match="HTTP 503"):
                await call(manager, of_user(server, "bob"))
        server.on("POST", None)
        assert await call(manager, of_user(server, "bob")) == "hi"


async def test_a_stale_connection_does_not_stand_in_the_way_of_its_successor() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        one = definition(server.url, **TOKEN)
        await call(manager, of_user(server, "bob"))
        for value in ("first-one", "second-one", "third-one"):
            await call(manager, target_of(one, actor("bob"), {"TOKEN": value}))
        assert len(ready(manager)) == 2
        await server.until(lambda: len(server.ended) == 2)


async def test_who_keeps_a_connection_for_ever_is_ended_and_its_place_is_free(settings: Any, ahead: Ahead) -> None:
    settings.MCP = settings.MCP | {"CALL_MAX_SECONDS": 60, "USER_CONNECTIONS": 1, "BUSY_SECONDS": 600}
    settings.TURN = settings.TURN | {"LIVE_QUESTION_SECONDS": 60}
    async with FakeMCPServer() as server, managed() as manager:
        kept, waiting = of_user(server, "bob"), of_user(server, "bob")

        async def keep() -> None:
            async with manager.borrow(kept):
                held.set()
                await server.closed.wait()

        held = asyncio.Event()
        keeping = asyncio.create_task(keep())
        await held.wait()
        called = asyncio.create_task(call(manager, waiting))
        asyncio.get_running_loop().call_soon(ahead, 240)
        assert await called == "hi", "it waited for the place"
        with pytest.raises(ConnectionLostError, match=r"in use for longer than 240 seconds"):
            await keeping
        assert [trouble.kind for trouble in troubles.of(kept.server_id)] == ["lease_overdue"]


async def test_what_was_to_be_closed_and_is_not_given_back_is_closed_in_mid_call_and_says_why(
    settings: Any, ahead: Ahead
) -> None:
    settings.MCP = settings.MCP | {"CALL_MAX_SECONDS": 60}
    settings.TURN = settings.TURN | {"LIVE_QUESTION_SECONDS": 60}
    async with FakeMCPServer() as server, managed() as manager:
        where = of_user(server, "bob")
        async with manager.borrow(where) as connection:
            server.on("tools/call", hang)
            manager.drop(where.server_id)
            calling = asyncio.create_task(connection.request("tools/call", {"name": "echo"}, timeout=600))
            await server.heard("tools/call")
            ahead(120)
            with pytest.raises(ConnectionLostError, match=r"was still in use after 120 seconds"):
                await calling
        assert [trouble.kind for trouble in troubles.of(where.server_id)] == ["lease_overdue"]
        assert connection.owner is not None
        await asyncio.wait({connection.owner})
        assert manager.list_connections() == []
        assert server.ended == set(server.sessions)
