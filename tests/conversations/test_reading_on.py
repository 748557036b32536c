"""A result that is too long for a model: cut, kept whole as a file, and read on in by the model."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.utils import timezone

from accounts.actors import Actor, find_actor
from accounts.models import AuditRecord, Membership, User
from agents.models import Agent
from agents.parts import Artifact, ToolResult, ToolStatus
from chatui.rows import in_rows
from conversations.models import Attachment, Conversation, Message, ToolCall, Turn
from conversations.rounds import finish_call
from conversations.stored_results import find_text
from mcpservers.cuts import whole_name
from mcpservers.models import MCPServer, ServerGrant
from tests.conversations.chat import Chat
from tests.fakes.anew import served_anew
from tests.fakes.endpoint import Answer, Endpoint, RecordedRequest, calls, text
from tests.fakes.mcp_server import Exchange, FakeMCPServer

WHOLE = "".join(f"row {n}\n" for n in range(20_000))


async def long(exchange: Exchange) -> None:
    await exchange.result({"content": [{"type": "text", "text": WHOLE}]})


@pytest.fixture
async def fake(transactional_db: None) -> AsyncIterator[FakeMCPServer]:
    async with served_anew() as server:
        server.on("tools/call", long)
        yield server


@pytest.fixture
def agent(
    fake: FakeMCPServer, house: Any, endpoint: Endpoint, organization: Any, make_agent: Callable[..., Agent]
) -> Agent:
    server = MCPServer.objects.create(
        organization=organization, slug="s", title="S", url=fake.url, rules=[{"tool": "*", "do": "allow"}]
    )
    ServerGrant.objects.create(server=server, whole_organization=True)
    return make_agent(organization, base_url=endpoint.base_url, servers=[server])


def told(request: RecordedRequest) -> str:
    """The last tool result that the model was told."""
    return str([message for message in request.messages if message["role"] == "tool"][-1]["content"])


def reading_on(request: RecordedRequest) -> Answer:
    """A model that does what the note says."""
    found = re.search(r"read_result with result “(.+?)” and offset (\d+)", told(request))
    assert found is not None
    return calls(("read_result", {"result": found[1], "offset": int(found[2]), "limit": 1000}))


async def test_a_model_reads_on_where_the_result_was_cut(owner: User, endpoint: Endpoint) -> None:
    endpoint.script(calls(("s__echo", {"text": "all"})), reading_on, text("I see."))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert finished["outcome"] == "completed"
        frames = chat.frames(finished["turn_id"])
        started = [frame["tool"] for frame in frames if frame["type"] == "call.started"]
        assert started == ["echo", "read_result"]
        assert not [frame for frame in frames if frame["type"] == "call.approval"]
    cut, page = told(endpoint.requests[1]), told(endpoint.requests[2])
    kept = cut.partition("\n[The result was cut")[0]
    assert page.split(":\n", 1)[1].startswith(WHOLE[len(kept) : len(kept) + 1000])
    assert [request.tools for request in endpoint.requests] == [
        ["s__echo", "s__write"],
        ["s__echo", "s__write", "read_result"],
        ["s__echo", "s__write", "read_result"],
    ]
    rows = await in_rows(lambda: list(ToolCall.objects.order_by("round").values_list("tool", "status", "server_slug")))
    assert rows == [("echo", "ok", "s"), ("read_result", "ok", "")]
    recorded = AuditRecord.objects.filter(action="tool.call").order_by("at").values_list("tool", "verdict", "status")
    assert [row async for row in recorded] == [("echo", "allow", "ok"), ("read_result", "allow", "ok")]
    call = next(part for part in finished["message"]["parts"] if part.get("tool") == "read_result")
    assert call["title"] == "Read on in a result"


async def test_a_later_turn_can_still_read_on_and_a_new_conversation_cannot(owner: User, endpoint: Endpoint) -> None:
    endpoint.script(calls(("s__echo", {"text": "all"})), text("Long."), reading_on, text("I see."))
    async with await Chat.of(owner) as chat:
        await chat.ask("first")
        conversation = await in_rows(lambda: Conversation.objects.as_system().get())
        await chat.ask("more", conversation_id=str(conversation.pk))
        assert "read_result" in endpoint.requests[2].tools
        assert told(endpoint.last).startswith("Characters ")
        name = (await in_rows(lambda: Attachment.objects.as_system().get())).name
        endpoint.script(calls(("read_result", {"result": name})), text("No."))
        await chat.ask("elsewhere")
        assert "There is no tool “read_result”" in told(endpoint.last)


async def test_what_a_small_context_forces_to_be_cut_can_be_read_on_too(
    owner: User, endpoint: Endpoint, agent: Agent, fake: FakeMCPServer
) -> None:
    async def middling(exchange: Exchange) -> None:
        await exchange.result({"content": [{"type": "text", "text": WHOLE[:30_000]}]})

    fake.on("tools/call", middling)
    await in_rows(lambda: type(agent.model).objects.as_system().update(context=12_000))
    again = calls(("s__echo", {"text": "once more"}))
    endpoint.script(calls(("s__echo", {"text": "all"})), again, reading_on, text("I see."))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert finished["outcome"] == "completed"
    page = told(endpoint.last)
    offset = int(page.split(" ")[1])
    assert 7_000 < offset < 8_000
    assert page.split(":\n", 1)[1].startswith(WHOLE[offset : offset + 1000])


# --- Whose results ------------------------------------------------------------------------------------------------


@pytest.fixture
def stored(owner: User) -> tuple[UUID, str]:
    """A conversation of Alice's with a result that is kept whole as a file."""
    return _stored(owner, "secret " * 10)


def _stored(owner: User, whole: str) -> tuple[UUID, str]:

    organization = Membership.objects.get(user=owner).organization
    conversation = Conversation.objects.create(organization=organization, owner=owner, active_at=timezone.now())
    message = Message.objects.create(conversation=conversation, role="assistant")
    turn = Turn.objects.create(
        conversation=conversation, started_by=owner, request_id=uuid4(), user_message=message, message=message
    )
    call = ToolCall.objects.create(turn=turn, message=message, round=1, position=0, provider_id="c", name="s__echo")
    artifact = Artifact(whole.encode(), "text/plain", whole_name(whole))
    finish_call(turn, call.pk, ToolResult(ToolStatus.OK, whole[:5], artifacts=[artifact]))
    return conversation.pk, whole_name(whole)


def acting(user: User) -> Actor:
    found = find_actor(user.pk, Membership.objects.filter(user=user).values_list("organization", flat=True)[0])
    assert found is not None
    return found


def test_the_owner_reads_the_file(stored: tuple[UUID, str], owner: User) -> None:
    assert find_text(acting(owner), *stored) == "secret " * 10


def test_nobody_else_reads_it(stored: tuple[UUID, str], bob: User, charlie: User) -> None:
    assert find_text(acting(bob), *stored) is None
    assert find_text(acting(charlie), *stored) is None


def test_it_is_not_read_from_another_conversation_of_the_owner(stored: tuple[UUID, str], owner: User) -> None:
    other, _ = _stored(owner, "another")
    assert find_text(acting(owner), other, stored[1]) is None


def test_who_is_no_member_any_more_reads_nothing(stored: tuple[UUID, str], owner: User) -> None:
    actor = acting(owner)
    Membership.objects.filter(user=owner).update(is_active=False)
    assert find_text(actor, *stored) is None


def test_a_deleted_conversations_results_are_not_read(stored: tuple[UUID, str], owner: User) -> None:
    Conversation.objects.as_system().update(deleted_at=timezone.now())
    assert find_text(acting(owner), *stored) is None


def test_a_file_that_left_the_store_is_none(stored: tuple[UUID, str], owner: User) -> None:
    file = Attachment.objects.as_system().get().file
    file.storage.delete(file.name)
    assert find_text(acting(owner), *stored) is None


def test_a_users_own_upload_of_that_name_is_no_result(stored: tuple[UUID, str], owner: User) -> None:
    Attachment.objects.as_system().update(call=None)
    assert find_text(acting(owner), *stored) is None
