"""Completions through the model, over real HTTP: what is sent, pooled, and given back."""

from __future__ import annotations

from collections.abc import Callable

from agents.parts import Finish, TextChunk, TokenUsage
from agents.providers.openai_chat import OpenAIChatModel
from tests.agents.providers.conftest import ask
from tests.fakes.endpoint import Endpoint, calls, text

ModelOf = Callable[..., OpenAIChatModel]


async def test_text_streams_and_ends_in_a_completion(endpoint: Endpoint, model_of: ModelOf) -> None:
    endpoint.script(text("Hello ", "there"))
    answered = await ask(model_of())
    assert answered.text == "Hello there"
    completion = answered.completion
    assert (completion.text, completion.finish, completion.usage) == ("Hello there", Finish.STOP, TokenUsage(11, 7))
    assert completion.model == "test-model"


async def test_tool_calls_come_whole_with_the_completion(endpoint: Endpoint, model_of: ModelOf) -> None:
    endpoint.script(calls(("get_weather", {"city": "Oslo"}), ("add_numbers", {"a": 2}), text="Let me look."))
    answered = await ask(model_of())
    assert answered.text == "Let me look."
    assert answered.calls == [("get_weather", '{"city": "Oslo"}'), ("add_numbers", '{"a": 2}')]
    assert [request.id for request in answered.completion.requests] == ["call_1", "call_2"]
    assert answered.completion.finish is Finish.TOOL_CALLS


async def test_the_first_words_are_shown_while_the_rest_is_still_to_come(endpoint: Endpoint, model_of: ModelOf) -> None:
    import asyncio

    gate = asyncio.Event()
    endpoint.script(text("first", gate, " second"))
    events = model_of().stream([])
    assert await anext(events) == TextChunk("first")
    gate.set()
    assert await anext(events) == TextChunk(" second")
    assert [event async for event in events]


async def test_the_key_is_sent_and_a_connection_is_used_again(endpoint: Endpoint, model_of: ModelOf) -> None:
    endpoint.script(text("one"), text("two"))
    model = model_of(api_key="the-key")
    await ask(model)
    await ask(model)
    assert endpoint.last.headers["authorization"] == "Bearer the-key"
    assert [request.connection for request in endpoint.requests] == [1, 1]
