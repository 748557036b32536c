"""Completions through the model, over real HTTP: what is sent, pooled, and given back."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable

from agents.parts import Finish, TextChunk, TokenUsage, text_message
from agents.providers.openai_chat import OpenAIChatModel, preload
from tests.agents.providers.conftest import ask
from tests.fakes.endpoint import Endpoint, calls, delta, document, text

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


async def test_a_list_of_chunks_as_one_document_is_understood(endpoint: Endpoint, model_of: ModelOf) -> None:
    endpoint.script(document([delta("Hel"), delta("lo", finish="stop")]))
    assert (await ask(model_of())).completion.text == "Hello"


async def test_the_usage_of_an_endpoint_that_tells_none_is_estimated(endpoint: Endpoint, model_of: ModelOf) -> None:
    endpoint.script(text("x" * 40, usage=None))
    usage = (await ask(model_of())).completion.usage
    assert usage is not None
    assert (usage.output_tokens, usage.estimated) == (10, True)
    assert usage.input_tokens > 0


async def test_the_model_is_named_for_people(model_of: ModelOf) -> None:
    assert model_of().name == "test-model"
    assert model_of(title="Test Model").name == "Test Model"


def test_the_openai_package_is_not_imported_before_it_is_needed() -> None:
    """It takes a second, in which a starting server could already listen."""
    code = "import sys, agents.providers.openai_chat, agents.providers.endpoints; sys.exit('openai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_the_openai_package_can_be_imported_ahead() -> None:
    await preload()
    assert "openai" in sys.modules


async def test_a_request_of_some_megabytes_arrives_whole(endpoint: Endpoint, model_of: ModelOf) -> None:
    endpoint.script(text("ok"), text("ok"))
    words = "a🦀" * 1_000_000
    model = model_of()
    assert (await ask(model, [text_message("user", words)])).text == "ok"
    assert endpoint.last.messages[0]["content"] == words
    assert int(endpoint.last.headers["content-length"]) == len(endpoint.last.raw)
    assert (await ask(model)).text == "ok"
    assert [request.connection for request in endpoint.requests] == [1, 1]
