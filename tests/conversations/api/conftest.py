"""Bob's world: one conversation with everything that hangs on it, and clients that come in as somebody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core.files.base import ContentFile
from django.db.backends.utils import CursorWrapper
from django.test import AsyncClient
from django.utils import timezone

from accounts.models import ApiKey, Organization, User
from agents.models import Agent
from chatui.rows import in_rows
from conversations.models import Attachment, Conversation, Message, Question, StandingApproval, ToolCall, Turn
from conversations.supervisor import Supervisor
from mcpservers.models import LinkedAccount, MCPServer, ServerGrant


@dataclass
class World:
    """`ids` are the values of addresses, by the names that the URL conf captures."""

    organization: Organization
    bob: User
    agent: Agent
    conversation: Conversation
    answer: Message
    ids: dict[str, Any] = field(default_factory=dict)


def make_conversation(owner: User, agent: Agent, **fields: Any) -> Conversation:
    fields.setdefault("active_at", timezone.now())
    return Conversation.objects.create(organization=agent.organization, owner=owner, agent=agent, **fields)


def make_exchange(
    conversation: Conversation, question: str, answer: str, parent: Message | None = None
) -> tuple[Message, Message, Turn]:
    """A question, its answer, and the ended turn between them."""
    asked = Message.objects.create(
        conversation=conversation,
        parent=parent,
        role="user",
        parts=[{"type": "text", "text": question}],
        search_text=question,
    )
    said = Message.objects.create(
        conversation=conversation,
        parent=asked,
        role="assistant",
        parts=[{"type": "text", "text": answer, "round": 1}],
        search_text=answer,
    )
    turn = Turn.objects.create(
        conversation=conversation,
        started_by=conversation.owner,
        request_id=uuid4(),
        agent=conversation.agent,
        user_message=asked,
        message=said,
        status="completed",
        last_seq=5,
        ended_at=timezone.now(),
    )
    return asked, said, turn


def add_call(turn: Turn, message: Message, position: int = 0, **fields: Any) -> ToolCall:
    fields.setdefault("arguments", {"zone": "UTC"})
    call = ToolCall.objects.create(
        turn=turn,
        message=message,
        round=1,
        position=position,
        provider_id=f"c{position}",
        name="clock__now",
        server_slug="clock",
        server_title="Clock",
        tool="now",
        status="ok",
        result_text="noon",
        result_content=[{"type": "text", "text": "noon"}],
        **fields,
    )
    message.parts.append({"type": "call", "id": str(call.pk), "round": 1})
    message.save(update_fields=["parts"])
    return call


def add_attachment(owner: User, organization: Organization, **fields: Any) -> Attachment:
    file = ContentFile(b"hello", name="upload")
    fields = {"name": "notes.txt", "content_type": "text/plain", "size": 5, "text": "hello"} | fields
    return Attachment.objects.create(organization=organization, owner=owner, file=file, **fields)


@pytest.fixture
def world(house: Supervisor, organization: Organization, bob: User, make_agent: Callable[..., Agent]) -> World:
    server = MCPServer.objects.create(
        organization=organization,
        slug="tickets",
        title="Tickets",
        url="http://127.0.0.1:9/mcp",
        variables={"TOKEN": {"title": "Token", "sensitive": True}, "REGION": {}},
    )
    ServerGrant.objects.create(server=server, user=bob)
    agent = make_agent(organization, servers=[server])
    conversation = make_conversation(bob, agent, title="Bob's chat")
    _asked, said, turn = make_exchange(conversation, "What time is it?", "Noon.")
    call = add_call(turn, said)
    attachment = add_attachment(bob, organization, conversation=conversation)
    conversation.current_leaf = said
    conversation.save()
    ids = {
        "account": uuid4(),
        "conversation": conversation.pk,
        "call_id": call.pk,
        "server": server.slug,
        "attachment": attachment.pk,
        "turn": turn.pk,
        "question": uuid4(),
        "standing_id": uuid4(),
    }
    made = World(organization, bob, agent, conversation, said, ids)
    link(made)
    ask(made)
    StandingApproval.objects.create(
        pk=ids["standing_id"], organization=organization, user=bob, server=server, tool="now", scope="always"
    )
    return made


def ask(world: World) -> None:
    """A question to Bob about his call, open, under its id."""
    call = ToolCall.objects.get(pk=world.ids["call_id"])
    Question.objects.as_system().filter(pk=world.ids["question"]).delete()
    Question.objects.create(
        pk=world.ids["question"],
        organization=world.organization,
        turn=call.turn,
        call=call,
        kind="approval",
        asked_of=world.bob,
        expires_at=timezone.now() + timedelta(hours=1),
    )


def link(world: World) -> None:
    """Bob's account at the server, under its id."""
    server = MCPServer.objects.as_system().get(slug=world.ids["server"])
    LinkedAccount.objects.create(
        pk=world.ids["account"],
        organization=world.organization,
        server=server,
        user=world.bob,
        binding=server.oauth_binding(),
        issuer="https://login.example",
        name="Bob's account",
        is_default=True,
    )


Enter = Callable[..., Any]


@pytest.fixture
def as_user(transactional_db: None) -> Enter:
    """A client with a user's session, and the headers of our own pages: CSRF is enforced as in a browser."""

    async def enter(user: User) -> AsyncClient:
        client = AsyncClient(enforce_csrf_checks=True)
        await client.aforce_login(user)
        token = "t" * 32
        client.cookies["csrftoken"] = token
        client.defaults["X-CSRFToken"] = token
        return client

    return enter


@pytest.fixture
def as_key(transactional_db: None) -> Enter:
    """A client with an API key of a user in an organization."""

    async def enter(
        user: User, organization: Organization, scopes: tuple[str, ...] = ("chat",), **fields: Any
    ) -> AsyncClient:
        _, secret = await in_rows(ApiKey.issue, user=user, organization=organization, scopes=list(scopes), **fields)
        client = AsyncClient(enforce_csrf_checks=True)
        client.defaults["Authorization"] = f"Bearer {secret}"
        return client

    return enter


@pytest.fixture
def count_queries(monkeypatch: Any) -> Callable[[], Any]:
    """Counts the statements of every thread: requests run their row work in threads of its own."""
    seen: list[str] = []
    execute = CursorWrapper.execute

    def counting(self: CursorWrapper, sql: str, params: Any = None) -> Any:
        seen.append(sql)
        return execute(self, sql, params)

    monkeypatch.setattr(CursorWrapper, "execute", counting)

    @contextmanager
    def count() -> Iterator[list[str]]:
        seen.clear()
        yield seen

    return count
