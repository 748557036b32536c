"""A server whose definition depends on the turn: one session for a turn's calls, ended however the turn ends.

Counted at the server's side: sessions begun, sessions ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID

import pytest

from accounts.models import User
from agents.models import Agent
from chatui import lifecycle
from chatui.rows import in_rows
from conversations import supervisor
from conversations.models import Turn
from mcpservers import connections
from mcpservers.models import CatalogueEntry, MCPServer, ServerGrant
from tests.conversations.chat import Chat
from tests.fakes.endpoint import Endpoint, calls, failure, never, text
from tests.fakes.mcp_server import FakeMCPServer, hang

ECHO = ("turns__echo", {"text": "hi"})
WRITE = ("turns__write", {})


@pytest.fixture
async def fake() -> AsyncIterator[FakeMCPServer]:
    async with FakeMCPServer() as server:
        yield server


@pytest.fixture
def agent(
    transactional_db: None,
    fake: FakeMCPServer,
    house: Any,
    endpoint: Endpoint,
    organization: Any,
    make_agent: Callable[..., Agent],
) -> Agent:
    server = MCPServer.objects.create(
        organization=organization,
        slug="turns",
        title="Turns",
        url=fake.url,
        headers={"X-Turn": "{{request.turn_id}}", "X-Conversation": "{{request.conversation_id}}"},
        rules=[{"tool": "echo", "do": "allow"}],  # to write is asked
        timeout=60,
        connect_timeout=60,
    )
    ServerGrant.objects.create(server=server, whole_organization=True)
    return make_agent(organization, base_url=endpoint.base_url, servers=[server])


async def all_ended(fake: FakeMCPServer, sessions: int) -> None:
    """Every session that the server ever gave was ended by us, and there were so many."""
    await fake.until(lambda: len(fake.ended) == len(fake.sessions))
    assert len(fake.sessions) == sessions
    assert connections.manager()._runs == set()


async def test_a_completed_turn_shares_one_session_among_listing_and_calls_and_ends_it(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer
) -> None:
    endpoint.script(calls(ECHO, ECHO), calls(ECHO), text("done"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert finished["outcome"] == "completed"
        await all_ended(fake, 1)
        assert fake.count("tools/call") == 3
        heard = {exchange.headers["x-turn"] for exchange in fake.exchanges if exchange.verb == "POST"}
        assert heard == {finished["turn_id"]}
        endpoint.script(calls(ECHO), text("done"))
        second = await chat.ask()
        await all_ended(fake, 2)
    assert fake.exchanges_of("tools/call")[-1].headers["x-turn"] == second["turn_id"]
    assert not await in_rows(CatalogueEntry.objects.count)  # listed in each turn, never stored
    assert fake.count("tools/list") == 2


async def test_a_turn_that_calls_nothing_ends_its_session_too(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer
) -> None:
    endpoint.script(text("hello"))
    async with await Chat.of(owner) as chat:
        await chat.ask()
        await all_ended(fake, 1)


async def test_a_turn_that_fails_ends_its_session(owner: User, endpoint: Endpoint, fake: FakeMCPServer) -> None:
    endpoint.script(calls(ECHO), failure(400, "no"))
    async with await Chat.of(owner) as chat:
        assert (await chat.ask())["outcome"] == "failed"
        await all_ended(fake, 1)


@pytest.mark.parametrize("moment", ["connecting", "listing", "writing", "calling"])
async def test_a_turn_that_is_stopped_ends_its_session_whatever_it_was_doing(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer, moment: str
) -> None:
    method = {"connecting": "initialize", "listing": "tools/list", "calling": "tools/call"}.get(moment, "")
    if method:
        fake.on(method, hang)
    endpoint.script(*([calls(ECHO)] if moment == "calling" else []), never())
    async with await Chat.of(owner) as chat:
        turn_id = await chat.start()
        if method:
            await fake.heard(method)
        else:
            await fake.heard("tools/list")
            await chat.until("status", lambda frame: frame["code"] == "thinking")
        await chat.send("turn.stop", turn_id=str(turn_id))
        finished = await chat.until("turn.finished")
        assert finished["outcome"] == "stopped"
        await all_ended(fake, 0 if moment == "connecting" else 1)
    assert not connections.manager()._opening


async def test_a_turn_that_parks_ends_its_session_and_goes_on_with_another(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer
) -> None:
    endpoint.script(calls(ECHO, WRITE))
    async with await Chat.of(owner) as chat:
        await chat.start()
        card = await chat.until("call.approval")
        await chat.until("turn.waiting")
        await all_ended(fake, 1)
        endpoint.script(text("done"))
        await chat.send("call.decide", call_id=card["call_id"], decision="allow_once")
        finished = await chat.until("turn.finished")
        assert finished["outcome"] == "completed"
        await all_ended(fake, 2)
    turns = {exchange.headers["x-turn"] for exchange in fake.exchanges if exchange.verb == "POST"}
    assert turns == {finished["turn_id"]}


async def test_a_parked_turn_that_is_stopped_or_denied_leaves_nothing(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer
) -> None:
    endpoint.script(calls(WRITE))
    async with await Chat.of(owner) as chat:
        turn_id = await chat.start()
        await chat.until("turn.waiting")
        await chat.send("turn.stop", turn_id=str(turn_id))
        await chat.until("turn.finished")
        await all_ended(fake, 1)


async def test_the_shutdown_of_the_process_ends_the_sessions_of_its_turns(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer, settings: Any
) -> None:
    settings.TURN = settings.TURN | {"DRAIN_SECONDS": 0}
    fake.on("tools/call", hang)
    endpoint.script(calls(ECHO))
    async with await Chat.of(owner) as chat:
        turn_id = await chat.start()
        await fake.heard("tools/call")
        await supervisor.current().aclose(drain_seconds=0)
        await lifecycle.aclose()
        assert fake.ended == set(fake.sessions)
        assert len(fake.sessions) == 1
    stored = await in_rows(lambda: Turn.objects.get(pk=turn_id))
    assert stored.status == "interrupted"
    supervisor.current().draining = False


async def test_turns_of_two_people_at_once_have_a_session_each_and_their_own_headers(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer, bob: User
) -> None:
    endpoint.script(calls(ECHO), text("done"), calls(ECHO), text("done"))
    async with await Chat.of(owner) as one, await Chat.of(bob) as other:
        ended = await asyncio.gather(one.ask(), other.ask())
        await all_ended(fake, 2)
    turn_of: dict[str, set[str]] = {}
    for exchange in fake.exchanges:
        if exchange.session:
            turn_of.setdefault(exchange.session, set()).add(exchange.headers["x-turn"])
    assert sorted(map(sorted, turn_of.values())) == sorted([frame["turn_id"]] for frame in ended)
    assert UUID(ended[0]["turn_id"]) != UUID(ended[1]["turn_id"])
