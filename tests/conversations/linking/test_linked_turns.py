"""Turns that wait for an account, or go on without: everybody their own, and the one that was chosen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
from django.urls import reverse

from accounts.models import AuditRecord, Organization, User
from agents.models import Agent, AgentServer
from chatui.rows import in_rows
from conversations.models import Question
from mcpservers import connections
from mcpservers.models import LinkedAccount, MCPServer
from tests.conversations.chat import Chat
from tests.conversations.conftest import agent
from tests.conversations.linking.conftest import Enter
from tests.conversations.linking.test_signing_in import auth, back, begin, leads_to
from tests.fakes.authserver import FakeAuthServer
from tests.fakes.endpoint import Endpoint, calls, text
from tests.fakes.mcp_protected import ProtectedMCPServer

__all__ = ["agent", "auth"]
WHOAMI = ("notes__whoami", {})


@pytest_asyncio.fixture
async def notes(
    auth: FakeAuthServer, agent: Agent, organization: Organization, make_server: Callable[..., MCPServer]
) -> AsyncIterator[ProtectedMCPServer]:
    async with ProtectedMCPServer(auth=auth, open_listing=True) as server:

        def prepare() -> None:
            row = make_server(organization, url=server.url, rules=[{"tool": "*", "do": "allow"}])
            AgentServer.objects.create(agent=agent, server=row)

        await in_rows(prepare)
        yield server


async def link(as_user: Enter, user: User, who: str) -> None:
    browser = await as_user(user)
    response = await browser.get(await back(await begin(browser), user=who))
    assert response.status_code == 302


async def test_every_user_of_a_shared_agent_has_a_card_and_an_account_of_ones_own(
    as_user: Enter, alice: User, bob: User, notes: ProtectedMCPServer, endpoint: Endpoint
) -> None:
    endpoint.fallback = text("done")
    async with await Chat.of(alice) as hers, await Chat.of(bob) as his:
        cards = []
        for chat in (hers, his):
            endpoint.script(calls(WHOAMI))
            await chat.start("who am I?")
            cards.append(await chat.until("authorization.required"))
            await chat.until("turn.waiting")
        assert cards[0]["question_id"] != cards[1]["question_id"]
        await link(as_user, bob, "grace")
        assert (await his.until("turn.finished"))["outcome"] == "completed"
        assert await Question.objects.as_system().filter(state="open").acount() == 1  # hers still waits
        await link(as_user, alice, "ada")
        assert (await hers.until("turn.finished"))["outcome"] == "completed"
    assert (notes.calls_of("grace"), notes.calls_of("ada")) == (["whoami"], ["whoami"])
    assert notes.trespasses == []

    def proved() -> dict[Any, Any]:
        made = AuditRecord.objects.as_system().filter(action="tool.call")
        return {LinkedAccount.objects.as_system().get(pk=call.account_id).user: call.actor_id for call in made}

    assert await in_rows(proved) == {alice: alice.pk, bob: bob.pk}


async def test_two_servers_are_linked_in_one_turn_each_with_an_account_of_its_own(
    as_user: Enter,
    bob: User,
    notes: ProtectedMCPServer,
    auth: FakeAuthServer,
    agent: Agent,
    organization: Organization,
    make_server: Callable[..., MCPServer],
    endpoint: Endpoint,
) -> None:
    async with ProtectedMCPServer(auth=auth, open_listing=True) as tasks:

        def prepare() -> None:
            row = make_server(organization, "tasks", url=tasks.url, rules=[{"tool": "*", "do": "allow"}])
            AgentServer.objects.create(agent=agent, server=row, position=1)

        await in_rows(prepare)
        endpoint.script(calls(WHOAMI, ("tasks__whoami", {})), text("Two of you."))
        browser = await as_user(bob)
        async with await Chat.of(bob) as chat:
            await chat.start("who am I?")
            cards = [await chat.until("authorization.required") for _ in range(2)]
            assert {card["server"] for card in cards} == {"notes", "tasks"}
            waiting = await chat.until("turn.waiting")
            assert (waiting["for"], len(waiting["ids"])) == ("authorization", 2)
            for slug, person in (("tasks", "grace"), ("notes", "ada")):
                begun = await browser.post(f"/o/acme/connections/{slug}/begin")
                response = await browser.get(await back(leads_to(begun.content.decode()), user=person))
                assert response.status_code == 302
                told = await chat.until("authorization.completed")
                assert told["server"] == slug
                done = await chat.until("call.finished", lambda frame, told=told: frame["call_id"] == told["call_id"])
                assert done["status"] == "ok"
            assert (await chat.until("turn.finished"))["outcome"] == "completed"
        assert (notes.calls_of("ada"), notes.calls_of("grace")) == (["whoami"], [])
        assert (tasks.calls_of("ada"), tasks.calls_of("grace")) == ([], ["whoami"])
        assert notes.trespasses == tasks.trespasses == []
        sent = [message["content"] for message in endpoint.last.messages if message["role"] == "tool"]
        assert ['"owner": "ada"' in sent[0], '"owner": "grace"' in sent[1]] == [True, True], "in call order"


async def test_two_chats_that_wait_for_the_same_account_both_go_on(
    as_user: Enter, bob: User, notes: ProtectedMCPServer, endpoint: Endpoint
) -> None:
    endpoint.fallback = text("done")
    async with await Chat.of(bob) as chat:
        turns = []
        for _ in range(2):
            endpoint.script(calls(WHOAMI))
            turns.append(await chat.start("who am I?"))
            await chat.until("turn.waiting")
        await link(as_user, bob, "ada")
        for _ in turns:
            assert (await chat.until("turn.finished"))["outcome"] == "completed"
    assert notes.calls_of("ada") == ["whoami", "whoami"]


async def test_the_account_of_the_conversation_is_the_one_that_acts(
    as_user: Enter, bob: User, notes: ProtectedMCPServer, endpoint: Endpoint
) -> None:
    await link(as_user, bob, "ada")
    await link(as_user, bob, "grace")
    accounts = {account.subject: str(account.pk) async for account in LinkedAccount.objects.as_system()}
    default = await LinkedAccount.objects.as_system().aget(is_default=True)
    grace = next(pk for pk in accounts.values() if pk != str(default.pk))
    endpoint.script(calls(WHOAMI), text("one"), calls(WHOAMI), text("two"))
    async with await Chat.of(bob) as chat:
        first = await chat.ask("who am I?", accounts={"notes": grace})
        assert first["outcome"] == "completed"
        conversation = next(f["conversation_id"] for f in chat.seen if f["type"] == "turn.started")
        second = await chat.ask("and now?", conversation_id=conversation)
        assert second["outcome"] == "completed"
        request = "00000000-0000-4000-8000-000000000001"
        content = [{"type": "text", "text": "hi"}]
        await chat.send("turn.start", request_id=request, agent="helper", content=content, accounts={"notes": request})
        assert (await chat.until("error"))["code"] == "not_offered"
    assert (notes.calls_of("ada"), notes.calls_of("grace")) == ([], ["whoami", "whoami"])


async def test_a_server_whose_list_needs_an_account_is_named_and_used_from_the_next_message_on(
    as_user: Enter, bob: User, notes: ProtectedMCPServer, endpoint: Endpoint
) -> None:
    notes.open_listing = False
    endpoint.script(text("Without."), calls(WHOAMI), text("With."))
    async with await Chat.of(bob) as chat:
        first = await chat.ask("hello")
        notice = first["message"]["parts"][0]
        assert (notice["code"], notice["detail"]) == ("needs_sign_in", "notes")
        await link(as_user, bob, "ada")
        second = await chat.ask("again")
        assert second["outcome"] == "completed"
        assert [part["type"] for part in second["message"]["parts"]] == ["call", "text"]
    assert notes.calls_of("ada") == ["whoami"]


async def test_a_call_that_needs_more_access_asks_for_it_and_is_made_with_both(
    as_user: Enter, bob: User, notes: ProtectedMCPServer, endpoint: Endpoint
) -> None:
    await link(as_user, bob, "ada")
    account = await LinkedAccount.objects.as_system().aget()
    await LinkedAccount.objects.as_system().aupdate(scopes=["notes:read"])
    assert account.name
    endpoint.script(calls(("notes__add_note", {"text": "Milk"})), text("Noted."))
    token = notes.auth.valid(account.tokens["access_token"])
    assert token is not None
    token.scopes = ("notes:read",)
    async with await Chat.of(bob) as chat:
        await chat.start("note milk")
        card = await chat.until("authorization.required")
        assert "notes:write" in card["scopes"]
        assert card["account"] == account.name
        await chat.until("turn.waiting")
        browser = await as_user(bob)
        query = dict(pair.split("=", 1) for pair in card["url"].partition("?")[2].split("&"))
        url = await begin(browser, account=query["account"], scopes=" ".join(card["scopes"]))
        assert (await browser.get(await back(url))).status_code == 302
        assert (await chat.until("turn.finished"))["outcome"] == "completed"
    assert notes.notes["ada"][-1] == "Milk"
    assert await LinkedAccount.objects.as_system().acount() == 1


@pytest.mark.parametrize("by", ["oneself", "an admin"])
async def test_the_end_of_an_account_ends_its_sessions_at_the_server(
    as_user: Enter, alice: User, bob: User, notes: ProtectedMCPServer, endpoint: Endpoint, by: str
) -> None:
    for person, account in ((bob, "ada"), (alice, "grace")):
        await link(as_user, person, account)
        endpoint.script(calls(WHOAMI), text("done"))
        async with await Chat.of(person) as chat:
            assert (await chat.ask("who am I?"))["outcome"] == "completed"
    sessions = {owner: session for session, owner in notes.owners.items()}
    assert {info.user_id for info in connections.live_connections()} >= {alice.pk, bob.pk}
    account = await LinkedAccount.objects.as_system().aget(user=bob)
    if by == "oneself":
        browser = await as_user(bob)
        await browser.post(f"/o/acme/connections/accounts/{account.pk}/", action="disconnect")
    else:
        server, browser = await MCPServer.objects.as_system().aget(), await as_user(alice)
        await browser.post(reverse("admin:mcpservers_mcpserver_revoke", args=[server.pk]), account=str(account.pk))
    await notes.until(lambda: any(end.session == sessions["ada"] for end in notes.exchanges_of("DELETE")))
    assert {info.user_id for info in connections.live_connections() if info.state == "ready"} & {
        alice.pk,
        bob.pk,
    } == {alice.pk}
    assert sessions["grace"] not in notes.ended


@pytest.mark.deadline(90)  # several sign-ins, one after the other
async def test_a_card_that_nobody_answers_expires_and_the_answer_goes_on(
    bob: User, notes: ProtectedMCPServer, endpoint: Endpoint, settings: Any
) -> None:
    settings.TURN = {**settings.TURN, "QUESTION_SECONDS": 0.05, "HEARTBEAT_SECONDS": 0.05}
    endpoint.script(calls(WHOAMI), text("Too late."))
    async with await Chat.of(bob) as chat, asyncio.timeout(60):
        await chat.start("who am I?")
        finished = await chat.until("turn.finished")
    assert finished["outcome"] == "completed"
    assert finished["message"]["parts"][0]["status"] == "expired"
