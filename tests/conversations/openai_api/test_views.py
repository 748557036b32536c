"""The OpenAI-compatible door, driven by the `openai` package through a real server; tools run in a real MCP server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import aiohttp
import openai
import pytest
from openai import AsyncOpenAI

from accounts.models import Organization, User
from agents.models import Agent
from chatui.rows import in_rows
from conversations.models import Conversation, ToolCall, Turn
from tests.conversations.openai_api.asking import ADD, ask, said, streamed
from tests.conversations.test_uploads import image
from tests.fakes.endpoint import Endpoint, calls, text

# --- Models -------------------------------------------------------------------------------------------------------


async def test_the_models_are_the_agents_of_the_keys_owner(
    client: AsyncOpenAI, organization: Organization, make_agent: Callable[..., Agent]
) -> None:
    await in_rows(make_agent, organization, "hidden", granted=False)
    listed = await client.models.list()
    assert [(model.id, model.object, model.owned_by) for model in listed.data] == [("helper", "model", "acme")]
    assert (await client.models.retrieve("helper")).id == "helper"
    for unknown in ("hidden", "no-such"):
        with pytest.raises(openai.NotFoundError) as refused:
            await client.models.retrieve(unknown)
        assert refused.value.code == "model_not_found"


# --- Answers ------------------------------------------------------------------------------------------------------


async def test_a_question_is_answered_at_once(client: AsyncOpenAI, endpoint: Endpoint) -> None:
    endpoint.script(text("Hel", "lo.", usage={"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}))
    answer = await ask(client)
    assert answer.object == "chat.completion"
    assert answer.model == "helper"
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "Hello.", "stop")
    assert answer.usage.model_dump(include={"prompt_tokens", "completion_tokens", "total_tokens"}) == {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "total_tokens": 10,
    }


async def test_a_stream_has_the_role_the_text_as_it_comes_and_an_end(client: AsyncOpenAI, endpoint: Endpoint) -> None:
    gate = asyncio.Event()
    endpoint.script(text("Hel", gate, "lo."))
    async with await ask(client, stream=True) as stream:
        seen = []
        async for chunk in stream:
            seen.append(chunk)
            if said(seen) == "Hel":
                gate.set()
    assert seen[0].choices[0].delta.role == "assistant"
    assert said(seen) == "Hello."
    assert seen[-1].choices[0].finish_reason == "stop"
    assert {chunk.id for chunk in seen} == {seen[0].id}
    assert {(chunk.object, chunk.model) for chunk in seen} == {("chat.completion.chunk", "helper")}
    assert all(chunk.usage is None for chunk in seen)


async def test_a_stream_tells_its_usage_on_request(client: AsyncOpenAI, endpoint: Endpoint) -> None:
    endpoint.script(text("Hello.", usage={"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}))
    seen = await streamed(client, stream_options={"include_usage": True})
    assert (seen[-1].choices, seen[-1].usage.total_tokens) == ([], 10)
    assert seen[-2].choices[0].finish_reason == "stop"


async def test_a_cut_answer_says_length(client: AsyncOpenAI, endpoint: Endpoint) -> None:
    endpoint.script(text("Hel", finish="length"), text("Hel", finish="length"))
    assert (await ask(client)).choices[0].finish_reason == "length"
    assert (await streamed(client))[-1].choices[0].finish_reason == "length"


async def test_an_answer_that_the_endpoint_filtered_says_so(client: AsyncOpenAI, endpoint: Endpoint) -> None:
    for answer, words in ((text("So far", finish="content_filter"), "So far"), (text(finish="content_filter"), "")):
        endpoint.script(answer, answer)
        (choice,) = (await ask(client)).choices
        assert (choice.finish_reason, choice.message.content) == ("content_filter", words)
        seen = await streamed(client)
        assert (seen[-1].choices[0].finish_reason, said(seen)) == ("content_filter", words)


async def test_earlier_turns_and_instructions_go_to_the_model_in_order(client: AsyncOpenAI, endpoint: Endpoint) -> None:
    endpoint.script(text("Blue."))
    await ask(
        client,
        [
            {"role": "system", "content": "Answer in one word."},
            {"role": "user", "content": "My colour is blue."},
            {"role": "assistant", "content": "Noted."},
            {"role": "user", "content": [{"type": "text", "text": "Which colour?"}]},
        ],
        temperature=0.25,
        max_completion_tokens=50,
    )
    sent = endpoint.last.messages
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "user"]
    assert sent[0]["content"].index("You help.") < sent[0]["content"].index("Answer in one word.")
    assert "blue" in json.dumps(sent[1])
    assert "Which colour?" in json.dumps(sent[3])
    assert endpoint.last.body["temperature"] == 0.25
    assert 50 in endpoint.last.body.values()


async def test_an_image_inside_the_request_reaches_a_model_that_sees(
    client: AsyncOpenAI, endpoint: Endpoint, agent: Agent
) -> None:
    import base64

    agent.model.images = True
    await in_rows(agent.model.save)
    endpoint.script(text("Teal."))
    url = "data:image/png;base64," + base64.b64encode(image("PNG")).decode()
    parts = [{"type": "text", "text": "Which colour?"}, {"type": "image_url", "image_url": {"url": url}}]
    assert (await ask(client, [{"role": "user", "content": parts}])).choices[0].message.content == "Teal."
    assert "image_url" in json.dumps(endpoint.last.messages)
    for data, words in ((image("PNG", (200, 200))[:200], "broken"), (b"no image", "not a PNG")):
        url = "data:image/png;base64," + base64.b64encode(data).decode()
        parts = [{"type": "image_url", "image_url": {"url": url}}]
        with pytest.raises(openai.APIStatusError, match=words) as refused:
            await ask(client, [{"role": "user", "content": parts}])
        assert refused.value.param == "messages.0.content.0"


# --- Tools --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("server")
async def test_tools_run_on_the_server_and_only_the_final_text_is_answered(
    client: AsyncOpenAI, endpoint: Endpoint
) -> None:
    endpoint.script(calls(ADD, text="Let me see."), text("It is 5."))
    answer = await ask(client)
    assert answer.choices[0].message.content == "It is 5."
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].finish_reason == "stop"
    assert endpoint.last.messages[-1]["role"] == "tool"
    assert (await ToolCall.objects.aget()).status == "ok"
    assert "tools" in endpoint.last.body
    endpoint.script(text("About 5."))
    await ask(client, tool_choice="none")
    assert "tools" not in endpoint.last.body


@pytest.mark.usefixtures("server")
async def test_a_stream_shows_what_is_said_before_a_call_as_a_paragraph_of_its_own(
    client: AsyncOpenAI, endpoint: Endpoint
) -> None:
    endpoint.script(calls(ADD, text="Let me see."), calls(ADD), text("It ", "is 5."))
    seen = await streamed(client)
    assert said(seen) == "Let me see.\n\nIt is 5."
    assert all(chunk.choices[0].delta.tool_calls is None for chunk in seen)


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("scopes", [("chat",), ("chat", "approve")])
async def test_a_call_that_would_ask_is_refused_at_once_since_nobody_is_there(
    connect: Callable[..., Any],
    owner: User,
    organization: Organization,
    endpoint: Endpoint,
    scopes: tuple[str, ...],
) -> None:
    endpoint.script(calls(("demo__add_note", {"title": "x", "text": "x"})), text("I could not."))
    client = await connect(owner, organization, scopes)
    assert (await ask(client)).choices[0].message.content == "I could not."
    assert (await ToolCall.objects.aget()).status == "denied"


# --- What is left behind ------------------------------------------------------------------------------------------


async def test_each_request_is_a_hidden_conversation_with_its_turn(
    client: AsyncOpenAI, endpoint: Endpoint, base: str
) -> None:
    endpoint.script(text("Hello."), text("Hello."))
    await ask(client)
    await streamed(client)
    kinds = [kind async for kind in Conversation.objects.as_system().values_list("kind", flat=True)]
    assert kinds == ["api", "api"]
    assert [status async for status in Turn.objects.values_list("status", flat=True)] == ["completed", "completed"]
    headers = {"Authorization": f"Bearer {client.api_key}"}
    async with aiohttp.ClientSession(base, headers=headers) as session, session.get("/api/v1/conversations") as listed:
        assert (await listed.json())["items"] == []


# --- Going away ---------------------------------------------------------------------------------------------------


async def ended(status: str) -> Turn:
    while True:  # bounded by the test's deadline; the turn's end is written by another task
        turn = await Turn.objects.select_related("message").aget()
        if turn.status == status:
            return turn
        await asyncio.sleep(0)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_goes_away_stops_the_turn(client: AsyncOpenAI, endpoint: Endpoint, stream: bool) -> None:
    endpoint.script(text("Hel", asyncio.Event(), "never"))
    if stream:
        async with await ask(client, stream=True) as chunks:
            async for chunk in chunks:
                if chunk.choices[0].delta.content:
                    break
    else:
        asking = asyncio.create_task(ask(client))
        await endpoint.received(1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    turn = await ended("stopped")
    await endpoint.last.disconnected.wait()
    if stream:
        assert turn.message.parts[0]["text"] == "Hel"


async def test_a_client_that_goes_away_before_the_first_token_stops_the_turn(
    client: AsyncOpenAI, endpoint: Endpoint
) -> None:
    endpoint.script(text(asyncio.Event(), "never"))
    asking = asyncio.create_task(ask(client, stream=True))
    await endpoint.received(1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await ended("stopped")
