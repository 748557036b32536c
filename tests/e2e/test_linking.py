"""Linking an account as a person does it: from the chat and from the page of connections, in windows of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from accounts.models import Organization, User
from agents.models import Agent, AgentServer
from chatui.rows import in_rows
from conversations.models import Turn
from mcpservers.models import LinkedAccount, MCPServer, ServerGrant
from tests.e2e.site import Site
from tests.e2e.test_composer import send
from tests.fakes.authserver import FakeAuthServer
from tests.fakes.endpoint import Endpoint, calls, text
from tests.fakes.mcp_protected import ProtectedMCPServer

pytestmark = [pytest.mark.e2e, pytest.mark.deadline(150)]  # a browser on a loaded machine


@pytest_asyncio.fixture
async def auth() -> AsyncIterator[FakeAuthServer]:
    async with FakeAuthServer() as server:
        yield server


@pytest_asyncio.fixture
async def notes(
    site: Site, settings: Any, auth: FakeAuthServer, agent: Agent, organization: Organization
) -> AsyncIterator[ProtectedMCPServer]:
    """Notes that anybody may list the tools of, and that only one's own account can call."""
    settings.BASE_URL = site.url
    site.known.add(auth.origin.removeprefix("http://"))
    async with ProtectedMCPServer(auth=auth, open_listing=True) as server:

        def prepare() -> None:
            row = MCPServer.objects.create(
                organization=organization,
                slug="notes",
                title="Notes",
                url=server.url,
                oauth={},
                rules=[{"tool": "*", "do": "allow"}],
            )
            ServerGrant.objects.create(server=row, whole_organization=True)
            AgentServer.objects.create(agent=agent, server=row)

        await in_rows(prepare)
        yield server


async def consent(page: Page, name: str = "Ada", allow: bool = True) -> None:
    """What a person does at the authorization server."""
    await page.get_by_label(name).first.check()
    await page.get_by_role("button", name="Allow" if allow else "Deny").click()


async def window_of(page: Page, button: Any) -> Page:
    """The window that a click opens, after our own page that says where it leads."""
    async with page.expect_popup() as opening:
        await button.click()
    window = await opening.value
    await expect(window.locator("h1")).to_have_text("Connect Notes?")
    await window.get_by_role("button", name="Continue").press("Enter")
    return window


async def test_an_account_is_connected_renamed_and_disconnected_by_keyboard(
    site: Site, owner: User, notes: ProtectedMCPServer, auth: FakeAuthServer
) -> None:
    page = await site.open(owner, "/o/acme/connections/", ready=False)
    await page.get_by_role("button", name="Connect Notes").press("Enter")
    await consent(page)
    await expect(page.locator(".notes")).to_contain_text("Connected to Notes as")
    account = page.locator(".account")
    await account.locator("summary", has_text="Rename").press("Enter")
    await expect(account.get_by_label("Name, for you alone")).to_be_focused()
    await page.keyboard.type("Work")
    await page.keyboard.press("Enter")
    await expect(account.locator(".account-name")).to_have_text("Work")
    await account.locator("summary", has_text="Disconnect").press("Enter")
    await page.keyboard.press("Escape")
    await expect(account.locator("summary", has_text="Disconnect")).to_be_focused()
    await page.keyboard.press("Enter")
    await page.get_by_role("button", name="Disconnect Work").press("Enter")
    await expect(page.locator(".notes")).to_contain_text("Its access was revoked there")
    await expect(account).to_have_count(0)
    assert auth.count("revoke") >= 1


async def test_a_call_asks_for_an_account_and_goes_on_by_itself_in_every_tab(
    site: Site, owner: User, notes: ProtectedMCPServer, endpoint: Endpoint
) -> None:
    endpoint.script(calls(("notes__whoami", {})), text("You are Ada there."))
    page = await site.open(owner)
    await send(page, "who am I?")
    card = page.locator(".sign-in")
    await expect(card).to_contain_text("Who am I needs your account at Notes")
    await expect(card).to_contain_text(notes.auth.origin.removeprefix("http://"))
    await expect(card).to_contain_text("notes:read")
    await expect(card).to_contain_text("Open for")
    await expect(page.locator("#assertive")).to_contain_text("Notes asks you to sign in")
    assert await page.evaluate("document.activeElement.id") == "composer-text"
    await page.reload()  # the card is the stored message's
    await expect(card).to_contain_text("Who am I needs your account at Notes")
    other = await site.tab(page.context, page.url.removeprefix(site.url))
    await expect(other.locator(".sign-in")).to_be_visible()
    window = await window_of(page, card.get_by_role("link", name="Connect"))
    await consent(window)
    for tab in (page, other):
        await expect(tab.locator(".answer")).to_contain_text("You are Ada there.")
        await expect(tab.locator(".sign-in")).to_have_count(0)
    assert notes.calls_of("ada") == ["whoami"]
    if not window.is_closed():  # it closes by itself
        await window.wait_for_event("close")


async def test_a_wider_permission_is_asked_for_without_a_word_of_the_first_sign_in(
    site: Site, owner: User, notes: ProtectedMCPServer, endpoint: Endpoint
) -> None:
    notes.prm_changes = {"scopes_supported": ["notes:read"]}
    endpoint.script(calls(("notes__whoami", {})), text("You are Ada there."))
    endpoint.script(calls(("notes__add_note", {"text": "Milk"})), text("It is written."))
    page = await site.open(owner)
    await send(page, "who am I?")
    card = page.locator(".sign-in")
    await consent(await window_of(page, card.get_by_role("link", name="Connect")))
    await expect(page.locator(".answer")).to_contain_text("You are Ada there.")
    await send(page, "note milk")
    await expect(card.locator(".scopes-new")).to_have_text("Also wantsnotes:write")
    await expect(card.locator(".sign-in-done")).to_have_count(0)
    window = await window_of(page, card.get_by_role("link", name="Sign in again"))
    await consent(window)
    await expect(page.locator(".answer").last).to_contain_text("It is written.")


async def test_declining_there_can_be_tried_again_and_not_now_tells_the_model(
    site: Site, owner: User, notes: ProtectedMCPServer, endpoint: Endpoint
) -> None:
    endpoint.script(calls(("notes__whoami", {})), text("Without it, then."))
    page = await site.open(owner)
    await send(page, "who am I?")
    card = page.locator(".sign-in")
    window = await window_of(page, card.get_by_role("link", name="Connect"))
    await consent(window, allow=False)
    await expect(window.locator("h1")).to_have_text("You declined")
    await expect(card.locator(".field-error")).to_contain_text("You did not allow access")
    await card.get_by_role("button", name="Not now").click()
    await expect(page.locator(".answer")).to_contain_text("Without it, then.")
    await expect(page.locator(".call-state")).to_have_text("Denied")
    assert "declined" in str(endpoint.last.messages[-1]["content"])
    assert notes.calls_of("ada") == []


async def test_the_account_of_a_chat_is_chosen_in_the_picker_and_kept(
    site: Site, owner: User, notes: ProtectedMCPServer, endpoint: Endpoint
) -> None:
    def link() -> LinkedAccount:
        server = MCPServer.objects.as_system().get()
        fields = {
            "organization": server.organization,
            "server": server,
            "user": owner,
            "issuer": notes.auth.issuer,
            "binding": server.oauth_binding(),
        }
        LinkedAccount.objects.create(name="ada", is_default=True, **fields)
        grace: LinkedAccount = LinkedAccount.objects.create(name="grace", **fields)
        return grace

    grace = await in_rows(link)
    endpoint.script(text("As Grace."))
    page = await site.open(owner)
    await page.get_by_role("button", name="Tools:").click()
    choice = page.get_by_label("In this chat as")
    await expect(choice.locator("option:checked")).to_have_text("ada")
    await choice.select_option(label="grace")
    await page.keyboard.press("Escape")
    await send(page, "who am I?")
    await expect(page.locator(".answer")).to_contain_text("As Grace.")
    assert (await in_rows(Turn.objects.get)).options["accounts"] == {"notes": str(grace.pk)}
    await page.reload()
    await page.get_by_role("button", name="Tools:").click()
    await expect(choice.locator("option:checked")).to_contain_text("grace")
