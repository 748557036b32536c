"""Servers of people's own in turns of one shared agent: each person has their own, and loses it at the next call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID, uuid4

import pytest
import pytest_asyncio

from accounts.actors import Actor
from accounts.models import ApiKey, Membership, Organization, Role, User
from agents.models import Agent
from chatui.rows import in_rows
from conversations.models import ToolCall
from mcpservers import catalogue, connections, entries, own
from mcpservers.models import MCPServer, ServerGrant
from tests.conversations.chat import Chat
from tests.fakes.endpoint import Endpoint, calls, text
from tests.fakes.mcp_server import FakeMCPServer, after
from tests.fakes.own_servers import own as make_own
from tests.fakes.own_servers import within_reach  # noqa: F401  # a fixture

pytestmark = pytest.mark.usefixtures("within_reach")
ECHO = ("my-notes__echo", {"text": "hello"})


@pytest_asyncio.fixture
async def fakes(house: Any) -> AsyncIterator[dict[str, FakeMCPServer]]:
    entries.memory.clear()
    async with AsyncExitStack() as stack:
        yield {name: await stack.enter_async_context(FakeMCPServer()) for name in ("alice", "bob")}
        await catalogue.aclose()
        await connections.aclose()


@pytest.fixture
def servers(
    agent: Agent, organization: Organization, alice: User, bob: User, fakes: dict[str, FakeMCPServer]
) -> dict[str, MCPServer]:
    """Alice and Bob have one each, of the same name, with a secret of their own."""
    agent.user_servers = True
    agent.save()
    return {
        user.username: make_own(
            user, organization, fakes[user.username].url, headers={"X-Key": f"{user.username}-secret"}
        )
        for user in (alice, bob)
    }


async def allow(chat: Chat) -> None:
    card = await chat.until("call.approval")
    await chat.send("call.decide", call_id=card["call_id"], decision="allow_once")


async def call_of(turn_id: UUID | str) -> ToolCall:
    return await ToolCall.objects.aget(turn=turn_id)


async def test_two_people_call_their_own_through_one_agent_each_with_their_own_secret(
    servers: dict[str, MCPServer], fakes: dict[str, FakeMCPServer], endpoint: Endpoint, alice: User, bob: User
) -> None:
    async with await Chat.of(alice) as hers, await Chat.of(bob) as his:
        chats = {"alice": hers, "bob": his}
        gates = {name: asyncio.Event() for name in fakes}
        for name, fake in fakes.items():
            fake.on("tools/call", after(gates[name], fake.usual))
        for chat in chats.values():  # both calls are open before either is answered
            endpoint.script(calls(ECHO))
            await chat.start("go")
            await allow(chat)
        for name in ("alice", "bob"):
            await fakes[name].heard("tools/call")
        endpoint.script(text("done"), text("done"))
        for name in ("bob", "alice"):
            gates[name].set()
            await chats[name].until("turn.finished")
    for name, fake in fakes.items():
        other = {"alice": "bob", "bob": "alice"}[name]
        assert fake.count("tools/call") == 1
        keys = {exchange.headers.get("x-key") for exchange in fake.exchanges}
        assert keys == {f"{name}-secret"}
        assert f"{other}-secret" not in str([exchange.headers for exchange in fake.exchanges])
    rows = [row async for row in ToolCall.objects.select_related("turn__conversation__owner")]
    assert {(row.turn.conversation.owner.username, row.server_id) for row in rows} == {
        (name, server.pk) for name, server in servers.items()
    }
    live = connections.live_connections()
    assert {(info.server_id, info.user_id) for info in live} == {
        (servers["alice"].pk, alice.pk),
        (servers["bob"].pk, bob.pk),
    }


async def test_an_agent_that_does_not_use_them_and_a_person_without_one_are_offered_none(
    servers: dict[str, MCPServer],
    agent: Agent,
    endpoint: Endpoint,
    alice: User,
    organization: Organization,
    make_member: Any,
) -> None:
    dora = await in_rows(make_member, "dora", organization)
    endpoint.script(text("one"), text("two"))
    async with await Chat.of(dora) as chat:
        await chat.ask()
        assert endpoint.last.tools == []
        content = [{"type": "text", "text": "hi"}]
        await chat.send("turn.start", request_id=str(uuid4()), agent="helper", servers=["my-notes"], content=content)
        assert (await chat.until("error"))["code"] == "not_offered"
    await in_rows(Agent.objects.as_system().filter(pk=agent.pk).update, user_servers=False)
    async with await Chat.of(alice) as chat:
        await chat.ask()
        assert endpoint.last.tools == []


def setting_off(server: MCPServer, agent: Agent, actor: Actor) -> None:
    Organization.objects.update(own_servers="nobody")


def agent_off(server: MCPServer, agent: Agent, actor: Actor) -> None:
    Agent.objects.as_system().filter(pk=agent.pk).update(user_servers=False)


def deleted(server: MCPServer, agent: Agent, actor: Actor) -> None:
    own.remove(actor, server.pk)


def switched_off(server: MCPServer, agent: Agent, actor: Actor) -> None:
    own.change(actor, server.pk, {"enabled": False})


def barred(server: MCPServer, agent: Agent, actor: Actor) -> None:
    MCPServer.objects.as_system().filter(pk=server.pk).update(enabled=False, barred=True)


def a_guest(server: MCPServer, agent: Agent, actor: Actor) -> None:
    Membership.objects.filter(user_id=actor.user_id).update(role=Role.GUEST)


@pytest.mark.parametrize("event", [setting_off, agent_off, deleted, switched_off, barred, a_guest])
async def test_a_running_turn_loses_it_at_the_next_call(
    servers: dict[str, MCPServer],
    fakes: dict[str, FakeMCPServer],
    agent: Agent,
    endpoint: Endpoint,
    bob: User,
    actor_of: Callable[[User], Actor],
    event: Callable[..., None],
) -> None:
    gate = asyncio.Event()
    fakes["bob"].on("tools/call", after(gate, fakes["bob"].usual))
    actor = await in_rows(actor_of, bob)
    async with await Chat.of(bob) as chat:
        endpoint.script(calls(ECHO), calls(ECHO), text("done"))
        await chat.start("go")
        await allow(chat)
        await fakes["bob"].heard("tools/call")
        await in_rows(event, servers["bob"], agent, actor)
        gate.set()
        finished = await chat.until("turn.finished")
    assert fakes["bob"].count("tools/call") == 1
    statuses = [part["status"] for part in finished["message"]["parts"] if part["type"] == "call"]
    assert statuses[1] == "denied", statuses


async def test_what_is_parked_for_approval_is_not_called_once_it_was_deleted(
    servers: dict[str, MCPServer], fakes: dict[str, FakeMCPServer], endpoint: Endpoint, bob: User, actor_of: Any
) -> None:
    async with await Chat.of(bob) as chat:
        endpoint.script(calls(ECHO))
        await chat.start("go")
        card = await chat.until("call.approval")
        await chat.until("turn.waiting")
        await in_rows(own.remove, await in_rows(actor_of, bob), servers["bob"].pk)
        endpoint.script(text("done"))
        await chat.send("call.decide", call_id=card["call_id"], decision="allow_once")
        await chat.until("turn.finished")
    assert fakes["bob"].count("tools/call") == 0


@pytest.mark.parametrize("change", ["delete", "url", "enabled"])
async def test_its_connection_closes_when_it_is_changed_or_deleted_and_nobody_elses_does(
    servers: dict[str, MCPServer],
    fakes: dict[str, FakeMCPServer],
    endpoint: Endpoint,
    alice: User,
    bob: User,
    actor_of: Callable[[User], Actor],
    change: str,
) -> None:
    for user in (alice, bob):
        async with await Chat.of(user) as chat:
            endpoint.script(calls(ECHO), text("done"))
            await chat.start("go")
            await allow(chat)
            await chat.until("turn.finished")
    actor, key = await in_rows(actor_of, bob), servers["bob"].pk
    session = fakes["bob"].sessions[-1]
    if change == "delete":
        await in_rows(own.remove, actor, key)
    else:
        wanted = {"url": {"url": fakes["bob"].url + "?v=2"}, "enabled": {"enabled": False}}[change]
        await in_rows(own.change, actor, key, wanted)
    assert (await fakes["bob"].heard("DELETE")).headers["mcp-session-id"] == session
    assert fakes["alice"].count("DELETE") == 0
    left = {info.server_id for info in connections.live_connections() if info.state != "closing"}
    assert left == {servers["alice"].pk}


async def test_a_key_of_another_person_reaches_it_no_more_than_the_person_does_and_nothing_else_comes_with_it(
    servers: dict[str, MCPServer],
    fakes: dict[str, FakeMCPServer],
    endpoint: Endpoint,
    organization: Organization,
    make_member: Any,
    bob: User,
) -> None:
    dora = await in_rows(make_member, "dora", organization, Role.OWNER)

    def another() -> None:  # of the organization, which the agent does not have
        other = MCPServer.objects.create(organization=organization, slug="wiki", title="Wiki", url=fakes["alice"].url)
        ServerGrant.objects.create(server=other, whole_organization=True)

    await in_rows(another)
    endpoint.script(text("one"), text("two"))
    for user, offered in ((dora, []), (bob, ["my-notes__echo", "my-notes__write"])):
        _, secret = await in_rows(lambda who: ApiKey.issue(user=who, organization=organization), user)
        async with await Chat("acme", {"authorization": f"Bearer {secret}"}).connect() as chat:
            await chat.ask()
        assert endpoint.last.tools == offered
