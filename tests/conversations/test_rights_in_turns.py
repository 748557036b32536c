"""Who loses a right while a turn runs and a socket is open: the socket hears it at once, the turn at its next call.

Both are open in each of these tests. What was called before stays called; the answer is finished without the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.test import AsyncClient
from django.utils import timezone

from accounts.models import ApiKey, Group, Membership, Role, User
from agents.models import Agent, AgentGrant, AgentServer
from chatui.rows import in_rows
from conversations import supervisor
from conversations.models import Question, ToolCall, Turn
from mcpservers.models import MCPServer, ServerGrant
from tests.conversations.asking import (
    READ,
    WRITE,
    agent,  # noqa: F401  # a fixture
    fake,  # noqa: F401  # a fixture
    server,  # noqa: F401  # a fixture
    set_rule,
)
from tests.conversations.chat import Chat
from tests.fakes.endpoint import Endpoint, calls, text
from tests.fakes.mcp_server import Exchange, FakeMCPServer, after, once


@dataclass
class World:
    """Bob chats with an agent and a server that a group of his has; Alice owns the organization."""

    bob: User
    group: Group
    agent: Agent
    server: MCPServer
    key: ApiKey
    secret: str


@pytest.fixture
def world(agent: Agent, server: MCPServer, alice: User, bob: User, organization: Any) -> World:  # noqa: F811  # as above
    group = Group.objects.create(organization=organization, slug="writers")
    Membership.objects.get(user=bob).groups.add(group)
    for grants in (ServerGrant.objects.filter(server=server), AgentGrant.objects.filter(agent=agent)):
        grants.delete()
    ServerGrant.objects.create(server=server, group=group)
    AgentGrant.objects.create(agent=agent, group=group)
    key, secret = ApiKey.issue(user=bob, organization=organization, scopes=["chat", "approve"])
    return World(bob, group, agent, server, key, secret)


# --- What happens meanwhile -----------------------------------------------------------------------------------------


def become(role: Role) -> Callable[[World], None]:
    def event(world: World) -> None:
        membership = Membership.objects.get(user=world.bob)
        membership.role = role
        membership.save()

    return event


def be_deactivated(world: World) -> None:
    world.bob.is_active = False
    world.bob.save()


def be_suspended(world: World) -> None:
    membership = Membership.objects.get(user=world.bob)
    membership.is_active = False
    membership.save()


def be_removed(world: World) -> None:
    Membership.objects.get(user=world.bob).delete()


def leave_the_group(world: World) -> None:
    Membership.objects.get(user=world.bob).groups.remove(world.group)


def the_group_goes(world: World) -> None:
    world.group.delete()


def lose_the_server(world: World) -> None:
    ServerGrant.objects.filter(server=world.server).delete()


def be_denied_the_server(world: World) -> None:
    ServerGrant.objects.create(server=world.server, user=world.bob, deny=True)


def be_denied_the_tool(world: World) -> None:
    ServerGrant.objects.create(server=world.server, whole_organization=True, tool="re*", deny=True)
    ServerGrant.objects.create(server=world.server, whole_organization=True, tool="write", deny=True)


def lose_the_agent(world: World) -> None:
    AgentGrant.objects.filter(agent=world.agent).delete()


def be_denied_the_agent(world: World) -> None:
    AgentGrant.objects.create(agent=world.agent, user=world.bob, deny=True)


def the_agent_loses_the_server(world: World) -> None:
    AgentServer.objects.filter(agent=world.agent).delete()


def the_agent_loses_the_tool(world: World) -> None:
    AgentServer.objects.filter(agent=world.agent).update(tools=["list*"])


def the_agent_is_switched_off(world: World) -> None:
    Agent.objects.as_system().filter(pk=world.agent.pk).update(enabled=False)


def the_server_is_switched_off(world: World) -> None:
    MCPServer.objects.as_system().filter(pk=world.server.pk).update(enabled=False)


def the_key_is_revoked(world: World) -> None:
    world.key.revoked_at = timezone.now()
    world.key.save()


def the_key_expires(world: World) -> None:
    world.key.expires_at = timezone.now()
    world.key.save()


def change_password(world: World) -> None:
    world.bob.set_password("another battery staple")
    world.bob.save()


@dataclass(frozen=True)
class Case:
    """`closes`: with which code the socket is closed at once, None if it stays. `reason`: of the denial, "" if none."""

    event: Callable[[World], None]
    closes: int | None
    reason: str
    with_key: bool = False
    watches: bool = True  # what is followed goes on, on a socket that stays
    waits: bool = True  # an approval by somebody else meanwhile leads to a denial; else the turn ends before the call


MEMBER = "no longer a member"
CASES = [
    Case(become(Role.AUDITOR), None, "The role Auditor does not include", watches=False),
    Case(become(Role.GUEST), None, ""),  # what the group has, a guest in it has too
    Case(be_deactivated, 4401, MEMBER, waits=False),
    Case(be_suspended, 4403, MEMBER, waits=False),
    Case(be_removed, 4403, MEMBER, waits=False),
    Case(leave_the_group, None, "not granted to you", waits=False),
    Case(the_group_goes, None, "not granted to you", waits=False),
    Case(lose_the_server, None, "not granted to you"),
    Case(be_denied_the_server, None, "denied to you"),
    Case(be_denied_the_tool, None, "denied to the whole organization"),
    Case(lose_the_agent, None, "is not yours to use any more", waits=False),
    Case(be_denied_the_agent, None, "is not yours to use any more", waits=False),
    Case(the_agent_loses_the_server, None, "does not have this server any more"),
    Case(the_agent_loses_the_tool, None, "does not offer this tool any more"),
    Case(the_agent_is_switched_off, None, "does not have this server any more", waits=False),
    Case(the_server_is_switched_off, None, "switched off"),
    Case(the_key_is_revoked, 4401, "API key", with_key=True),
    Case(the_key_expires, 4401, "API key", with_key=True),
    Case(change_password, 4401, ""),  # whose turn it is has not changed
]
EACH = pytest.mark.parametrize("case", CASES, ids=lambda case: case.event.__qualname__.removesuffix(".<locals>.event"))


async def entered(world: World, case: Case) -> Chat:
    if case.with_key:
        return await Chat("acme", {"authorization": f"Bearer {world.secret}"}).connect()
    return await Chat.of(world.bob)


async def heard(chat: Chat, case: Case) -> None:
    """The socket is closed without a frame of its own, or it still answers."""
    if case.closes is not None:
        assert await chat.closed() == case.closes
    else:
        await chat.send("ping")
        await chat.until("pong")


async def ended(turn_id: UUID) -> Turn:
    running = supervisor.current()._running.get(turn_id)
    if running is not None:
        await asyncio.wait({running.task})
    turn: Turn = await Turn.objects.select_related("message").aget(pk=turn_id)
    assert turn.status not in Turn.OPEN
    return turn


async def answered(exchange: Exchange) -> None:
    await exchange.server.usual(exchange)


@EACH
async def test_the_socket_hears_it_at_once_and_the_running_turn_at_its_next_call(
    world: World,
    fake: FakeMCPServer,  # noqa: F811  # as above
    endpoint: Endpoint,
    case: Case,
) -> None:
    gate = asyncio.Event()
    fake.on("tools/call", once(after(gate, answered)))
    endpoint.script(calls(READ), calls(READ), text("That is all."))
    chat = await entered(world, case)
    turn_id = await chat.start()
    await fake.heard("tools/call")
    await in_rows(case.event, world)
    await heard(chat, case)
    gate.set()
    turn = await ended(turn_id)
    assert turn.status == Turn.Status.COMPLETED
    assert turn.message.parts[-1]["text"] == "That is all."
    first, second = [call async for call in ToolCall.objects.filter(turn=turn)]
    assert first.status == ToolCall.Status.OK
    if case.reason:
        assert (second.status, second.verdict) == (ToolCall.Status.DENIED, "deny"), second.result_text
        assert case.reason in second.result_text
        assert case.reason in endpoint.last.messages[-1]["content"]
        assert fake.count("tools/call") == 1
    else:
        assert second.status == ToolCall.Status.OK, second.result_text
    if case.closes is None:
        if case.watches:
            await chat.until("turn.finished")
        await chat.communicator.disconnect()


@EACH
async def test_what_was_asked_before_is_not_done_after_it(
    world: World,
    alice: User,
    fake: FakeMCPServer,  # noqa: F811  # as above
    endpoint: Endpoint,
    case: Case,
) -> None:
    """Alice, whom the rule names, approves Bob's call, which was asked when he still might."""
    await set_rule(world.server, approvers=["alice"])
    endpoint.script(calls(WRITE), text("That is all."))
    chat, approver = await entered(world, case), await Chat.of(alice)
    turn_id = await chat.start()
    await chat.until("turn.waiting")
    await in_rows(case.event, world)
    await heard(chat, case)
    question = await Question.objects.as_system().aget()
    await approver.send("call.decide", call_id=str(question.call_id), decision="allow_once")
    await approver.until("question.changed", lambda frame: frame["state"] == Question.State.ANSWERED)
    await approver.send("ping")
    await approver.until("pong")  # the answer was carried on by now
    turn = await ended(turn_id)
    call = await ToolCall.objects.aget(turn=turn)
    assert call.status not in ToolCall.OPEN
    assert not await Question.objects.as_system().filter(state=Question.State.OPEN).aexists()
    if not case.reason:
        assert (turn.status, call.status) == (Turn.Status.COMPLETED, ToolCall.Status.OK), call.result_text
        assert fake.count("tools/call") == 1
    else:
        assert fake.count("tools/call") == 0
        if case.waits:
            assert (turn.status, call.status) == (Turn.Status.COMPLETED, ToolCall.Status.DENIED), call.result_text
            assert case.reason in call.result_text
        else:
            assert turn.status == Turn.Status.FAILED
            assert turn.message.error["message"]
    await approver.communicator.disconnect()
    if case.closes is None:
        await chat.communicator.disconnect()


async def test_an_auditor_of_today_starts_follows_and_decides_nothing_on_the_socket_of_yesterday(
    world: World, endpoint: Endpoint
) -> None:
    endpoint.script(calls(WRITE))
    async with await Chat.of(world.bob) as chat:
        turn_id = await chat.start()
        card = await chat.until("call.approval")
        await chat.until("turn.waiting")
        await in_rows(become(Role.AUDITOR), world)
        for type, fields in (
            ("turn.start", {"agent": "helper", "content": [{"type": "text", "text": "x"}], "request_id": str(uuid4())}),
            ("turn.follow", {"turn_id": str(turn_id)}),
            ("turn.stop", {"turn_id": str(turn_id)}),
            ("call.decide", {"call_id": card["call_id"], "decision": "allow_once"}),
            ("call.cancel", {"call_id": card["call_id"]}),
        ):
            await chat.send(type, **fields)
            assert (await chat.until("error"))["code"] == "permission_denied", type


async def test_who_may_chat_no_more_sees_no_more_of_an_answer_that_is_being_followed(
    world: World, endpoint: Endpoint
) -> None:
    gate = asyncio.Event()
    endpoint.script(text("seen", gate, " and not seen"))
    async with await Chat.of(world.bob) as chat:
        turn_id = await chat.start()
        await chat.until("text.delta")
        await in_rows(become(Role.AUDITOR), world)
        assert (await chat.until("error"))["code"] == "permission_denied"
        gate.set()
        await ended(turn_id)
        await chat.send("ping")
        await chat.until("pong")
        assert chat.text(turn_id) == "seen"
        assert "turn.finished" not in [frame["type"] for frame in chat.seen]


async def test_a_stream_of_events_ends_with_the_right_to_it(world: World, endpoint: Endpoint, settings: Any) -> None:
    settings.SOCKET = {**settings.SOCKET, "RECHECK_SECONDS": 0}
    gate = asyncio.Event()
    endpoint.script(text("seen", gate, " and not seen"))
    async with await Chat.of(world.bob) as chat:
        turn_id = await chat.start()
        await chat.until("text.delta")
        client = AsyncClient()
        client.defaults["Authorization"] = f"Bearer {world.secret}"
        response: Any = await client.get(f"/api/v1/turns/{turn_id}/events")
        seen = b""
        async for piece in response.streaming_content:
            seen += piece
            if b"seen" in piece:
                await in_rows(the_key_is_revoked, world)
                gate.set()
        await chat.until("turn.finished")
    assert b"not seen" not in seen
    assert b"turn.finished" not in seen


async def test_a_key_that_may_not_chat_follows_no_turn(world: World, endpoint: Endpoint, organization: Any) -> None:
    endpoint.script(text("secret"))
    async with await Chat.of(world.bob) as chat:
        turn_id = await chat.start()
        await chat.until("turn.finished")
    _, secret = await in_rows(ApiKey.issue, user=world.bob, organization=organization, scopes=["read"])
    async with await Chat("acme", {"authorization": f"Bearer {secret}"}).connect() as reader:
        await reader.send("turn.follow", turn_id=str(turn_id))
        assert (await reader.until("error"))["code"] == "permission_denied"
