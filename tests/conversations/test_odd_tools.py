"""Turns on a scripted MCP server that answers, and a scripted model that calls, in ways nobody asked for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from accounts.models import User
from agents.arguments import MAX_ARGUMENTS
from agents.models import Agent
from chatui.rows import in_rows
from conversations.models import Attachment, ToolCall, Turn
from mcpservers.models import MCPServer, ServerGrant
from tests.agents.providers.request_shape import check_request
from tests.conversations.chat import Chat, Frame, gapless
from tests.fakes.anew import served_anew
from tests.fakes.endpoint import Endpoint, RecordedRequest, calls, chunks, delta, failure, text
from tests.fakes.mcp_server import Exchange, FakeMCPServer, big, body

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture
async def fake(house: Any) -> AsyncIterator[FakeMCPServer]:
    async with served_anew() as server:
        server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "write")]
        yield server


@pytest.fixture
def server(transactional_db: None, organization: Any, fake: FakeMCPServer) -> MCPServer:
    server = MCPServer.objects.create(
        organization=organization, slug="odd", title="Odd", url=fake.url, rules=[{"tool": "*", "do": "allow"}]
    )
    ServerGrant.objects.create(server=server, whole_organization=True)
    return server


@pytest.fixture
def agent(organization: Any, endpoint: Endpoint, server: MCPServer, make_agent: Callable[..., Agent]) -> Agent:
    return make_agent(organization, base_url=endpoint.base_url, servers=[server], profile={"images": True})


def call_of(finished: Frame) -> Frame:
    found: Frame = next(part for part in finished["message"]["parts"] if part["type"] == "call")
    return found


async def after(chat: Chat, finished: Frame, words: str = "and now?") -> Frame:
    """The end of the next turn of the same conversation."""
    conversation = (await Turn.objects.aget(pk=finished["turn_id"])).conversation_id
    return await chat.ask(words, conversation_id=str(conversation))


# --- What a model asks for ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [90, 250, 450, 5000])
async def test_arguments_nested_however_deep_never_cost_the_turn(
    owner: User, endpoint: Endpoint, levels: int, fake: FakeMCPServer
) -> None:
    endpoint.script(calls(("odd__echo", '{"a":' * levels + "1" + "}" * levels)), text("done"), text("still here"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert finished["outcome"] == "completed"
        assert call_of(finished)["status"] == ("ok" if levels < 100 else "error")
        assert gapless(chat.frames(finished["turn_id"]))
        assert (await after(chat, finished))["outcome"] == "completed"
    assert fake.count("tools/call") == (levels < 100)


OSLO = {"city": "Oslo"}
TICKET = {"properties": {"id": {"type": "string"}, "fields": {"type": "object"}, "tags": {"type": "array"}}}
TEXT = {"properties": {"data": {"type": "string"}}, "required": ["data"]}


@pytest.mark.parametrize(
    ("schema", "written", "reached"),
    [
        ({}, "", {}),
        ({}, " \n", {}),
        (
            TICKET,
            r'{"id":"T-1","fields":"{\"note\": \"hi\"}","tags":"[\"a\",\"b\"]"}',
            {"id": "T-1", "fields": {"note": "hi"}, "tags": ["a", "b"]},
        ),
        (TEXT, r'{"data":"{\"k\": 1}"}', {"data": '{"k": 1}'}),
        ({}, '{"city":"Oslo"}{"city":"Oslo"}', OSLO),
        ({}, '```json\n{"city": "Oslo"}\n```', OSLO),
        ({}, '{"city": "Oslo"}</tool_call>', OSLO),
        ({}, '{"q":"a}{b"}', {"q": "a}{b"}),
        ({}, '{"q": "what\'s new"}', {"q": "what's new"}),
        ({}, r'{"q": "\ud83c\udf78 bar"}', {"q": "\U0001f378 bar"}),
        ({}, r'{"q": "x\ud83dy"}', {"q": "x\ufffdy"}),
        ({}, '{"q": "line1\nline2\tend"}', {"q": "line1\nline2\tend"}),
        ({}, '{"key":"a","op":"delete"}{"key":"b","op":"delete"}', "one call for each"),
        ({}, "{'city': 'Oslo', 'live': True, 'x': None}", "not valid JSON"),
        ({}, '{"x": NaN, "y": Infinity}', "NaN"),
        (TEXT, '{"x": 1}', "'data' is a required property"),
    ],
)
async def test_what_a_model_writes_as_arguments_reaches_the_tool_as_meant_or_not_at_all(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer, schema: Frame, written: str, reached: Frame | str
) -> None:
    fake.tools[0]["inputSchema"] = {"type": "object", **schema}
    endpoint.script(calls(("odd__echo", written)), text("done"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
    assert finished["outcome"] == "completed"
    given = [exchange.params.get("arguments", {}) for exchange in fake.exchanges_of("tools/call")]
    asked, result = endpoint.last.messages[-2:]
    check_request(endpoint.last.body)
    replayed = json.loads(asked["tool_calls"][0]["function"]["arguments"], parse_constant=pytest.fail)
    if isinstance(reached, str):
        assert (given, call_of(finished)["status"]) == ([], "error")
        assert reached in result["content"]
    else:
        assert (given, call_of(finished)["status"]) == ([reached], "ok")
        assert replayed == (json.loads(written) if schema is TICKET else reached)  # an object stays as it was written


@pytest.mark.parametrize(("size", "status"), [(2_000_000, "ok"), (MAX_ARGUMENTS + 1000, "error")])
async def test_arguments_of_megabytes_in_thousands_of_pieces_arrive_or_are_refused_and_are_shown_short(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer, size: int, status: str
) -> None:
    pieces = ['{"q":"', *["a" * 1000] * (size // 1000), '"}']
    opening = delta(tool_calls=[{"index": 0, "id": "c", "function": {"name": "odd__echo", "arguments": ""}}])
    steps = [delta(tool_calls=[{"index": 0, "function": {"arguments": piece}}]) for piece in pieces]
    endpoint.script(chunks(opening, *steps, delta(finish="tool_calls")), text("done"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert (finished["outcome"], call_of(finished)["status"]) == ("completed", status)
        assert max(len(json.dumps(frame)) for frame in chat.seen) < 2**16
    assert [len(exchange.params["arguments"]["q"]) for exchange in fake.exchanges_of("tools/call")] == (
        [size] if status == "ok" else []
    )


async def test_numbers_of_any_size_reach_the_tool_and_the_person(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer
) -> None:
    fake.tools[0]["inputSchema"] = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 10**30}}}
    fake.on(
        "tools/call",
        body('{"jsonrpc":"2.0","id":{id},"result":{"content":[],"structuredContent":{"n":1%s}}}' % ("0" * 25)),
    )
    endpoint.script(calls(("odd__echo", {"n": 10**25})), text("done"), text("still here"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert finished["outcome"] == "completed"
        assert call_of(finished)["arguments"] == {"n": float(10**25)}  # as a browser reads it
        assert call_of(finished)["content"] == [{"type": "json", "value": {"n": float(10**25)}}]
        assert (await after(chat, finished))["outcome"] == "completed"
    assert fake.exchanges_of("tools/call")[0].params["arguments"] == {"n": 10**25}


async def test_more_calls_in_one_go_than_may_run_at_once_all_run_and_go_back_in_order(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer, settings: Any
) -> None:
    running, most, together = 0, 0, asyncio.Event()

    async def count(exchange: Exchange) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if most == settings.TURN["MAX_PARALLEL_CALLS"]:
            together.set()
        await together.wait()
        running -= 1
        await exchange.result({"content": [{"type": "text", "text": exchange.params["arguments"]["n"]}]})

    fake.on("tools/call", count)
    endpoint.script(calls(*[("odd__echo", {"n": str(number)}) for number in range(50)]), text("done"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert gapless(chat.frames(finished["turn_id"]))
    results = [message["content"] for message in endpoint.last.messages if message["role"] == "tool"]
    assert results == [str(number) for number in range(50)]
    assert most == settings.TURN["MAX_PARALLEL_CALLS"]


async def test_a_tool_of_a_server_that_is_not_the_agents_is_not_reached_by_its_name(
    owner: User, endpoint: Endpoint, organization: Any, fake: FakeMCPServer
) -> None:
    def other() -> None:
        made = MCPServer.objects.create(
            organization=organization, slug="other", url=fake.url, rules=[{"tool": "*", "do": "allow"}]
        )
        ServerGrant.objects.create(server=made, whole_organization=True)

    await in_rows(other)
    endpoint.script(calls(("other__echo", {}), ("echo", {}), ("odd__echo\n", {})), text("done"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
    states = [part["status"] for part in finished["message"]["parts"] if part["type"] == "call"]
    assert states == ["error", "error", "ok"]
    assert fake.count("tools/call") == 1
    for message in endpoint.last.messages:
        for call in message.get("tool_calls", ()):
            assert call["function"]["name"].replace("_", "").isalnum()


@pytest.mark.parametrize(
    ("fragment", "status"),
    [
        ([{"index": 0, "id": "c", "function": {"name": "odd__echo", "arguments": "[1]"}}], "error"),
        ([{"index": 0, "id": "c", "function": {"name": "odd__echo", "arguments": 5}}], "error"),
        ([{"index": 0, "id": "c", "function": {"name": "odd__echo", "arguments": {"text": "x"}}}], "ok"),
        ([{"index": "0", "id": 7, "function": {"name": "odd__echo", "arguments": "{}"}}], "ok"),
        ([{"index": 10**12, "id": "i" * 10_000, "function": {"name": "odd__echo", "arguments": "{}"}}], "ok"),
        ([{"index": -1, "id": "c", "function": {"name": "odd__echo", "arguments": '{"n": NaN}'}}], "error"),
        ([{"index": 0, "id": "c", "function": None}], None),
        ([{"index": 0, "id": "c"}], None),
        ({"x": 1}, None),
        (["a"], None),
    ],
)
async def test_a_call_of_an_odd_shape_is_a_call_an_error_or_nothing(
    owner: User, endpoint: Endpoint, fragment: Any, status: str | None
) -> None:
    endpoint.script(chunks(delta(tool_calls=fragment), delta(finish="tool_calls")), text("done"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
    assert finished["outcome"] == "completed"
    states = [part["status"] for part in finished["message"]["parts"] if part["type"] == "call"]
    assert states == ([status] if status else [])


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 10**30, "completion_tokens": 10**30, "total_tokens": 10**31},
        {"prompt_tokens": -5, "completion_tokens": -7, "total_tokens": 0},
        {"prompt_tokens": "many", "completion_tokens": None},
        {"prompt_tokens": 1.5, "completion_tokens": 1e300},
        {"prompt_tokens": True, "completion_tokens": {"a": 1}},
        [],
        "none",
        7,
    ],
)
async def test_usage_that_makes_no_sense_costs_neither_the_answer_nor_its_end(
    owner: User, endpoint: Endpoint, usage: Any
) -> None:
    endpoint.script(text("fine", usage=usage), text("still here"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert finished["outcome"] == "completed"
        counted = finished["message"]["usage"]
        assert all(0 <= counted[name] < 10**15 for name in ("input_tokens", "output_tokens"))
        assert (await after(chat, finished))["outcome"] == "completed"


async def test_an_id_of_a_call_that_cannot_be_stored_is_replaced(owner: User, endpoint: Endpoint) -> None:
    fragments = [
        {"index": number, "id": id, "function": {"name": "odd__echo", "arguments": "{}"}}
        for number, id in enumerate(["a\0b", "\ud83d" * 300, "a\0c"])
    ]
    odd = b"data: " + json.dumps(delta(tool_calls=fragments)).encode() + b"\n\n"
    endpoint.script(chunks(odd, delta(finish="tool_calls")), text("done"), text("more"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert finished["outcome"] == "completed"
        assert (await after(chat, finished))["outcome"] == "completed"
    for request in endpoint.requests[1:]:
        asked = [call["id"] for message in request.messages for call in message.get("tool_calls", ())]
        answered = [message["tool_call_id"] for message in request.messages if message["role"] == "tool"]
        assert asked == answered
        assert len(set(asked)) == 3


# --- What a server answers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [150, 250, 3000])
async def test_a_result_nested_however_deep_never_costs_the_turn(
    owner: User, endpoint: Endpoint, levels: int, fake: FakeMCPServer
) -> None:
    deep = '{"a":' * levels + "1" + "}" * levels
    fake.on(
        "tools/call",
        body('{"jsonrpc":"2.0","id":{id},"result":{"content":[],"structuredContent":DEEP}}'.replace("DEEP", deep)),
    )
    endpoint.script(calls(("odd__echo", {})), text("done"), text("still here"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert finished["outcome"] == "completed"
        assert call_of(finished)["status"] == ("ok" if levels < 200 else "error")
        assert (await after(chat, finished))["outcome"] == "completed"


async def test_a_result_of_megabytes_is_bounded_wherever_it_goes_and_the_next_message_works(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer, settings: Any
) -> None:
    fake.on("tools/call", big(2_000_000))
    endpoint.script(calls(("odd__echo", {})), text("done"), text("still here"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert (finished["outcome"], call_of(finished)["status"]) == ("completed", "ok")
        assert max(len(json.dumps(frame)) for frame in chat.seen) <= 256 * 1024
        call = await ToolCall.objects.aget()
        assert len(call.result_text) + len(json.dumps(call.result_content)) < 256 * 1024
        whole = await Attachment.objects.as_system().aget(call=call)
        assert whole.size == 2_000_000
        told = endpoint.last.messages[-1]["content"]
        assert len(told) <= settings.MCP["RESULT_MAX_CHARACTERS"]
        assert "read_result" in told
        assert (await after(chat, finished))["outcome"] == "completed"


async def test_half_a_character_and_nul_in_a_result_are_stored_shown_and_sent_clean(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer
) -> None:
    odd = "hi \ud83d and \0 🎉 北京"

    async def answer(exchange: Exchange) -> None:
        await exchange.result({"content": [{"type": "text", "text": odd}], "structuredContent": {odd: odd}})

    fake.on("tools/call", answer)
    endpoint.script(calls(("odd__echo", json.dumps({"text": odd}))), text("done"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
    clean = "hi \ufffd and \ufffd 🎉 北京"
    call = call_of(finished)
    assert (call["status"], call["arguments"]) == ("ok", {"text": clean})
    assert call["content"] == [{"type": "text", "text": clean}, {"type": "json", "value": {clean: clean}}]
    assert clean in endpoint.last.messages[-1]["content"]
    assert fake.exchanges_of("tools/call")[0].params["arguments"] == {"text": clean}


async def test_an_image_that_the_endpoint_refuses_does_not_poison_the_conversation(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer
) -> None:
    async def picture(exchange: Exchange) -> None:
        await exchange.result({"content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]})

    def refuse_images(request: RecordedRequest) -> Any:
        return failure(400, "Invalid image data") if b"data:image" in request.raw else text("without it")

    fake.on("tools/call", picture)
    endpoint.script(calls(("odd__echo", {})), refuse_images, refuse_images)
    async with await Chat.of(owner) as chat:
        failed = await chat.ask()
        assert (failed["outcome"], call_of(failed)["status"]) == ("failed", "ok")
        assert (await after(chat, failed))["outcome"] == "completed"
    assert len(endpoint.requests) == 3


async def test_what_a_server_says_of_its_trouble_is_told_clean(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer
) -> None:
    refusal = r'{"jsonrpc":"2.0","id":{id},"error":{"code":-32000,"message":"no \u0000 \ud83d way."}}'
    for method in ("server/discover", "initialize"):
        fake.on(method, body(refusal))
    endpoint.script(text("without it"), text("still here"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert finished["outcome"] == "completed"
        told = finished["message"]["parts"][0]["detail"]
        assert told == "Odd: “Odd” cannot be reached: no \ufffd \ufffd way."
        assert (await after(chat, finished))["outcome"] == "completed"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_that_introduces_itself_with_odd_characters_is_used(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer, era: str
) -> None:
    fake.era, fake.instructions = era, "Be \0 \ud83d kind."
    fake.tools[0] |= {"title": "Ec\0ho", "description": "Say \ud83d it."}
    endpoint.script(calls(("odd__echo", {"text": "hi"})), text("done"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
    assert call_of(finished)["status"] == "ok"
    server = await MCPServer.objects.as_system().aget()
    assert server.last_error == ""
    assert server.era["mode"] == era
