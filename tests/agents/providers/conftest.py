"""Shared by the tests of the providers: the scripted endpoint, and a model that talks to it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from agents.parts import (
    Completion,
    ModelEvent,
    ModelMessage,
    ReasoningChunk,
    TextChunk,
    ToolSpec,
    text_message,
)
from agents.providers import openai_chat
from agents.providers.chat_model import EndpointError
from agents.providers.openai_chat import OpenAIChatModel
from agents.providers.settings import ModelSettings
from tests.fakes.endpoint import Answer, Endpoint, delta, endpoint  # noqa: F401 - the fixture is used by name
from tests.fakes.endpoint_answers import Step

TOOLS = [
    ToolSpec("get_weather", "The weather of a city.", {"type": "object", "properties": {"city": {"type": "string"}}}),
    ToolSpec("add_numbers", "The sum.", {"type": "object", "properties": {"a": {"type": "number"}}}),
]
QUESTION = [text_message("user", "What is the weather?")]
OSLO, BERGEN = '{"city":"Oslo"}', '{"city":"Bergen"}'
START = delta("", role="assistant")
STOP, CALLS = delta(finish="stop"), delta(finish="tool_calls")


@dataclass
class Answered:
    """Everything that one completion gave; `error` instead of the `completion` when it failed."""

    events: list[ModelEvent] = field(default_factory=list)
    error: EndpointError | None = None

    @property
    def completion(self) -> Completion:
        if self.error is not None:
            raise self.error
        last = self.events[-1]
        assert isinstance(last, Completion)
        return last

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextChunk))

    @property
    def reasoning(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, ReasoningChunk))

    @property
    def calls(self) -> list[tuple[str, str]]:
        return [(request.name, request.arguments) for request in self.completion.requests]


@pytest.fixture(autouse=True)
def _no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_chat, "BACKOFF_SECONDS", 0)
    monkeypatch.setattr(openai_chat, "_begin_inside", set())


@pytest.fixture
def model_of(endpoint: Endpoint) -> Callable[..., OpenAIChatModel]:  # noqa: F811 - a fixture is asked for by its name
    def make(**fields: Any) -> OpenAIChatModel:
        return OpenAIChatModel(ModelSettings(**{"base_url": endpoint.base_url, "model": "test-model"} | fields))

    return make


async def ask(
    model: OpenAIChatModel,
    messages: Sequence[ModelMessage] = QUESTION,
    tools: Sequence[ToolSpec] = TOOLS,
    **kwargs: Any,
) -> Answered:
    """One completion, to its end or its error."""
    answered = Answered()
    try:
        async with aclosing(model.stream(messages, tools, **kwargs)) as events:
            async for event in events:
                answered.events.append(event)
    except EndpointError as error:
        answered.error = error
    return answered


Reply = Callable[..., Awaitable[Answered]]


@pytest.fixture
def reply(endpoint: Endpoint, model_of: Callable[..., OpenAIChatModel]) -> Reply:  # noqa: F811 - a fixture is asked for by its name
    """What a completion gives that is answered with these steps, over HTTP."""

    async def run(*steps: Step, end: Literal["done", "eof", "reset"] = "done", **fields: Any) -> Answered:
        endpoint.script(Answer(steps, end))
        return await ask(model_of(**fields))

    return run


def call(
    name: str | None = None, arguments: Any = None, *, index: Any = 0, id: str | None = None, **fields: Any
) -> dict[str, Any]:
    """A fragment of a tool call; what is None is left out."""
    function = {"name": name, "arguments": arguments}
    head = {"index": index, "id": id, **({"type": "function"} if id else {})}
    given = {key: value for key, value in head.items() if value is not None}
    return {**given, "function": {key: value for key, value in function.items() if value is not None}, **fields}


def called(*fragments: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A chunk with these fragments of tool calls."""
    return delta(tool_calls=list(fragments), **fields)


def cost(work: Callable[[], object]) -> float:
    """Seconds of the processor, of the best of three: what the machine does besides is not in it."""

    def once() -> float:
        began = time.process_time()
        work()
        return time.process_time() - began

    return min(once() for _ in range(3))
