"""Turns that need an account: the call waits for a sign-in, goes on with it by itself, and is made once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import UUID

import pytest

from accounts.actors import Actor, find_actor
from accounts.models import User
from agents.models import Agent
from chatui.rows import in_rows
from conversations.linking import news
from conversations.models import Turn
from mcpservers import entries
from mcpservers.models import LinkedAccount, MCPServer, ServerGrant
from mcpservers.oauth import flow
from tests.conversations.chat import Chat, Frame
from tests.fakes.authpages import consent, query_of
from tests.fakes.authserver import FakeAuthServer
from tests.fakes.endpoint import Endpoint, calls, text
from tests.fakes.mcp_protected import ProtectedMCPServer
from tests.fakes.mcp_server import Exchange

WHOAMI: tuple[str, dict[str, Any]] = ("notes__whoami", {})
ADD: tuple[str, dict[str, Any]] = ("notes__add_note", {"text": "x"})
BROWSER = "the-browser"


@pytest.fixture
async def fake() -> AsyncIterator[ProtectedMCPServer]:
    entries.memory.clear()
    async with FakeAuthServer() as auth, ProtectedMCPServer(auth=auth, era="modern", open_listing=True) as server:
        yield server


@pytest.fixture
def server(transactional_db: None, organization: Any, fake: ProtectedMCPServer) -> MCPServer:
    made = MCPServer.objects.create(
        organization=organization,
        slug="notes",
        title="Notes",
        url=fake.url,
        oauth={},
        connect_timeout=60,
        rules=[{"tool": "*", "do": "allow"}],
    )
    ServerGrant.objects.create(server=made, whole_organization=True)
    return made


@pytest.fixture
def agent(
    house: Any, endpoint: Endpoint, organization: Any, server: MCPServer, make_agent: Callable[..., Agent]
) -> Agent:
    return make_agent(organization, base_url=endpoint.base_url, servers=[server])


def actor(user: User) -> Actor:
    found = find_actor(user.pk, "acme")
    assert found is not None
    return found


async def link(user: User, server: MCPServer, card: Frame) -> None:
    """What the card leads to: consent of Ada's, and the news of it."""
    who = await in_rows(actor, user)
    asked = dict(parse_qsl(urlsplit(card["url"]).query))
    account = UUID(asked["account"]) if "account" in asked else None
    begun = await flow.begin(who, server.pk, browser=BROWSER, account_id=account, scopes=asked["scopes"].split())
    completed = await flow.complete(user.pk, query_of(await consent(begun.url, "ada")), browser=BROWSER)
    await news.linked(user.pk, completed)


async def test_a_call_waits_for_the_sign_in_and_is_made_once_with_it(
    owner: User, endpoint: Endpoint, server: MCPServer, fake: ProtectedMCPServer
) -> None:
    endpoint.script(calls(WHOAMI), text("You are Ada."))
    async with await Chat.of(owner) as chat:
        turn_id = await chat.start()
        card = await chat.until("authorization.required")
        assert (card["server"], card["title"], card["account"]) == ("notes", "Notes", None)
        assert card["host"] == fake.auth.origin.removeprefix("http://")
        assert card["scopes"] == ["notes:read", "notes:write"]
        assert card["url"].startswith("/o/acme/connections/notes/begin?")
        waiting = await chat.until("turn.waiting")
        assert waiting["for"] == "authorization"
        await link(owner, server, card)
        told = await chat.until("authorization.completed")
        assert (told["server"], told["call_id"]) == ("notes", card["call_id"])
        finished = await chat.until("turn.finished", lambda frame: frame["turn_id"] == str(turn_id))
        (call,) = [part for part in finished["message"]["parts"] if part["type"] == "call"]
        assert call["status"] == "ok"
    assert fake.calls_of("ada") == ["whoami"]
    assert '"owner": "ada"' in endpoint.last.messages[-1]["content"]


async def test_who_declines_to_sign_in_lets_the_model_know(
    owner: User, endpoint: Endpoint, fake: ProtectedMCPServer
) -> None:
    endpoint.script(calls(WHOAMI), text("A pity."))
    async with await Chat.of(owner) as chat:
        await chat.start()
        card = await chat.until("authorization.required")
        await chat.until("turn.waiting")
        await chat.send("call.decide", call_id=card["call_id"], decision="deny")
        finished = await chat.until("turn.finished")
        assert finished["outcome"] == "completed"
    assert "declined" in endpoint.last.messages[-1]["content"]
    assert fake.count("tools/call") == 0


async def test_more_access_is_asked_for_on_a_second_card_and_no_third_one(
    owner: User, endpoint: Endpoint, server: MCPServer, fake: ProtectedMCPServer
) -> None:
    fake.prm_changes = {"scopes_supported": ["notes:read"]}
    endpoint.script(calls(ADD), text("Noted."), calls(ADD), text("It does not work."))
    async with await Chat.of(owner) as chat:
        await chat.start()
        first = await chat.until("authorization.required")
        await chat.until("turn.waiting")
        await link(owner, server, first)
        second = await chat.until("authorization.required")
        assert (second["account"], "notes:write" in second["scopes"]) == ("Account 1", True)
        assert (first["new_scopes"], second["new_scopes"]) == ([], ["notes:write"])
        await chat.until("turn.waiting")
        await link(owner, server, second)
        finished = await chat.until("turn.finished")
        assert fake.notes["ada"] == ["Call Charles", "x"]
        # A server that is never satisfied does not ask for ever.
        fake.refuse_all = True
        conversation = await in_rows(lambda: Turn.objects.latest("created_at").conversation_id)
        await chat.start("again", conversation_id=str(conversation))
        card = await chat.until("authorization.required")
        await chat.until("turn.waiting")
        await link(owner, server, card)
        finished = await chat.until("turn.finished")
        call = [part for part in finished["message"]["parts"] if part["type"] == "call"][-1]
        assert call["status"] == "unavailable"
    assert "nobody is asked again" in endpoint.last.messages[-1]["content"]


async def test_a_server_that_always_wants_more_asks_once_in_a_call(
    owner: User, endpoint: Endpoint, server: MCPServer, fake: ProtectedMCPServer
) -> None:
    async def more(exchange: Exchange) -> None:
        said = 'Bearer error="insufficient_scope", scope="notes:write"'
        await exchange.respond(403, "more is needed", www_authenticate=said)

    who = await in_rows(actor, owner)
    begun = await flow.begin(who, server.pk, browser=BROWSER)
    await flow.complete(owner.pk, query_of(await consent(begun.url, "ada")), browser=BROWSER)
    fake.on("tools/call", more)
    endpoint.script(calls(ADD), text("It does not work."))
    async with await Chat.of(owner) as chat:
        await chat.start()
        card = await chat.until("authorization.required")
        await chat.until("turn.waiting")
        await link(owner, server, card)
        finished = await chat.until("turn.finished")
    (call,) = [part for part in finished["message"]["parts"] if part["type"] == "call"]
    assert call["status"] == "unavailable"
    assert [frame["type"] for frame in chat.seen].count("authorization.required") == 1
    assert fake.count("tools/call") == 2  # before and after the one sign-in
    assert fake.notes["ada"] == ["Call Charles"]


async def test_a_server_whose_list_needs_a_sign_in_shows_its_card_and_the_turn_goes_on(
    owner: User, endpoint: Endpoint, fake: ProtectedMCPServer
) -> None:
    fake.open_listing = False
    endpoint.script(text("Without notes."))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert finished["outcome"] == "completed"
        frames = chat.frames(UUID(finished["turn_id"]))
    notice = next(frame for frame in frames if frame["type"] == "notice")
    assert (notice["code"], notice["detail"]) == ("needs_sign_in", "notes")
    card = next(frame for frame in frames if frame["type"] == "authorization.required")
    assert (card["call_id"], card["question_id"], card["server"]) == (None, None, "notes")
    assert card["url"].startswith("/o/acme/connections/notes/begin")
    assert endpoint.last.tools == []


async def test_the_account_that_was_chosen_for_the_chat_acts(
    owner: User, endpoint: Endpoint, server: MCPServer, fake: ProtectedMCPServer
) -> None:
    who = await in_rows(actor, owner)
    for person in ("ada", "grace"):
        begun = await flow.begin(who, server.pk, browser=BROWSER)
        await flow.complete(owner.pk, query_of(await consent(begun.url, person)), browser=BROWSER)
    other = await LinkedAccount.objects.as_system().aget(user=owner, is_default=False)
    endpoint.script(calls(WHOAMI), text("Grace."))
    async with await Chat.of(owner) as chat:
        await chat.ask(accounts={"notes": str(other.pk)})
    assert (fake.calls_of("ada"), fake.calls_of("grace")) == ([], ["whoami"])
