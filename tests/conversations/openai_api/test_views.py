"""The OpenAI-compatible door, driven by the `openai` package through a real server; tools run in a real MCP server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import aiohttp
import openai
import pytest
import pytest_asyncio
from django.utils import timezone
from openai import AsyncOpenAI, DefaultAioHttpClient

from accounts.models import ApiKey, Membership, Organization, Role, User
from agents.models import Agent
from chatui.rows import in_rows
from conversations.models import Conversation, Message, ToolCall, Turn
from conversations.supervisor import Supervisor
from mcpservers.models import MCPServer, ServerGrant
from tests.conversations.test_uploads import image
from tests.fakes.endpoint import Endpoint, calls, failure, text
from tests.served import served

HI = [{"role": "user", "content": "Hi"}]
ADD = ("demo__calculate", {"expression": "2+3"})


@pytest_asyncio.fixture
async def base(house: Supervisor) -> AsyncIterator[str]:
    async with served() as address:
        yield address


@pytest_asyncio.fixture
async def connect(base: str) -> AsyncIterator[Callable[..., Any]]:
    """A client of the `openai` package with a key of a user in an organization."""
    clients: list[AsyncOpenAI] = []

    async def make(
        user: User, organization: Organization, scopes: tuple[str, ...] = ("chat",), **fields: Any
    ) -> AsyncOpenAI:
        _, key = await in_rows(ApiKey.issue, user=user, organization=organization, scopes=list(scopes), **fields)
        client = AsyncOpenAI(api_key=key, base_url=f"{base}/v1", max_retries=0, http_client=DefaultAioHttpClient())
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.close()


@pytest_asyncio.fixture
async def client(connect: Callable[..., Any], owner: User, organization: Organization) -> AsyncOpenAI:
    made: AsyncOpenAI = await connect(owner, organization)
    return made


@pytest.fixture
def server(agent: Agent, organization: Organization) -> MCPServer:
    """Our demo server over stdio; adding a note would ask, drawing is denied, the rest is allowed."""
    server = MCPServer.objects.create(
        organization=organization,
        slug="demo",
        title="Demo tools",
        transport="stdio",
        command="python",
        args=["-m", "demo.mcp_server"],
        rules=[{"tool": "add_note", "do": "ask"}, {"tool": "draw_chart", "do": "deny"}, {"tool": "*", "do": "allow"}],
    )
    ServerGrant.objects.create(server=server, whole_organization=True)
    agent.servers.create(server=server)
    return server


async def ask(client: AsyncOpenAI, messages: Any = HI, **parameters: Any) -> Any:
    return await client.chat.completions.create(model="helper", messages=messages, **parameters)


async def streamed(client: AsyncOpenAI, messages: Any = HI, **parameters: Any) -> list[Any]:
    async with await ask(client, messages, stream=True, **parameters) as stream:
        return [chunk async for chunk in stream]


def said(chunks: list[Any]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


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
        with pytest.raises(openai.APIStatusError, match=words):
            await ask(client, [{"role": "user", "content": parts}])


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


# --- Errors -------------------------------------------------------------------------------------------------------


async def test_a_key_that_is_not_valid_is_401(
    connect: Callable[..., Any], owner: User, organization: Organization
) -> None:
    expired = await connect(owner, organization, expires_at=timezone.now() - timedelta(days=1))
    for client in (expired, expired.with_options(api_key="cui_made-up")):
        for request in (ask(client), client.models.list()):
            with pytest.raises(openai.AuthenticationError) as refused:
                await request
            assert refused.value.type == "authentication_error"


async def test_a_session_is_no_key(base: str, owner: User) -> None:
    async with aiohttp.ClientSession(base) as session:
        for address in ("/v1/models", "/v1/chat/completions"):
            async with session.request("GET" if "models" in address else "POST", address, json={}) as response:
                assert response.status == 401
                assert (await response.json())["error"]["type"] == "authentication_error"


async def test_a_key_without_the_scope_is_403(
    connect: Callable[..., Any], owner: User, organization: Organization
) -> None:
    client = await connect(owner, organization, ("read",))
    with pytest.raises(openai.PermissionDeniedError, match="no scope"):
        await ask(client)


@pytest.mark.usefixtures("agent")
async def test_an_agent_of_another_organization_or_not_granted_is_404(
    connect: Callable[..., Any],
    organization: Organization,
    charlie: User,
    other_organization: Organization,
    make_member: Callable[..., User],
) -> None:
    guest = await in_rows(make_member, "gus", organization, Role.GUEST)
    for client in (await connect(charlie, other_organization), await connect(guest, organization)):
        for stream in (True, False):
            with pytest.raises(openai.NotFoundError) as refused:
                await ask(client, stream=stream)
            assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
    assert not await Conversation.objects.as_system().aexists()


async def test_a_key_of_somebody_who_left_is_403(client: AsyncOpenAI, owner: User) -> None:
    await in_rows(Membership.objects.filter(user=owner).update, is_active=False)
    with pytest.raises(openai.PermissionDeniedError):
        await ask(client)


@pytest.mark.parametrize(
    ("parameters", "param"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"n": 2}, "n"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"messages": []}, None),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages"),
        ({"temperature": 9}, None),
    ],
)
async def test_a_request_that_cannot_be_met_is_400(
    client: AsyncOpenAI, parameters: dict[str, Any], param: str | None
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await client.chat.completions.create(**({"model": "helper", "messages": HI} | parameters))
    assert (refused.value.type, refused.value.param) == ("invalid_request_error", param)
    assert not await Conversation.objects.as_system().aexists()


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (failure(401, "Incorrect API key provided: sk-live-SECRET123"), 502, "credentials"),
        (failure(400, "too long"), 502, "did not accept"),
        (failure(429, "slow down"), 503, "busy"),
        (failure(500, "table users at 10.0.0.5"), 502, "failed"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_an_endpoint_that_fails_is_told_with_a_status_in_a_stream_too(
    client: AsyncOpenAI, endpoint: Endpoint, agent: Agent, answer: Any, status: int, words: str, stream: bool
) -> None:
    agent.model.endpoint.retries = 0
    await in_rows(agent.model.endpoint.save)
    endpoint.script(answer)
    with pytest.raises(openai.APIStatusError) as refused:
        await ask(client, stream=stream)
    assert refused.value.status_code == status
    assert words in refused.value.message
    assert "SECRET123" not in str(refused.value.body)
    if status == 503:
        assert int(refused.value.response.headers["Retry-After"]) >= 1


async def test_an_endpoint_that_cannot_be_reached_is_502(client: AsyncOpenAI, endpoint: Endpoint, agent: Agent) -> None:
    agent.model.endpoint.retries = 0
    await in_rows(agent.model.endpoint.save)
    await endpoint.stop()
    with pytest.raises(openai.APIStatusError) as refused:
        await ask(client, stream=True)
    assert (refused.value.status_code, refused.value.code) == (502, "endpoint_unreachable")


@pytest.mark.usefixtures("server")
async def test_a_failure_after_the_stream_began_is_an_error_event(
    client: AsyncOpenAI, endpoint: Endpoint, agent: Agent
) -> None:
    agent.model.endpoint.retries = 0
    await in_rows(agent.model.endpoint.save)
    endpoint.script(calls(ADD, text="Let me see."), failure(401))
    stream = await ask(client, stream=True)
    seen: list[Any] = []

    async def read() -> None:
        async with stream:
            async for chunk in stream:
                seen.append(chunk)

    with pytest.raises(openai.APIError, match="credentials"):
        await read()
    assert said(seen) == "Let me see."


async def test_a_process_that_is_shutting_down_is_503(client: AsyncOpenAI, house: Supervisor) -> None:
    house.draining = True
    with pytest.raises(openai.InternalServerError) as refused:
        await ask(client)
    assert refused.value.status_code == 503
    assert "Retry-After" in refused.value.response.headers


async def test_what_is_unexpected_is_a_reference_and_nothing_else(client: AsyncOpenAI, monkeypatch: Any) -> None:
    from conversations.openai_api import views

    def broken(actor: Any) -> Any:
        raise RuntimeError("secret table accounts_user")

    monkeypatch.setattr(views, "_models", broken)
    with pytest.raises(openai.InternalServerError) as refused:
        await client.models.list()
    assert "accounts_user" not in refused.value.response.text
    assert refused.value.body["reference"]


async def test_text_that_cannot_be_stored_is_cleaned_on_its_way(
    base: str, client: AsyncOpenAI, endpoint: Endpoint
) -> None:
    endpoint.script(text("Hello."))
    body = b'{"model": "helper", "messages": [{"role": "user", "content": "a\\u0000b \\ud83d \\ud83c\\udf89"}]}'
    headers = {"Authorization": f"Bearer {client.api_key}"}
    async with (
        aiohttp.ClientSession(base, headers=headers) as session,
        session.post("/v1/chat/completions", data=body) as response,
    ):
        assert (await response.json())["choices"][0]["message"]["content"] == "Hello."
    stored = await Message.objects.aget(role="user")
    assert stored.parts[0]["text"] == "a\ufffdb \ufffd 🎉"
