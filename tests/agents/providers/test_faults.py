"""Endpoints that fail, in every way: always a clear error, what was shown is kept, and no secret is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

from agents.parts import ArgumentsProgress, Completion, Finish, ModelEvent, TextChunk, TokenUsage
from agents.providers import openai_chat
from agents.providers.assembler import Assembler
from agents.providers.chat_model import (
    EndpointAuthenticationError,
    EndpointRateLimitedError,
    EndpointRequestError,
    EndpointTimeoutError,
    EndpointUnavailableError,
    EndpointUnreachableError,
)
from agents.providers.patience import Patience
from tests.agents.providers.conftest import CALLS, QUESTION, STOP, TOOLS, Answered, Reply, ask, call, called
from tests.fakes.endpoint import Answer, Endpoint, delta, document, failure, never, reads, text

KEY = "sk-SECRET123456"


def told(answered: Answered) -> str:
    """Everything that an error could show or log."""
    error = answered.error
    assert error is not None
    return f"{error} {error!r} {error.public_message} {error.detail}"


# --- No connection ------------------------------------------------------------------------------------------------


async def test_an_endpoint_that_is_down_cannot_be_reached(endpoint: Endpoint, model_of: Any) -> None:
    model = model_of()
    await endpoint.stop()
    answered = await ask(model)
    assert isinstance(answered.error, EndpointUnreachableError)
    assert answered.error.detail == "The connection was refused."


async def test_an_endpoint_that_comes_back_is_found_by_a_retry(
    endpoint: Endpoint, model_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = endpoint.port
    await endpoint.stop()
    endpoint.script(text("back"))

    async def meanwhile(_: float) -> None:
        await endpoint.start(port)

    monkeypatch.setattr(openai_chat, "_pause", meanwhile)
    assert (await ask(model_of(base_url=f"http://127.0.0.1:{port}/v1"))).text == "back"


async def test_a_host_that_does_not_resolve_cannot_be_reached(model_of: Any) -> None:
    answered = await ask(model_of(base_url="https://does-not-exist.invalid/v1", retries=0))
    assert isinstance(answered.error, EndpointUnreachableError)
    assert "resolved" in answered.error.detail


@pytest.mark.parametrize("url", ["http://10.0.0.1/v1", "https://169.254.169.254/v1", "https://[::1]:1/v1"])
async def test_a_private_address_is_refused_and_not_named(model_of: Any, url: str) -> None:
    answered = await ask(model_of(base_url=url))
    assert isinstance(answered.error, EndpointUnreachableError)
    assert "MCP_ALLOW_PRIVATE" in answered.error.detail
    assert "169.254" not in answered.error.detail


async def test_the_address_that_the_operators_environment_names_is_allowed(
    endpoint: Endpoint, model_of: Any, settings: Any
) -> None:
    settings.MCP_ALLOW_PRIVATE = []
    endpoint.script(text("hi"), text("hi"))
    assert isinstance((await ask(model_of())).error, EndpointUnreachableError)
    settings.OPENAI_BASE_URL = f"http://127.0.0.1:{endpoint.port}"
    assert (await ask(model_of())).text == "hi"
    settings.OPENAI_BASE_URL = f"http://127.0.0.1:{endpoint.port + 1}/v1"
    assert isinstance((await ask(model_of())).error, EndpointUnreachableError)


async def test_tls_to_a_server_without_it_fails_clearly(endpoint: Endpoint, model_of: Any) -> None:
    answered = await ask(model_of(base_url=f"https://127.0.0.1:{endpoint.port}/v1", retries=0, connect_timeout=0.2))
    assert isinstance(answered.error, EndpointUnreachableError)


async def test_a_base_url_that_is_none_is_said_to_be_so(model_of: Any) -> None:
    answered = await ask(model_of(base_url="api.example.org"))
    assert isinstance(answered.error, EndpointRequestError)
    assert "base URL" in answered.error.detail


async def test_a_header_that_cannot_be_sent_is_named_and_not_shown(endpoint: Endpoint, model_of: Any) -> None:
    answered = await ask(model_of(headers={"X-Tenant": "Zürich\nX-Other: 1"}))
    assert isinstance(answered.error, EndpointRequestError)
    assert "X-Tenant" in answered.error.detail
    assert "Zürich" not in told(answered)
    assert not endpoint.requests


# --- Status -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_never_echoed(endpoint: Endpoint, model_of: Any, status: int) -> None:
    endpoint.script(failure(status, f"Incorrect API key provided: {KEY}. Your org is internal-9."))
    answered = await ask(model_of(api_key=KEY))
    assert isinstance(answered.error, EndpointAuthenticationError)
    assert "SECRET" not in told(answered)
    assert "internal-9" not in told(answered)
    assert answered.error.detail == ""
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize("status", [400, 404, 413, 422])
async def test_a_request_that_is_not_accepted_is_asked_once_and_quoted_masked(
    endpoint: Endpoint, model_of: Any, status: int
) -> None:
    words = f"Invalid 'temperature' (key {KEY}, Bearer abcdef123, header tenant-secret-1). " + "x" * 500
    endpoint.script(failure(status, words))
    answered = await ask(model_of(api_key=KEY, headers={"X-Token": "tenant-secret-1"}))
    assert isinstance(answered.error, EndpointRequestError)
    assert answered.error.detail.startswith("Invalid 'temperature'")
    assert len(answered.error.detail) <= 300
    for secret in (KEY, "abcdef123", "tenant-secret-1"):
        assert secret not in told(answered)
    assert answered.error.http_status == status
    assert len(endpoint.requests) == 1


async def test_after_a_refused_request_the_next_one_works(endpoint: Endpoint, model_of: Any) -> None:
    endpoint.script(failure(400), text("fine"))
    model = model_of()
    await ask(model)
    assert (await ask(model)).text == "fine"


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
async def test_what_may_pass_is_retried_before_anything_is_shown(
    endpoint: Endpoint, model_of: Any, status: int
) -> None:
    endpoint.script(failure(status), failure(status), text("at last"))
    assert (await ask(model_of(retries=2))).text == "at last"
    assert len(endpoint.requests) == 3


async def test_retries_end(endpoint: Endpoint, model_of: Any) -> None:
    endpoint.script(*[failure(500, "out of memory")] * 5)
    answered = await ask(model_of(retries=1))
    assert isinstance(answered.error, EndpointUnavailableError)
    assert answered.error.detail == "out of memory"
    assert len(endpoint.requests) == 2


async def test_the_wait_that_an_endpoint_asks_for_is_kept(
    endpoint: Endpoint, model_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    async def pause(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(openai_chat, "_pause", pause)
    endpoint.script(failure(429, retry_after="7"), failure(503, retry_after_ms="1500"), text("ok"))
    assert (await ask(model_of())).text == "ok"
    assert waited == [7, 1.5]


async def test_a_wait_that_is_too_long_is_told_instead(endpoint: Endpoint, model_of: Any) -> None:
    endpoint.script(failure(429, "Quota", retry_after="3600"))
    answered = await ask(model_of())
    assert isinstance(answered.error, EndpointRateLimitedError)
    assert answered.error.retry_after == 3600
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed(endpoint: Endpoint, model_of: Any, status: int) -> None:
    async with Endpoint(text("stolen")) as elsewhere:
        endpoint.script(failure(status, location=f"{elsewhere.base_url}/chat/completions"))
        answered = await ask(model_of(api_key=KEY))
        assert isinstance(answered.error, EndpointRequestError)
        assert "redirects" in answered.error.detail
        assert not elsewhere.connections


@pytest.mark.parametrize("body", ["", "Bad Gateway", "<html>nginx</html>", "[]", "null", '{"error":null}', b"\xff\xfe"])
async def test_an_error_without_a_readable_message_is_still_an_error(
    endpoint: Endpoint, model_of: Any, body: Any
) -> None:
    endpoint.script(failure(502, body=body))
    answered = await ask(model_of(retries=0))
    assert isinstance(answered.error, EndpointUnavailableError)
    assert "<" not in answered.error.detail


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "no such model"}},
        {"error": "no such model"},
        {"message": "no such model"},
        {"detail": "no such model"},
        {"detail": [{"msg": "no such model", "loc": ["body"]}]},
        [{"error": {"message": "no such model"}}],
        "no such model",
    ],
)
async def test_the_message_is_found_in_every_usual_shape(endpoint: Endpoint, model_of: Any, body: Any) -> None:
    endpoint.script(failure(404, body=body))
    answered = await ask(model_of())
    assert answered.error is not None
    assert answered.error.detail == "no such model"


async def test_an_error_with_an_endless_body_is_read_only_in_part(endpoint: Endpoint, model_of: Any) -> None:
    piece = "x" * 65536
    endpoint.script(Answer([piece] * 50 + [asyncio.Event()], status=400))
    answered = await ask(model_of())
    assert isinstance(answered.error, EndpointRequestError)


# --- Not a completion ---------------------------------------------------------------------------------------------


async def test_a_web_page_with_status_200_is_not_an_answer(endpoint: Endpoint, model_of: Any) -> None:
    endpoint.script(document("<!DOCTYPE html><html>Sign in</html>", content_type="text/html"))
    answered = await ask(model_of())
    assert isinstance(answered.error, EndpointRequestError)
    assert "web page" in answered.error.detail
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize("body", ["", " \n", "[DONE]", "data: [DONE]\n\n", "hello", "{broken", '{"detail":"x"}', "[]"])
async def test_a_body_that_is_no_answer_is_an_error(endpoint: Endpoint, model_of: Any, body: str) -> None:
    endpoint.script(document(body, content_type="text/event-stream"), text("another"))
    answered = await ask(model_of())
    assert isinstance(answered.error, EndpointUnavailableError)
    assert len(endpoint.requests) == 1


async def test_an_error_as_json_with_status_200_is_an_error(endpoint: Endpoint, model_of: Any) -> None:
    endpoint.script(document({"error": {"message": f"backend busy {KEY}", "code": 503}}))
    answered = await ask(model_of(api_key=KEY))
    assert isinstance(answered.error, EndpointUnavailableError)
    assert answered.error.detail == "backend busy •••"


async def test_an_endpoint_that_answers_whole_although_asked_to_stream_is_understood(
    endpoint: Endpoint, model_of: Any
) -> None:
    completion = text("Hello").completion
    endpoint.script(document(completion), document([completion]), document(completion, content_type="text/plain"))
    for _ in range(3):
        answered = await ask(model_of())
        assert (answered.text, answered.completion.finish) == ("Hello", Finish.STOP)
        assert answered.completion.usage == TokenUsage(11, 7)


# --- Time ---------------------------------------------------------------------------------------------------------


async def test_an_endpoint_that_never_answers_times_out_and_is_not_retried(
    endpoint: Endpoint, model_of: Any, ahead: Callable[[float], None]
) -> None:
    endpoint.script(never(), text("late"))
    running = asyncio.create_task(ask(model_of(first_token_timeout=60)))
    await endpoint.received(1)
    ahead(60)
    answered = await running
    assert isinstance(answered.error, EndpointTimeoutError)
    assert len(endpoint.requests) == 1
    await endpoint.last.disconnected.wait()


async def test_a_first_token_that_never_comes_times_out_in_spite_of_comments(endpoint: Endpoint, model_of: Any) -> None:
    endpoint.script(reads(": processing\n\n", asyncio.Event()))
    answered = await ask(model_of(first_token_timeout=0.1, chunk_timeout=60))
    assert isinstance(answered.error, EndpointTimeoutError)


async def test_a_stream_that_stops_times_out_and_keeps_what_was_shown(
    endpoint: Endpoint, model_of: Any, ahead: Callable[[float], None]
) -> None:
    endpoint.script(text("Hel", asyncio.Event(), "lo"))
    async with aclosing(model_of(chunk_timeout=60).stream(QUESTION)) as events:
        assert await anext(events) == TextChunk("Hel")
        asyncio.get_running_loop().call_soon(ahead, 60)
        with pytest.raises(EndpointTimeoutError):
            await anext(events)
    await endpoint.last.disconnected.wait()


async def test_any_byte_begins_the_time_between_chunks_anew(
    endpoint: Endpoint, model_of: Any, monkeypatch: pytest.MonkeyPatch, ahead: Callable[[float], None]
) -> None:
    """The whole takes longer than the limit, each silence less."""
    waits, wait = asyncio.Event(), Patience.wait

    async def told(patience: Patience, awaitable: Any) -> Any:
        waits.set()
        return await wait(patience, awaitable)

    monkeypatch.setattr(Patience, "wait", told)
    gates = [asyncio.Event() for _ in range(6)]
    steps = [step for gate in gates for step in (gate, ": ping\n\n")]
    endpoint.script(Answer([delta("A"), *steps, delta("B"), STOP]))
    async with aclosing(model_of(chunk_timeout=60).stream(QUESTION)) as events:
        assert await anext(events) == TextChunk("A")
        rest = asyncio.create_task(anext(events))
        for gate in gates:
            await waits.wait()
            waits.clear()
            ahead(40)
            gate.set()
        assert await rest == TextChunk("B")


async def test_two_minutes_of_arguments_are_no_silence_and_are_told_all_along(
    endpoint: Endpoint, model_of: Any, monkeypatch: pytest.MonkeyPatch, ahead: Callable[[float], None]
) -> None:
    loop = asyncio.get_running_loop()
    monkeypatch.setitem(Assembler.__init__.__kwdefaults__, "clock", lambda: loop.time())
    seconds = [asyncio.Event() for _ in range(120)]
    fragments = [called(call(arguments="a" * 500))] * 5
    steps = [step for second in seconds for step in (second, *fragments)]
    opening, ending = call("get_weather", '{"city":"', id="c"), call(arguments='"}')
    endpoint.script(Answer([called(opening), *steps, called(ending), CALLS]))
    async with aclosing(model_of(chunk_timeout=30).stream(QUESTION, TOOLS)) as events:
        shown = [await anext(events)]
        for second in seconds:
            ahead(1)
            second.set()
            shown.append(await anext(events))
        shown += [event async for event in events]
    assert all(isinstance(event, ArgumentsProgress) for event in shown[:-1])
    assert isinstance(completion := shown[-1], Completion)
    assert len(json.loads(completion.requests[0].arguments)["city"]) == 600 * 500


async def test_a_slow_consumer_is_no_slow_endpoint(
    endpoint: Endpoint, model_of: Any, ahead: Callable[[float], None]
) -> None:
    rest = asyncio.Event()
    endpoint.script(text("A", rest, "B"))
    async with aclosing(model_of(chunk_timeout=60).stream(QUESTION)) as events:
        assert await anext(events) == TextChunk("A")
        rest.set()
        await endpoint.last.answered.wait()
        ahead(150)
        for _ in range(3):
            await asyncio.sleep(0)  # whoever looks at the clock has looked
        assert await anext(events) == TextChunk("B")


async def test_an_answer_that_is_whole_does_not_wait_for_an_end_that_never_comes(
    endpoint: Endpoint, model_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agents.providers import exchange

    monkeypatch.setattr(exchange, "LINGER_SECONDS", 0.1)
    endpoint.script(
        Answer([delta("Hi"), STOP, asyncio.Event()]), Answer([delta("Hi"), STOP, "data: [DONE]\n\n", asyncio.Event()])
    )
    for _ in range(2):
        assert (await ask(model_of())).completion.text == "Hi"


async def test_a_finish_on_every_chunk_is_no_reason_to_stop_listening(
    endpoint: Endpoint, model_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agents.providers import exchange

    monkeypatch.setattr(exchange, "LINGER_SECONDS", 0.05)
    gate = asyncio.Event()
    pieces = [delta(piece, finish="stop") for piece in ("A", "B", "C")]
    endpoint.script(Answer([*pieces[:2], gate, pieces[2]]), Answer([*pieces[:2], gate, ": x\n\n"], "reset"))
    asyncio.get_running_loop().call_later(0.15, gate.set)
    assert (await ask(model_of())).completion.text == "ABC"
    assert isinstance((await ask(model_of())).error, EndpointUnavailableError)


# --- Broken in mid-stream -----------------------------------------------------------------------------------------


async def test_a_reset_before_the_first_chunk_is_retried(endpoint: Endpoint, model_of: Any) -> None:
    endpoint.script(Answer([": hello\n\n"], "reset"), Answer([b""], "reset"), text("ok"))
    assert (await ask(model_of())).text == "ok"


async def test_a_reset_in_mid_stream_keeps_what_was_shown_and_is_not_retried(reply: Reply, endpoint: Endpoint) -> None:
    answered = await reply(delta("Hel"), end="reset")
    assert isinstance(answered.error, EndpointUnavailableError)
    assert answered.text in ("Hel", "")  # a reset may overtake what was sent before it
    assert not any(isinstance(event, Completion) for event in answered.events)


async def test_a_reset_after_text_was_shown_is_not_retried(endpoint: Endpoint, model_of: Any) -> None:
    gate = asyncio.Event()
    endpoint.script(Answer([delta("Hel"), gate, ": x\n\n"], "reset"), text("again"))
    shown: list[ModelEvent] = []

    async def consume() -> None:
        async for event in model_of().stream(QUESTION):
            shown.append(event)
            gate.set()

    with pytest.raises(EndpointUnavailableError):
        await consume()
    assert shown == [TextChunk("Hel")]
    assert len(endpoint.requests) == 1


async def test_a_connection_that_the_endpoint_closed_while_idle_costs_nothing(
    endpoint: Endpoint, model_of: Any
) -> None:
    endpoint.script(text("one"), text("two"))
    model = model_of()
    await ask(model)
    await endpoint.drop_connections()
    assert (await ask(model)).text == "two"


# --- Closing ------------------------------------------------------------------------------------------------------


async def test_closing_the_iterator_closes_the_request(endpoint: Endpoint, model_of: Any) -> None:
    endpoint.script(text("Hel", asyncio.Event()))
    async with aclosing(model_of().stream(QUESTION)) as events:
        assert await anext(events) == TextChunk("Hel")
    await endpoint.last.disconnected.wait()


async def test_cancelling_before_the_first_token_closes_the_request(endpoint: Endpoint, model_of: Any) -> None:
    endpoint.script(never())
    running = asyncio.create_task(ask(model_of()))
    request = await endpoint.received(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await request.disconnected.wait()


async def test_one_conversation_that_fails_leaves_the_others_alone(endpoint: Endpoint, model_of: Any) -> None:
    gate = asyncio.Event()
    endpoint.script(text("A", gate, "B"), failure(500), failure(400))
    model = model_of(retries=0)
    running = asyncio.create_task(ask(model))
    await endpoint.received(1)
    await ask(model)
    await ask(model)
    gate.set()
    assert (await running).text == "AB"
