"""What clients of the `openai` package are told when a request is refused, or its turn fails."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import aiohttp
import openai
import pytest
from django.utils import timezone
from openai import AsyncOpenAI

from accounts.models import Membership, Organization, Role, User
from agents.models import Agent
from chatui.rows import in_rows
from conversations.models import Conversation, Message
from conversations.supervisor import Supervisor
from tests.conversations.openai_api.asking import ADD, HI, ask, said
from tests.fakes.endpoint import Endpoint, calls, failure, text


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
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages"),
        ({"temperature": 9}, "temperature"),
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
