"""Calls of one round that run side by side: none waits for another, and the model sees them in its own order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from accounts.models import User
from agents.models import Agent
from mcpservers.models import MCPServer, ServerGrant
from tests.conversations.chat import Chat
from tests.fakes.endpoint import Endpoint, calls, text
from tests.fakes.mcp_server import Exchange, FakeMCPServer

SLOW, FAST, ASKED = ("odd__echo", {"text": "slow"}), ("odd__echo", {"text": "fast"}), ("odd__write", {"text": "x"})


@pytest.fixture
def gate() -> asyncio.Event:
    """Until it is set, the slow call gets no result."""
    return asyncio.Event()


@pytest.fixture
async def fake(gate: asyncio.Event) -> AsyncIterator[FakeMCPServer]:
    async def answer(exchange: Exchange) -> None:
        if exchange.params["arguments"] == SLOW[1]:
            await exchange.progress(1)
            await gate.wait()
        await server.reply(exchange)

    async with FakeMCPServer() as server:
        server.on("tools/call", answer)
        yield server


@pytest.fixture
def agent(
    transactional_db: None, fake: FakeMCPServer, organization: Any, endpoint: Endpoint, make_agent: Callable[..., Agent]
) -> Agent:
    rules = [{"tool": "write", "do": "ask"}, {"tool": "*", "do": "allow"}]
    server = MCPServer.objects.create(organization=organization, slug="odd", title="Odd", url=fake.url, rules=rules)
    ServerGrant.objects.create(server=server, whole_organization=True)
    return make_agent(organization, base_url=endpoint.base_url, servers=[server])


async def test_calls_of_one_round_run_together_and_go_back_in_call_order(
    owner: User, endpoint: Endpoint, gate: asyncio.Event
) -> None:
    endpoint.script(calls(SLOW, FAST), text("done"))
    async with await Chat.of(owner) as chat:
        await chat.start()
        first = await chat.until("call.finished")
        gate.set()
        finished = await chat.until("turn.finished")
        ended = [frame["call_id"] for frame in chat.frames(finished["turn_id"]) if frame["type"] == "call.finished"]
        made = [part["id"] for part in finished["message"]["parts"] if part["type"] == "call"]
        assert ended == [made[1], made[0]]
        assert first["call_id"] == made[1]
        assert any(frame["type"] == "call.progress" for frame in chat.frames(finished["turn_id"]))
    tools = [message for message in endpoint.last.messages if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in tools] == ["call_1", "call_2"]


async def test_an_answer_while_a_sibling_runs_is_picked_up_by_the_running_turn(
    owner: User, endpoint: Endpoint, gate: asyncio.Event
) -> None:
    endpoint.script(calls(SLOW, ASKED), text("both"))
    async with await Chat.of(owner) as chat:
        await chat.start()
        card = await chat.until("call.approval")
        await chat.until("call.progress")
        await chat.send("call.decide", call_id=card["call_id"], decision="allow_once")
        first = await chat.until("call.finished")
        gate.set()
        assert (first["call_id"], first["status"]) == (card["call_id"], "ok")
        finished = await chat.until("turn.finished")
        assert "turn.waiting" not in [frame["type"] for frame in chat.frames(finished["turn_id"])]
