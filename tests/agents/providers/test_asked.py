"""Whether the endpoint has the prompt: what a cut then costs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from agents.providers.chat_model import EndpointTimeoutError
from tests.agents.providers.conftest import QUESTION, ask
from tests.fakes.endpoint import Answer, Endpoint, delta, document, failure, never, text


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ([text("Hello")], True),
        ([failure(500, "busy"), text("Hello")], True),
        ([Answer([delta("Hel")], "eof")], True),
        ([failure(500, "busy"), failure(500, "busy")], False),
        ([failure(400, "too long")], False),
        ([failure(401, "who?")], False),
        ([document({"error": {"message": "no quota", "code": 429}})], False),
        ([document("<html>", content_type="text/html")], False),
        ([document("data: [DONE]\n\n", content_type="text/event-stream")], False),
    ],
)
async def test_an_endpoint_that_refused_the_prompt_does_not_have_it(
    endpoint: Endpoint, model_of: Any, answers: list[Answer], asked: bool
) -> None:
    endpoint.script(*answers)
    model = model_of(retries=1)
    await ask(model)
    assert model.asked is asked


async def test_it_has_the_prompt_before_it_answers_and_a_person_who_stops_changes_nothing(
    endpoint: Endpoint, model_of: Any
) -> None:
    endpoint.script(never())
    model, told = model_of(), asyncio.Event()
    model._when_asked = told.set
    running = asyncio.create_task(ask(model))
    await told.wait()
    assert model.asked
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert model.asked


async def test_it_has_a_large_prompt_too(endpoint: Endpoint, model_of: Any) -> None:
    endpoint.script(text("Hello"))
    model = model_of(extra_body={"padding": "x" * 2**21})
    told: list[bool] = []
    model._when_asked = lambda: told.append(model.asked)
    await ask(model)
    assert told == [True]  # once, however many pieces it is sent in


async def test_it_has_the_prompt_when_it_takes_too_long(
    endpoint: Endpoint, model_of: Any, ahead: Callable[[float], None]
) -> None:
    endpoint.script(never())
    model = model_of(first_token_timeout=60)
    running = asyncio.create_task(ask(model))
    await endpoint.received(1)
    ahead(60)
    assert isinstance((await running).error, EndpointTimeoutError)
    assert model.asked


async def test_it_has_nothing_while_it_cannot_be_reached_or_others_are_before(
    endpoint: Endpoint, model_of: Any
) -> None:
    told: list[str] = []
    busy = model_of(max_concurrency=1, first_token_timeout=0.1)
    endpoint.script(text("Hel", asyncio.Event()))
    first = busy.stream(QUESTION)
    await anext(first)
    second = model_of(max_concurrency=1, first_token_timeout=0.1)
    second._when_asked = lambda: told.append("busy")
    await ask(second)
    await first.aclose()
    down = model_of()
    down._when_asked = lambda: told.append("down")
    await endpoint.stop()
    await ask(down)
    assert (told, second.asked, down.asked) == ([], False, False)
