"""*Always allow*: what it covers, what it never covers, how it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from accounts.actors import Actor
from accounts.models import ApiKey, AuditRecord, User
from agents.models import Agent
from chatui.errors import NotFoundError
from chatui.rows import in_rows
from conversations import standing
from conversations.models import Conversation, Question, StandingApproval
from mcpservers.models import MCPServer
from tests.conversations.asking import (
    READ,
    WRITE,
    agent,
    asked,
    call_of,
    decided,
    fake,
    redefine,
    refused,
    server,
    set_rule,
)
from tests.conversations.chat import Chat
from tests.fakes.endpoint import Endpoint, calls, text
from tests.fakes.mcp_server import FakeMCPServer

__all__ = ["agent", "fake", "server"]


async def always(chat: Chat, endpoint: Endpoint, scope: str) -> str:
    """Allow `write` for good within `scope`; the conversation in which that was done."""
    card = await asked(chat, endpoint)
    assert card["can_remember"]
    call = await decided(chat, endpoint, card, "allow_always", scope=scope)
    assert (call["status"], call["decided_by"]) == ("ok", "alice")
    return str((await Conversation.objects.as_system().aget()).pk)


async def runs_unasked(chat: Chat, endpoint: Endpoint, **fields: Any) -> bool:
    """Whether a further call of `write` runs without a question."""
    endpoint.script(calls(WRITE), text("done"))
    await chat.start("again", **fields)
    while True:
        frame = await chat.next()
        if frame["type"] == "turn.waiting":
            await chat.send("call.decide", call_id=frame["ids"][0], decision="deny")
            await chat.until("turn.finished")
            return False
        if frame["type"] == "turn.finished":
            return bool(call_of(frame)["status"] == "ok")


@pytest.mark.parametrize(
    ("scope", "here", "another_chat", "another_agent"),
    [("conversation", True, False, False), ("agent", True, True, False), ("always", True, True, True)],
)
async def test_a_scope_goes_as_far_as_it_says(
    owner: User,
    endpoint: Endpoint,
    server: MCPServer,
    organization: Any,
    make_agent: Callable[..., Agent],
    scope: str,
    here: bool,
    another_chat: bool,
    another_agent: bool,
) -> None:
    await in_rows(lambda: make_agent(organization, slug="other", base_url=endpoint.base_url, servers=[server]))
    async with await Chat.of(owner) as chat:
        conversation = await always(chat, endpoint, scope)
        assert await runs_unasked(chat, endpoint, conversation_id=conversation) is here
        assert await runs_unasked(chat, endpoint) is another_chat
        assert await runs_unasked(chat, endpoint, agent="other") is another_agent
    given = await StandingApproval.objects.as_system().aget()
    assert (given.scope, given.tool, given.user_id) == (scope, "write", owner.pk)


async def test_a_call_that_was_always_allowed_says_so(owner: User, endpoint: Endpoint) -> None:
    async with await Chat.of(owner) as chat:
        await always(chat, endpoint, "always")
        endpoint.script(calls(WRITE), text("done"))
        call = call_of(await chat.ask())
    assert "always allow" in call["reason"]
    assert call["decided_by"] is None


async def test_it_is_nobody_elses(owner: User, bob: User, endpoint: Endpoint) -> None:
    async with await Chat.of(owner) as chat:
        await always(chat, endpoint, "always")
    async with await Chat.of(bob) as chat:
        assert not await runs_unasked(chat, endpoint)


async def test_it_is_of_one_tool_alone(owner: User, endpoint: Endpoint, server: MCPServer) -> None:
    async with await Chat.of(owner) as chat:
        await always(chat, endpoint, "always")
        await in_rows(lambda: MCPServer.objects.as_system().update(rules=[{"tool": "*", "do": "ask"}]))
        card = await asked(chat, endpoint, READ)
        assert card["tool"] == "read"


async def test_nothing_turns_deny(owner: User, endpoint: Endpoint, server: MCPServer, fake: FakeMCPServer) -> None:
    async with await Chat.of(owner) as chat:
        await always(chat, endpoint, "always")
        await set_rule(server, do="deny")
        endpoint.script(calls(WRITE), text("a pity"))
        assert call_of(await chat.ask())["status"] == "denied"
    assert fake.count("tools/call") == 1


async def test_a_rule_that_remembers_nothing_is_asked_each_time_and_offers_no_always(
    owner: User, endpoint: Endpoint, server: MCPServer
) -> None:
    async with await Chat.of(owner) as chat:
        await always(chat, endpoint, "always")  # before the rule
        await set_rule(server, remember=False)
        card = await asked(chat, endpoint)
        assert not card["can_remember"]
        error = await refused(chat, card, decision="allow_always", scope="always")
        assert error["code"] == "not_supported"


async def test_always_without_saying_how_far_is_refused(owner: User, endpoint: Endpoint) -> None:
    async with await Chat.of(owner) as chat:
        card = await asked(chat, endpoint)
        error = await refused(chat, card, decision="allow_always")
        assert error["code"] == "invalid_request"
        assert "scope" in error["message"]
    assert not await StandingApproval.objects.as_system().aexists()


async def test_it_is_void_once_the_tool_is_another_and_the_card_says_why(
    owner: User, endpoint: Endpoint, server: MCPServer, fake: FakeMCPServer, actor_of: Callable[[User], Actor]
) -> None:
    async with await Chat.of(owner) as chat:
        await always(chat, endpoint, "always")
        await redefine(fake, server, description="Write, and tell the whole world.")
        card = await asked(chat, endpoint)
        assert "definition has changed" in card["reason"]
        (row,) = await in_rows(lambda: standing.listing(actor_of(owner)))
        assert row["state"] == "changed"
        call = await decided(chat, endpoint, card, "allow_always", scope="always")
        assert call["status"] == "ok"
        assert await runs_unasked(chat, endpoint)
    assert await StandingApproval.objects.as_system().acount() == 2


async def test_a_tool_that_is_gone_is_listed_as_withdrawn(
    owner: User, endpoint: Endpoint, server: MCPServer, fake: FakeMCPServer, actor_of: Callable[[User], Actor]
) -> None:
    from mcpservers import catalogue

    async with await Chat.of(owner) as chat:
        await always(chat, endpoint, "always")
        del fake.tools[0]
        await catalogue.refresh(server.pk)
        endpoint.script(calls(WRITE), text("it is gone"))
        assert call_of(await chat.ask())["status"] in ("error", "denied", "unavailable")
    (row,) = await in_rows(lambda: standing.listing(actor_of(owner)))
    assert row["state"] == "withdrawn"


async def test_taken_back_it_counts_no_more(
    owner: User, bob: User, endpoint: Endpoint, actor_of: Callable[[User], Actor]
) -> None:
    async with await Chat.of(owner) as chat:
        await always(chat, endpoint, "always")
        (row,) = await in_rows(lambda: standing.listing(actor_of(owner)))
        assert (row["state"], row["server_title"], row["scope"]) == ("active", "Notes", "always")
        assert await in_rows(lambda: standing.listing(actor_of(bob))) == []
        with pytest.raises(NotFoundError):
            await in_rows(lambda: standing.revoke(actor_of(bob), UUID(row["id"])))
        await in_rows(lambda: standing.revoke(actor_of(owner), UUID(row["id"])))
        await in_rows(lambda: standing.revoke(actor_of(owner), UUID(row["id"])))  # in another tab
        assert not await runs_unasked(chat, endpoint)
    assert await in_rows(lambda: standing.listing(actor_of(owner))) == []
    actions = [action async for action in AuditRecord.objects.values_list("action", flat=True)]
    assert actions.count("approval.remembered") == actions.count("approval.revoked") == 1


async def test_with_nobody_present_it_does_not_count(
    owner: User, endpoint: Endpoint, organization: Any, fake: FakeMCPServer
) -> None:
    async with await Chat.of(owner) as chat:
        await always(chat, endpoint, "always")
    _, secret = await in_rows(ApiKey.issue, user=owner, organization=organization, name="k", scopes=["chat"])
    endpoint.script(calls(WRITE), text("I could not."))
    async with await Chat("acme", {"authorization": f"Bearer {secret}"}).connect() as chat:
        call = call_of(await chat.ask())
    assert call["status"] == "denied"
    assert fake.count("tools/call") == 1


async def test_the_same_word_given_twice_is_kept_once(owner: User, endpoint: Endpoint) -> None:
    async with await Chat.of(owner) as chat:
        endpoint.script(calls(WRITE, WRITE))
        await chat.start()
        cards = [await chat.until("call.approval"), await chat.until("call.approval")]
        await chat.until("turn.waiting")
        await chat.send("call.decide", call_id=cards[0]["call_id"], decision="allow_always", scope="always")
        await chat.until("turn.waiting")
        assert (await decided(chat, endpoint, cards[1], "allow_always", scope="always"))["status"] == "ok"
    assert await StandingApproval.objects.as_system().acount() == 1
    assert await Question.objects.as_system().filter(state=Question.State.ANSWERED).acount() == 2
