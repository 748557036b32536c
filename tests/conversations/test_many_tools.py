"""Turns of an agent with more tools than a model is offered at once: it searches, finds, and keeps what it found."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone

from accounts.models import AuditRecord, User
from agents.models import Agent
from chatui.rows import in_rows
from conversations.models import Conversation, ToolCall, Turn
from conversations.tool_uses import tool_uses
from mcpservers.models import MCPServer, ServerGrant
from tests.conversations.chat import Chat
from tests.fakes.anew import served_anew
from tests.fakes.endpoint import Endpoint, calls, text
from tests.fakes.mcp_server import Exchange, FakeMCPServer

SCHEMA = {"type": "object", "properties": {"id": {"type": "string"}}}
TOOLS = [
    {"name": f"thing_{n}", "description": f"Does the thing number {n}.", "inputSchema": SCHEMA} for n in range(100)
] + [
    {"name": "send_invoice", "description": "Sends an invoice to a customer.", "inputSchema": SCHEMA},
    {"name": "queryWeather", "description": "查询城市的天气。", "inputSchema": SCHEMA},
]
USUAL = [f"s__thing_{n}" for n in range(60)]


@pytest.fixture
async def fake(transactional_db: None) -> AsyncIterator[FakeMCPServer]:
    cache.clear()
    async with served_anew(tools=list(TOOLS)) as server:
        yield server


@pytest.fixture
def agent(
    fake: FakeMCPServer, house: Any, endpoint: Endpoint, organization: Any, make_agent: Callable[..., Agent]
) -> Agent:
    server = MCPServer.objects.create(
        organization=organization, slug="s", title="S", url=fake.url, rules=[{"tool": "*", "do": "allow"}]
    )
    ServerGrant.objects.create(server=server, whole_organization=True)
    return make_agent(organization, base_url=endpoint.base_url, servers=[server])


INVOICE = ("s__send_invoice", {"id": "7"})


def search(query: str) -> Any:
    return calls(("search_tools", {"query": query, "limit": 1}))


async def test_a_found_tool_is_offered_in_the_next_round_and_called(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer
) -> None:
    endpoint.script(search("send an invoice"), calls(INVOICE), text("Sent."))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert finished["outcome"] == "completed"
        assert not [frame for frame in chat.seen if frame["type"] == "notice"]
    assert [request.tools for request in endpoint.requests] == [
        [*USUAL, "search_tools"],
        [*USUAL, "s__send_invoice", "search_tools"],
        [*USUAL, "s__send_invoice", "search_tools"],
    ]
    assert fake.exchanges_of("tools/call")[0].params == {"name": "send_invoice", "arguments": {"id": "7"}} | {
        "_meta": fake.exchanges_of("tools/call")[0].params["_meta"]
    }
    turn = await in_rows(Turn.objects.get)
    assert turn.offered["s__send_invoice"][1] == "send_invoice", "the map of names grows with what is found"
    assert len(turn.offered) == 61
    recorded = AuditRecord.objects.filter(action="tool.call").order_by("at").values_list("tool", "verdict", "status")
    assert [row async for row in recorded] == [("search_tools", "allow", "ok"), ("send_invoice", "allow", "ok")]


async def test_a_found_tool_that_its_server_no_longer_has_is_offered_and_found_no_more(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer
) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.error(-32602, f"Unknown tool: {exchange.params['name']}")

    def gone(_: Any) -> Any:
        fake.tools = TOOLS[:100]
        return calls(INVOICE)

    fake.on("tools/call", refuse)
    endpoint.script(search("send an invoice"), gone, search("send an invoice"), calls(INVOICE), text("Not today."))
    async with await Chat.of(owner) as chat:
        assert (await chat.ask())["outcome"] == "completed"
    offered = [request.tools for request in endpoint.requests]
    assert [("s__send_invoice" in tools) for tools in offered] == [False, True, False, False, False]
    said = [message["content"] for message in endpoint.last.messages if message["role"] == "tool"]
    assert "has no tool “send_invoice” any more" in said[1]
    assert "s__send_invoice" not in said[2]
    assert "has no tool “send_invoice” any more" in said[3]
    assert fake.count("tools/call") == 1, "it is not asked for again"


async def test_what_was_found_is_still_offered_after_the_turn_has_waited_for_a_person(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer
) -> None:
    rules = [{"tool": "send_invoice", "do": "ask"}, {"tool": "*", "do": "allow"}]
    await in_rows(lambda: MCPServer.objects.as_system().update(rules=rules))
    endpoint.script(search("send an invoice"), calls(INVOICE), calls(("s__thing_1", {})), text("Sent."))
    async with await Chat.of(owner) as chat:
        turn_id = await chat.start()
        card = await chat.until("call.approval")
        await chat.until("turn.waiting")
        await chat.send("call.decide", call_id=card["call_id"], decision="allow_once")
        finished = await chat.until("turn.finished", lambda frame: frame["turn_id"] == str(turn_id))
        assert finished["outcome"] == "completed"
    assert [exchange.params["name"] for exchange in fake.exchanges_of("tools/call")] == ["send_invoice", "thing_1"]
    assert all(request.tools == [*USUAL, "s__send_invoice", "search_tools"] for request in endpoint.requests[1:])
    assert (await in_rows(Turn.objects.get)).offered.keys() == {*USUAL, "s__send_invoice"}


async def test_what_was_found_stays_offered_while_the_conversation_lasts(owner: User, endpoint: Endpoint) -> None:
    endpoint.script(search("查天气"), text("Found."), text("Still there."), text("Not here."))
    async with await Chat.of(owner) as chat:
        await chat.ask()
        conversation = await in_rows(Conversation.objects.as_system().get)
        await chat.ask("and now?", conversation_id=str(conversation.pk))
        await chat.ask("a new chat")
    offered = ["s__queryWeather" in request.tools for request in endpoint.requests]
    assert offered == [False, True, True, False]


async def test_a_tool_that_a_model_used_stays_offered_too(owner: User, endpoint: Endpoint) -> None:
    endpoint.script(calls(INVOICE), text("Sent."), text("Still there."))
    async with await Chat.of(owner) as chat:
        await chat.ask()
        conversation = await in_rows(Conversation.objects.as_system().get)
        await chat.ask("and now?", conversation_id=str(conversation.pk))
    assert ["s__send_invoice" in request.tools for request in endpoint.requests] == [False, True, True]


async def test_the_tools_that_an_agent_uses_most_are_the_ones_offered(
    owner: User, endpoint: Endpoint, agent: Agent
) -> None:
    endpoint.script(calls(INVOICE, ("s__thing_99", {})), text("Sent."), text("In a new chat."))
    async with await Chat.of(owner) as chat:
        await chat.ask()
        cache.clear()  # ten minutes later
        await chat.ask("a new chat")
    assert endpoint.last.tools == [*USUAL[:58], "s__thing_99", "s__send_invoice", "search_tools"]
    assert await in_rows(tool_uses, agent.pk) == {"s__send_invoice": 1, "s__thing_99": 1}


async def test_uses_count_for_a_month_and_searches_are_none(owner: User, endpoint: Endpoint, agent: Agent) -> None:
    endpoint.script(search("invoice"), calls(INVOICE), text("Sent."))
    async with await Chat.of(owner) as chat:
        await chat.ask()
    assert await in_rows(tool_uses, agent.pk) == {}, "counted before"
    cache.clear()
    assert await in_rows(tool_uses, agent.pk) == {"s__send_invoice": 1}
    await in_rows(lambda: ToolCall.objects.update(created_at=timezone.now() - timedelta(days=31)))
    cache.clear()
    assert await in_rows(tool_uses, agent.pk) == {}


async def test_few_tools_that_take_much_of_a_small_context_are_deferred_too(
    owner: User, endpoint: Endpoint, agent: Agent, fake: FakeMCPServer
) -> None:
    fake.tools = [{**tool, "description": "d" * 1000} for tool in TOOLS[:20]]
    await in_rows(lambda: type(agent.model).objects.as_system().update(context=10_000))
    endpoint.script(text("hi"))
    async with await Chat.of(owner) as chat:
        await chat.ask()
    assert endpoint.last.tools == [*USUAL[:7], "search_tools"]


async def test_with_room_for_all_there_is_nothing_to_search(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer
) -> None:
    fake.tools = TOOLS[:60]
    endpoint.script(text("hi"))
    async with await Chat.of(owner) as chat:
        await chat.ask()
    assert endpoint.last.tools == USUAL
