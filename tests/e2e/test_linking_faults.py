"""What goes wrong while an account is linked, and the way on that is left each time; values that a server needs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.async_api import expect

from accounts.models import Organization, User
from agents.models import Agent, AgentServer
from chatui.rows import in_rows
from mcpservers.models import LinkAttempt, MCPServer
from tests.e2e.site import Site
from tests.e2e.test_composer import send
from tests.e2e.test_linking import auth, consent, notes, window_of
from tests.fakes.authserver import FakeAuthServer
from tests.fakes.endpoint import Endpoint, calls, text
from tests.fakes.mcp_protected import ProtectedMCPServer

__all__ = ["auth", "notes"]

pytestmark = [pytest.mark.e2e, pytest.mark.deadline(150)]  # a browser on a loaded machine
WHOAMI = ("notes__whoami", {})


async def test_a_window_closed_too_early_or_not_let_open_leaves_ways_that_lead_back_to_the_chat(
    site: Site, owner: User, notes: ProtectedMCPServer, endpoint: Endpoint
) -> None:
    endpoint.script(calls(WHOAMI), text("You are Ada there."))
    page = await site.open(owner)
    await send(page, "who am I?")
    card = page.locator(".sign-in")
    connect = card.get_by_role("link", name="Connect")
    await (await window_of(page, connect)).close()
    await expect(card.locator(".sign-in-hint")).to_contain_text("closed too early? Choose Connect again")

    await page.evaluate("() => { window.open = () => null; }")  # as a browser does that lets no window open
    async with page.context.expect_page() as opening:
        await connect.click()  # it is a link, and opens as one
    tab = await opening.value
    await expect(tab.locator("h1")).to_have_text("Connect Notes?")
    await tab.close()

    chat = page.url
    await card.get_by_role("link", name="sign in in this tab").click()
    await expect(page.locator("h1")).to_have_text("Connect Notes?")
    await page.get_by_role("button", name="Continue").press("Enter")
    await consent(page)
    await expect(page.locator(".answer")).to_contain_text("You are Ada there.")
    assert page.url == chat
    assert notes.calls_of("ada") == ["whoami"]


async def test_a_sign_in_that_took_too_long_begins_anew_and_one_that_ended_is_asked_for_again(
    site: Site, owner: User, notes: ProtectedMCPServer, auth: FakeAuthServer, endpoint: Endpoint
) -> None:
    endpoint.script(calls(WHOAMI), text("You are Ada there."), calls(WHOAMI), text("Still Ada."))
    page = await site.open(owner)
    await send(page, "who am I?")
    card = page.locator(".sign-in")
    window = await window_of(page, card.get_by_role("link", name="Connect"))
    await expect(window.get_by_label("Ada").first).to_be_visible()
    past = timezone.now() - timedelta(seconds=1)
    await in_rows(LinkAttempt.objects.as_system().update, expires_at=past)
    await consent(window)
    await expect(window.locator("main")).to_contain_text("took longer than ten minutes")
    await window.close()
    await consent(await window_of(page, card.get_by_role("link", name="Connect")))
    await expect(page.locator(".answer")).to_contain_text("You are Ada there.")

    auth.memory.revoke_all()
    await send(page, "and now?")
    await expect(card).to_contain_text("Account")
    await consent(await window_of(page, card.get_by_role("link", name="Sign in again")))
    await expect(page.locator(".answer").last).to_contain_text("Still Ada.")


async def test_a_notice_of_missing_values_leads_to_them_and_the_page_of_connections_too(
    site: Site, owner: User, agent: Agent, organization: Organization, demo_server: MCPServer, endpoint: Endpoint
) -> None:
    def prepare() -> None:
        demo_server.env = {"TOKEN": "{{TOKEN}}"}
        demo_server.variables = {"TOKEN": {"title": "Personal token", "sensitive": True}}
        demo_server.save()
        AgentServer.objects.create(agent=agent, server=demo_server)

    await in_rows(prepare)
    endpoint.script(text("Without it."), text("With it."))
    page = await site.open(owner)
    await send(page, "hello")
    await expect(page.locator(".answer")).to_contain_text("Without it.")
    notice = page.locator(".server-notice")
    await notice.get_by_role("button", name="Set up").press("Enter")
    dialog = page.get_by_role("dialog", name="Set up Demo tools")
    await expect(dialog.get_by_label("Personal token")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(notice.get_by_role("button", name="Set up")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(dialog.get_by_label("Personal token")).to_be_focused()
    await page.keyboard.type("sekret")
    await page.keyboard.press("Enter")
    await expect(notice).to_contain_text("It is used from your next message on.")
    await send(page, "and now?")
    await expect(page.locator(".answer").last).to_contain_text("With it.")
    assert "demo__add_note" in endpoint.last.tools

    await page.goto(site.url + "/o/acme/connections/")
    opener = page.locator("summary", has_text="Change values")
    await opener.press("Enter")
    await expect(dialog.get_by_label("Personal token")).to_be_focused()
    await expect(dialog.get_by_label("Personal token")).to_have_attribute(
        "placeholder", "Leave empty to keep it, or type to replace it"
    )
    assert "sekret" not in await page.content()
    await page.keyboard.press("Escape")
    await expect(opener).to_be_focused()
    await page.keyboard.press("Enter")
    await dialog.get_by_role("button", name="Remove all").click()
    await expect(page.locator(".server-state")).to_contain_text("Needs setup")
