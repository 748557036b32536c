"""Pooled clients: one per endpoint, limited, replaced when the endpoint changes, fed by nothing of the environment."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from agents.parts import TextChunk
from agents.providers import openai_chat
from agents.providers.chat_model import EndpointRateLimitedError, EndpointUnavailableError
from tests.agents.providers.conftest import QUESTION, ask
from tests.fakes.endpoint import Answer, Endpoint, delta, text


async def test_without_a_key_no_authorization_is_sent(endpoint: Endpoint, model_of: Any) -> None:
    endpoint.script(text("hi"), text("hi"))
    await ask(model_of())
    assert "authorization" not in endpoint.last.headers
    await ask(model_of(api_key=" \n"))
    assert "authorization" not in endpoint.last.headers


async def test_headers_of_the_endpoint_are_sent_and_win(endpoint: Endpoint, model_of: Any) -> None:
    endpoint.script(*[text("hi")] * 3)
    await ask(model_of(api_key="k\n", headers={"api-key": "azure", "X-Title": "chatui"}))
    assert endpoint.last.headers["authorization"] == "Bearer k"
    assert (endpoint.last.headers["api-key"], endpoint.last.headers["x-title"]) == ("azure", "chatui")
    for fields in ({"api_key": "k"}, {}):
        await ask(model_of(**fields, headers={"authorization": "Basic abc"}))
        assert endpoint.last.headers["authorization"] == "Basic abc"


async def test_nothing_of_the_environment_reaches_an_endpoint(
    endpoint: Endpoint, model_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator's own account must not show at an endpoint that an organization configured."""
    for name in ("API_KEY", "ADMIN_KEY", "ORG_ID", "PROJECT_ID", "WEBHOOK_SECRET"):
        monkeypatch.setenv(f"OPENAI_{name}", f"operators-{name}")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: operators-header\nX-Operator: operators-header")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    endpoint.script(text("hi"), text("hi"))
    for fields in ({}, {"api_key": "k"}):
        assert (await ask(model_of(**fields))).text == "hi"
        assert "operators" not in str(endpoint.last.headers)
        assert not {"openai-organization", "openai-project"} & set(endpoint.last.headers)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_cookies_are_not_kept_from_one_person_to_the_next(endpoint: Endpoint, model_of: Any, host: str) -> None:
    answer = text("hi")
    fields = {"base_url": f"http://{host}:{endpoint.port}/v1"}
    endpoint.script(Answer(answer.steps, headers={"set-cookie": "session=alice; Path=/"}), text("hi"))
    await ask(model_of(**fields))
    await ask(model_of(**fields))
    assert "cookie" not in endpoint.last.headers


async def test_a_query_of_the_base_url_goes_with_every_request(endpoint: Endpoint, model_of: Any) -> None:
    endpoint.script(text("hi"))
    await ask(model_of(base_url=f"http://127.0.0.1:{endpoint.port}/openai/?api-version=2024-10-21"))
    assert endpoint.last.path == "/openai/chat/completions?api-version=2024-10-21"


async def test_requests_at_once_are_limited(endpoint: Endpoint, model_of: Any) -> None:
    gate = asyncio.Event()
    endpoint.script(text("one", gate), text("two"))
    model = model_of(max_concurrency=1, endpoint_key="e")
    first = asyncio.create_task(ask(model))
    await endpoint.received(1)
    second = asyncio.create_task(ask(model))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(endpoint.received(2), 0.05)
    gate.set()
    assert [(await task).text for task in (first, second)] == ["one", "two"]


async def test_who_gets_no_slot_in_time_is_told(endpoint: Endpoint, model_of: Any) -> None:
    endpoint.script(text("one", asyncio.Event()))
    fields = {"max_concurrency": 1, "endpoint_key": "e", "retries": 0}
    async with aclosing(model_of(**fields).stream(QUESTION)) as events:
        assert await anext(events) == TextChunk("one")
        answered = await ask(model_of(**fields, first_token_timeout=0.05))
        assert isinstance(answered.error, EndpointRateLimitedError)
        assert len(endpoint.requests) == 1


async def test_a_slot_is_given_back_after_every_kind_of_end(endpoint: Endpoint, model_of: Any) -> None:
    endpoint.script(Answer([delta("A")], "reset"), text("B", asyncio.Event()), text("C"))
    model = model_of(max_concurrency=1, endpoint_key="e", retries=0)
    await ask(model)
    async with aclosing(model.stream(QUESTION)) as events:
        await anext(events)
    assert (await ask(model)).text == "C"


async def test_a_changed_endpoint_gets_a_new_client_and_running_answers_go_on(
    endpoint: Endpoint, model_of: Any
) -> None:
    gate = asyncio.Event()
    endpoint.script(text("old", gate, " answer"), text("new answer"))
    running = asyncio.create_task(ask(model_of(endpoint_key="e", api_key="old")))
    await endpoint.received(1)
    assert (await ask(model_of(endpoint_key="e", api_key="new"))).text == "new answer"
    assert endpoint.last.headers["authorization"] == "Bearer new"
    gate.set()
    assert (await running).text == "old answer"


async def test_endpoints_do_not_share_connections(endpoint: Endpoint, model_of: Any) -> None:
    endpoint.script(*[text("hi")] * 3)
    for key in ("a", "b", "a"):
        await ask(model_of(endpoint_key=key))
    assert [request.connection for request in endpoint.requests] == [1, 2, 1]


async def test_an_end_that_comes_a_little_after_done_does_not_cost_the_connection(
    endpoint: Endpoint, model_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agents.providers import exchange

    monkeypatch.setattr(exchange, "DRAIN_SECONDS", 60)
    gate = asyncio.Event()
    endpoint.script(Answer([delta("one"), delta(finish="stop"), "data: [DONE]\n\n", gate], "eof"), text("two"))
    running = asyncio.create_task(ask(model_of()))
    await endpoint.received(1)
    asyncio.get_running_loop().call_later(0.01, gate.set)
    await running
    await ask(model_of())
    assert [request.connection for request in endpoint.requests] == [1, 1]


async def test_closing_the_clients_ends_what_runs_and_the_next_request_works(endpoint: Endpoint, model_of: Any) -> None:
    endpoint.script(text("one", asyncio.Event()), text("two"))
    running = asyncio.create_task(ask(model_of(retries=0)))
    await endpoint.received(1)
    await openai_chat.aclose_clients()
    ended = await running
    assert isinstance(ended.error, EndpointUnavailableError)
    assert (await ask(model_of())).text == "two"


async def test_a_compressed_answer_is_read(endpoint: Endpoint, model_of: Any) -> None:
    import gzip
    import json

    lines = [f"data: {json.dumps(step)}\n\n" for step in (delta("zip"), delta(finish="stop"))]
    body = gzip.compress("".join(lines).encode())
    endpoint.script(Answer([body[:10], body[10:]], "eof", headers={"content-encoding": "gzip"}))
    assert (await ask(model_of())).text == "zip"


async def test_a_hundred_answers_at_once_all_arrive(endpoint: Endpoint, model_of: Any) -> None:
    endpoint.script(*[text(*"abcdefghij")] * 100)
    answers = await asyncio.gather(*(ask(model_of()) for _ in range(100)))
    assert {answer.text for answer in answers} == {"abcdefghij"}
