"""Servers of one's own as a person has them: added on the page of connections, used in the chat, deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import expect

from accounts.models import Organization, User
from agents.models import Agent
from chatui.rows import in_rows
from mcpservers.models import LinkedAccount, MCPServer, OAuthClient
from tests.e2e.site import Site
from tests.e2e.test_composer import send
from tests.fakes.endpoint import Endpoint, calls, text
from tests.fakes.mcp_server import FakeMCPServer
from tests.fakes.own_servers import within_reach  # noqa: F401  # a fixture

pytestmark = [pytest.mark.e2e, pytest.mark.deadline(90)]  # a browser on a loaded machine


@pytest_asyncio.fixture
async def notes(site: Site, organization: Organization, agent: Agent) -> AsyncIterator[FakeMCPServer]:
    def allow() -> None:
        Organization.objects.filter(pk=organization.pk).update(own_servers="members")
        Agent.objects.as_system().update(user_servers=True)

    await in_rows(allow)
    async with FakeMCPServer() as server:
        yield server


def link(person: User) -> None:
    """An account of `person` at Notes, of which nobody can be told that it ends."""
    server = MCPServer.objects.as_system().get(slug="my-notes")
    where = {"organization": server.organization, "server": server, "issuer": "https://login.example"}
    client = OAuthClient.objects.create(source="dynamic", **where)
    tokens, binding = {"access_token": "a"}, server.oauth_binding()
    LinkedAccount.objects.create(user=person, client=client, binding=binding, name="Bob", tokens=tokens, **where)


async def test_a_server_of_ones_own_is_added_checked_used_and_deleted_by_keyboard(
    site: Site,
    owner: User,
    notes: FakeMCPServer,
    endpoint: Endpoint,
    within_reach: None,  # noqa: F811  # the fixture
) -> None:
    page = await site.open(owner, "/o/acme/connections/", ready=False)
    await page.get_by_role("button", name="Add a server").press("Enter")
    form = page.get_by_role("dialog", name="Add a server of your own")
    await expect(form.get_by_label("Name", exact=True)).to_be_focused()
    await page.keyboard.type("Notes")
    await form.get_by_label("Address").fill("http://user:pass@127.0.0.1/mcp")
    await form.get_by_role("button", name="Add a header").press("Enter")
    await expect(form.get_by_label("Name of the header")).to_be_focused()
    await page.keyboard.type("X-Token")
    await form.get_by_label("Value of X-Token").fill("planted-secret")
    await form.get_by_role("button", name="Add", exact=True).press("Enter")
    await expect(form.get_by_role("alert")).to_contain_text("use headers")
    await expect(form.get_by_label("Address")).to_be_focused()
    await form.get_by_label("Address").fill(notes.url)
    await page.keyboard.press("Enter")
    check = page.get_by_role("dialog", name="Check Notes")
    await expect(check.get_by_role("status")).to_have_text("It works: 2 tools.")
    assert notes.exchanges[-1].headers["x-token"] == "planted-secret"
    await check.get_by_role("button", name="Done").press("Enter")
    card = page.locator("#server-my-notes")
    await expect(card).to_contain_text("yours")
    await expect(card).to_contain_text("Used by Helper")
    assert "planted-secret" not in await page.content()

    endpoint.script(calls(("my-notes__echo", {"text": "milk"})), text("Done."))
    await page.goto(site.url + "/o/acme/")
    await send(page, "Write it down")
    await page.get_by_role("button", name="Allow once").click()
    await expect(page.locator(".answer .markdown")).to_have_text("Done.")
    assert notes.count("tools/call") == 1

    await in_rows(link, owner)
    await page.goto(site.url + "/o/acme/connections/")
    await page.get_by_role("button", name="Delete Notes").press("Enter")
    await page.get_by_role("dialog").get_by_role("button", name="Delete").press("Enter")
    gone = page.get_by_role("dialog", name="Notes was deleted")
    await expect(gone.get_by_role("status")).to_contain_text("The sign-in service could not be told")
    await gone.get_by_role("button", name="Done").press("Enter")
    await expect(page.get_by_role("heading", name="There is no server for you yet")).to_be_visible()
    assert not await MCPServer.objects.as_system().aexists()
