"""A server that a person added for themselves and that wants an account: from the chat to its end, theirs alone."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from accounts.models import Organization, User
from agents.models import Agent
from chatui.rows import in_rows
from mcpservers import catalogue, connections, entries
from mcpservers.models import LinkedAccount, MCPServer
from tests.conversations.chat import Chat
from tests.conversations.conftest import agent
from tests.conversations.linking.conftest import Enter
from tests.conversations.linking.test_pages import PAGE, words
from tests.conversations.linking.test_signing_in import auth, back, leads_to
from tests.fakes.authserver import FakeAuthServer
from tests.fakes.endpoint import Endpoint, calls, text
from tests.fakes.mcp_protected import ProtectedMCPServer
from tests.fakes.own_servers import own as make_own
from tests.fakes.own_servers import within_reach

__all__ = ["agent", "auth", "within_reach"]
pytestmark = pytest.mark.usefixtures("within_reach")
BEGIN = PAGE + "my-notes/begin"


@pytest_asyncio.fixture
async def fake(house: object, auth: FakeAuthServer) -> AsyncIterator[ProtectedMCPServer]:
    entries.memory.clear()
    async with ProtectedMCPServer(auth=auth, open_listing=True) as server:
        yield server
        await catalogue.aclose()
        await connections.aclose()


@pytest.fixture
def mine(agent: Agent, organization: Organization, bob: User, fake: ProtectedMCPServer) -> MCPServer:
    agent.user_servers = True
    agent.save()
    return make_own(bob, organization, fake.url)


async def test_a_call_waits_for_its_owner_who_alone_can_sign_in_and_whose_account_ends_with_it(
    mine: MCPServer,
    fake: ProtectedMCPServer,
    auth: FakeAuthServer,
    endpoint: Endpoint,
    as_user: Enter,
    alice: User,
    bob: User,
) -> None:
    browser, colleague = await as_user(bob), await as_user(alice)
    endpoint.script(calls(("my-notes__whoami", {})), text("You are Grace there."))
    async with await Chat.of(bob) as chat:
        await chat.start("who am I there?")
        asked = await chat.until("call.approval")
        await chat.send("call.decide", call_id=asked["call_id"], decision="allow_once")
        card = await chat.until("authorization.required")
        assert (card["server"], card["title"]) == ("my-notes", "My notes")
        assert card["url"].startswith(BEGIN)
        assert card["host"] == auth.origin.removeprefix("http://")
        await chat.until("turn.waiting")
        assert (await colleague.get(BEGIN)).status_code == 404
        assert (await colleague.post(BEGIN)).status_code == 404
        begun = await browser.post(BEGIN)
        assert (await browser.get(await back(leads_to(begun.content.decode()), user="grace"))).status_code == 302
        assert (await chat.until("authorization.completed"))["call_id"] == card["call_id"]
        assert (await chat.until("turn.finished"))["outcome"] == "completed"
    assert fake.calls_of("grace") == ["whoami"]
    account = await LinkedAccount.objects.as_system().aget()
    assert (account.user_id, account.server_id, account.issuer) == (bob.pk, mine.pk, auth.issuer)

    await LinkedAccount.objects.as_system().aupdate(state="relink", tokens={})
    page = await browser.page(PAGE)
    assert "The sign-in has ended. Connect again." in words(page)
    form = re.search(rf'action="{BEGIN}".*?name="account" value="([^"]+)".*?Reconnect', page, re.DOTALL)
    assert form is not None
    begun = await browser.post(BEGIN, account=form[1])
    await browser.get(await back(leads_to(begun.content.decode()), user="grace"))
    again = await LinkedAccount.objects.as_system().aget()
    assert (again.pk, again.state) == (account.pk, "ready")
    assert account.name not in await colleague.page(PAGE)

    assert auth.valid(again.tokens["access_token"], fake.url) is not None
    token = browser.client.cookies["csrftoken"].value
    gone = await browser.client.delete(f"/api/v1/connections/servers/{mine.pk}", headers={"X-CSRFToken": token})
    assert (gone.status_code, gone.json()) == (200, {"warnings": []})
    assert auth.valid(again.tokens["access_token"]) is None
    assert not await in_rows(LinkedAccount.objects.as_system().exists)
