"""The scripted model over HTTP, with the `openai` package as the client."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx2
import openai
import pytest
from openai import AsyncOpenAI

from demo.model import NAME, DemoModel

TOOLS = [
    {"type": "function", "function": {"name": f"cafe__{name}", "parameters": {"type": "object"}}}
    for name in ("current_time", "calculate")
]


@pytest.fixture(scope="module")
def model() -> Iterator[DemoModel]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        served = DemoModel(listening, pace=0)
        served.start()
        yield served
        served.stop()


@pytest.fixture
async def client(model: DemoModel) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=model.base_url, api_key="none", max_retries=0, timeout=60) as client:
        yield client


def ask(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


async def read_into(read: list[str], stream: Any) -> None:
    async for chunk in stream:
        read.append(chunk.choices[0].delta.content or "")


async def test_it_lists_itself(client: AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == [NAME]


async def test_it_streams_reasoning_text_and_parallel_calls_with_whole_arguments(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model=NAME,
        messages=ask("Time in Berlin and Tokyo?"),
        tools=TOOLS,
        stream=True,
        stream_options={"include_usage": True},
    )
    text, reasoning, arguments, finish, usage = "", "", {}, None, None
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            finish = choice.finish_reason or finish
            for call in choice.delta.tool_calls or ():
                arguments[call.index] = arguments.get(call.index, "") + (call.function.arguments or "")
    assert "clocks" in text
    assert "at once" in reasoning
    assert [json.loads(value) for value in arguments.values()] == [
        {"timezone": "Europe/Berlin"},
        {"timezone": "Asia/Tokyo"},
    ]
    assert finish == "tool_calls"
    assert usage is not None
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


async def test_it_answers_without_streaming_too(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model=NAME, messages=ask("1+2"), tools=TOOLS)
    (call,) = answer.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"expression": "1+2"}


async def test_no_tool_is_called_where_none_may_be(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model=NAME, messages=ask("1+2"), tools=TOOLS, tool_choice="none")
    assert answer.choices[0].message.tool_calls is None


async def test_asked_to_fail_it_is_a_500(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.InternalServerError, match="asked to fail"):
        await client.chat.completions.create(model=NAME, messages=ask("fail"), stream=True)


async def test_asked_to_cut_it_breaks_the_connection_in_the_middle(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(model=NAME, messages=ask("cut"), stream=True)
    read: list[str] = []
    with pytest.raises((openai.APIError, OSError, httpx2.HTTPError)):
        await read_into(read, stream)
    assert "important" in "".join(read)


async def test_asked_to_stall_it_falls_silent_and_lets_a_client_go(
    client: AsyncOpenAI, ahead: Callable[[float], None]
) -> None:
    stream = await client.chat.completions.create(model=NAME, messages=ask("stall"), stream=True)
    chunks, read = aiter(stream), ""
    while "important" not in read:
        read += (await anext(chunks)).choices[0].delta.content or ""
    asyncio.get_running_loop().call_soon(ahead, 60)
    with pytest.raises((openai.APITimeoutError, httpx2.TimeoutException)):
        await read_into([], chunks)


async def test_nonsense_is_a_400(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError):
        await client.post("/chat/completions", body={"messages": "x", "tools": [1]}, cast_to=object)
