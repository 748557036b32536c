"""What tests of approvals share: a server whose tools change when the test says so, and a turn that waits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
from django.db.models import F

from accounts.models import Group, Membership, User
from agents.models import Agent
from chatui.rows import in_rows
from conversations.models import Question
from mcpservers import catalogue
from mcpservers.models import MCPServer, ServerGrant, ToolVersion, ToolView
from tests.conversations.chat import Chat, Frame
from tests.fakes.anew import served_anew
from tests.fakes.endpoint import Endpoint, calls, text
from tests.fakes.mcp_server import FakeMCPServer

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
WRITE = ("notes__write", {"text": "milk"})
READ = ("notes__read", {"text": "list"})


@pytest_asyncio.fixture
async def fake(house: Any) -> AsyncIterator[FakeMCPServer]:
    async with served_anew() as server:
        server.tools = [{"name": name, "title": name.title(), "inputSchema": SCHEMA} for name in ("write", "read")]
        yield server


@pytest.fixture
def server(transactional_db: None, organization: Any, fake: FakeMCPServer) -> MCPServer:
    """`write` is asked about and `read` is allowed."""
    server = MCPServer.objects.create(
        organization=organization,
        slug="notes",
        title="Notes",
        url=fake.url,
        rules=[{"tool": "write", "do": "ask"}, {"tool": "*", "do": "allow"}],
    )
    ServerGrant.objects.create(server=server, whole_organization=True)
    return server


@pytest.fixture
def agent(organization: Any, endpoint: Endpoint, server: MCPServer, make_agent: Callable[..., Agent]) -> Agent:
    return make_agent(organization, base_url=endpoint.base_url, servers=[server])


async def set_rule(server: MCPServer, **rule: Any) -> None:
    """What the server's first rule says of `write`."""
    rules = [{"tool": "write", "do": "ask"} | rule, {"tool": "*", "do": "allow"}]

    def save() -> None:
        row = MCPServer.objects.as_system().get(pk=server.pk)
        row.rules = rules
        row.save(update_fields=["rules"])

    await in_rows(save)


async def asked(chat: Chat, endpoint: Endpoint, *requests: Any, **fields: Any) -> Frame:
    """The card of a turn that waits for an approval."""
    endpoint.script(calls(*(requests or (WRITE,))))
    await chat.start("write it down", **fields)
    card = await chat.until("call.approval")
    await chat.until("turn.waiting")
    return card


async def decided(chat: Chat, endpoint: Endpoint, card: Frame, decision: str = "allow_once", **fields: Any) -> Frame:
    """The call as the message has it at the end of the turn."""
    endpoint.script(text("done"))
    await chat.send("call.decide", call_id=card["call_id"], decision=decision, **fields)
    return call_of(await chat.until("turn.finished"))


def call_of(finished: Frame) -> Frame:
    found: Frame = next(part for part in finished["message"]["parts"] if part["type"] == "call")
    return found


async def refused(chat: Chat, card: Frame, **fields: Any) -> Frame:
    """The error that a decision is answered with; the question is open still."""
    await chat.send("call.decide", call_id=card["call_id"], **fields)
    error = await chat.until("error")
    question = await Question.objects.as_system().aget(pk=card["question_id"])
    assert question.state == Question.State.OPEN
    return error


async def group_of(organization: Any, slug: str, *people: User, **fields: Any) -> Group:
    def make() -> Group:
        group = Group.objects.create(organization=organization, slug=slug, **fields)
        group.memberships.set(Membership.objects.filter(user__in=people))
        return group

    return await in_rows(make)


async def redefine(fake: FakeMCPServer, server: MCPServer, **fields: Any) -> None:
    """`write` is another tool from now on, and an admin accepts it."""
    fake.tools[0] = fake.tools[0] | fields
    report = await catalogue.refresh(server.pk)
    assert not report.error
    await in_rows(accept_everything, server)


def accept_everything(server: MCPServer) -> None:
    ToolView.objects.filter(server=server).update(revision=F("revision") + 1)
    ToolVersion.objects.filter(server=server).update(decision=ToolVersion.Decision.ACCEPTED)
    ToolVersion.objects.filter(server=server, sightings__listed=False).update(decision="")
