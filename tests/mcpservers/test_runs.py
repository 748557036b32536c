"""Connections of one turn: lent within its run alone, closed with it whatever they are doing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcpservers.connections import ConnectionManager
from mcpservers.errors import ConnectionLostError, OutsideTurnError
from mcpservers.requests import RequestContext
from mcpservers.transports import ConnectionTarget, target_of
from tests.fakes.mcp_server import FakeMCPServer, after, hang
from tests.fakes.mcp_targets import actor, definition, managed
from tests.mcpservers.test_connections import call

HEADERS = {"X-Turn": "{{request.turn_id}} {{request.conversation_id}} {{request.message_id}}", "X-Who": "{{user.id}}"}


def opened(manager: ConnectionManager) -> RequestContext:
    request = RequestContext.of_trial()
    manager.open_run(request.run)
    return request


@pytest.fixture
def where() -> Any:
    made = None

    def target(server: FakeMCPServer, request: RequestContext, who: str = "bob") -> ConnectionTarget:
        nonlocal made
        made = made or definition(server.url, headers=HEADERS)
        return target_of(made, actor(who), {}, request=request)

    return target


async def test_the_calls_of_a_run_share_a_session_that_is_told_of_the_turn_and_ends_with_it(where: Any) -> None:
    async with FakeMCPServer() as server, managed() as manager:
        request = opened(manager)
        await asyncio.gather(*(call(manager, where(server, request)) for _ in range(4)))
        assert len(server.sessions) == 1
        sent = (await server.heard("tools/call")).headers
        assert sent["x-turn"] == f"{request.turn_id} {request.conversation_id} {request.message_id}"
        assert sent["x-who"] == str(actor("bob").user_id)
        manager.close_run(request.run)
        await server.until(lambda: server.ended == set(server.sessions))


async def test_two_runs_even_of_one_turn_never_share(where: Any) -> None:
    async with FakeMCPServer() as server, managed() as manager:
        first = opened(manager)
        again = RequestContext(first.turn_id, first.conversation_id, first.message_id)
        manager.open_run(again.run)
        for request in (first, again):
            await call(manager, where(server, request))
        assert len(server.sessions) == 2
        manager.close_run(first.run)
        await server.until(lambda: len(server.ended) == 1)
        assert await call(manager, where(server, again)) == "hi"
        assert len(server.sessions) == 2


async def test_after_its_end_a_run_gets_no_connection(where: Any) -> None:
    async with FakeMCPServer() as server, managed() as manager:
        request = opened(manager)
        manager.close_run(request.run)
        with pytest.raises(ConnectionLostError, match="the turn has ended"):
            await call(manager, where(server, request))
        assert server.connections == 0


async def test_a_connection_that_is_being_opened_when_the_run_ends_is_not_left_behind(where: Any) -> None:
    gate = asyncio.Event()
    async with FakeMCPServer() as server, managed() as manager:
        server.on("initialize", after(gate, server.reply))
        request = opened(manager)
        opening = [asyncio.create_task(call(manager, where(server, request))) for _ in range(2)]
        await server.heard("initialize")
        manager.close_run(request.run)
        for task in opening:
            with pytest.raises(ConnectionLostError, match="the turn has ended"):
                await task
        gate.set()
        assert manager.list_connections() == []
        assert not manager._opening


async def test_the_end_of_a_run_reaches_the_server_in_mid_call(where: Any) -> None:
    async with FakeMCPServer() as server, managed() as manager:
        server.on("tools/call", hang)
        request = opened(manager)
        calling = asyncio.create_task(call(manager, where(server, request)))
        await server.heard("tools/call")
        manager.close_run(request.run)
        with pytest.raises(ConnectionLostError):
            await calling
        await server.until(lambda: server.ended == set(server.sessions))
        assert [info.state for info in manager.list_connections()] in ([], ["closing"])


def test_without_a_turn_there_is_no_target_but_what_is_to_be_set_up_is_said_first() -> None:
    with pytest.raises(OutsideTurnError, match="within a turn"):
        target_of(definition("https://a.example", headers=HEADERS), actor(), {})
    one = definition("https://a.example", headers=HEADERS, variables={"TOKEN": {"title": "Your token"}})
    with pytest.raises(Exception, match="Set up first: Your token"):
        target_of(one, actor(), {})


async def test_a_definition_that_changes_in_mid_turn_is_used_from_the_next_call_on(where: Any) -> None:
    async with FakeMCPServer() as server, managed() as manager:
        request = opened(manager)
        one = definition(server.url, headers=HEADERS)
        await call(manager, target_of(one, actor(), {}, request=request))
        one.headers = HEADERS | {"X-New": "1"}
        await call(manager, target_of(one, actor(), {}, request=request))
        assert (await server.heard("tools/call", times=2)).headers["x-new"] == "1"
        manager.close_run(request.run)
        await server.until(lambda: server.ended == set(server.sessions))
