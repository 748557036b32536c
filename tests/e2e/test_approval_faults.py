"""Approvals at their edges: two tabs at once, too late, somebody else's, and without a mouse."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from playwright.async_api import Page, expect

from accounts.models import User
from agents.models import Agent
from chatui.rows import in_rows
from conversations import supervisor
from conversations.models import Question
from mcpservers.models import MCPServer
from tests.e2e.site import Site
from tests.e2e.test_approvals import NOTE, opened
from tests.e2e.test_composer import send
from tests.fakes.endpoint import Endpoint, calls, text

pytestmark = [pytest.mark.e2e, pytest.mark.deadline(150)]  # a browser on a loaded machine


async def deaf(site: Site, owner: User, path: str, *heard: str, **options: Any) -> Page:
    """A tab that hears nothing of what others do: only the frames that are `heard`."""
    context = await site.context(owner)

    def through(socket: Any) -> None:
        server = socket.connect_to_server()
        server.on_message(lambda said: socket.send(said) if json.loads(said)["type"] in heard else None)

    await context.route_web_socket("**/ws/**", through)
    return await site.tab(context, path, **options)


async def test_who_answers_second_changes_nothing_and_sees_who_was_first(
    site: Site, owner: User, bob: User, agent: Agent, demo_server: MCPServer, endpoint: Endpoint
) -> None:
    endpoint.script(calls(NOTE), text("Noted."))
    page = await opened(site, owner, agent, demo_server, approvers=["alice", "bob"])
    await send(page, "note this")
    await expect(page.locator(".approval")).to_be_visible()
    late = await deaf(site, owner, page.url.removeprefix(site.url), "hello", "error")
    listed = await deaf(site, bob, "/o/acme/approvals/", ready=False)
    for tab in (late, listed):
        await expect(tab.locator(".approval")).to_be_visible()
    await page.get_by_role("button", name="Allow once").click()
    await expect(page.locator(".answer")).to_contain_text("Noted.")

    await late.get_by_role("button", name="Deny", exact=True).click()
    await expect(late.locator(".answer")).to_contain_text("Noted.")
    await expect(late.locator(".approval")).to_have_count(0)
    await late.locator(".call-open").click()
    await expect(late.locator(".decided")).to_have_text(re.compile(r"^Allowed by alice, .*\d"))
    await listed.get_by_role("button", name="Deny", exact=True).click()
    await expect(listed.locator("#assertive")).to_contain_text("Add a note: alice has answered this already.")
    await expect(listed.locator("#approvals .note")).to_contain_text("alice has answered this already.")
    await expect(listed.locator("#approvals")).to_contain_text("Nothing waits for you.")
    assert len(endpoint.requests) == 2


async def test_a_question_nobody_answers_in_time_says_so_and_the_answer_goes_on(
    site: Site, owner: User, bob: User, agent: Agent, demo_server: MCPServer, endpoint: Endpoint
) -> None:
    endpoint.script(calls(NOTE), text("Nobody said yes."))
    page = await opened(site, owner, agent, demo_server)
    await send(page, "note this")
    await expect(page.locator(".approval")).to_be_visible()

    # What waits for Alice is neither shown nor told to Bob, whatever address he has of it.
    theirs = await site.open(bob, page.url.removeprefix(site.url), ready=False)
    await expect(theirs.locator("h1")).to_have_text("Not found")
    await theirs.goto(site.url + "/o/acme/approvals/")
    await expect(theirs.locator("#approvals")).to_contain_text("Nothing waits for you.")

    past = timezone.now() - timedelta(seconds=1)
    await in_rows(Question.objects.as_system().update, expires_at=past)
    await page.reload()
    await expect(page.locator(".approval-state")).to_have_text("Expired")
    await expect(page.get_by_role("button", name="Allow once")).to_be_disabled()
    await expect(page.get_by_role("button", name="Deny", exact=True)).to_be_disabled()
    await supervisor.current().expire()
    await expect(page.locator(".answer")).to_contain_text("Nobody said yes.")
    await expect(page.locator(".call-state")).to_have_text("Expired, not run")
    assert "Nobody decided in time. The call was not made." in str(endpoint.last.messages[-1]["content"])


async def test_a_call_is_read_whole_and_allowed_without_a_mouse(
    site: Site, owner: User, agent: Agent, demo_server: MCPServer, endpoint: Endpoint
) -> None:
    long = "All of this. " * 400 + "The very end."
    endpoint.script(calls(("demo__add_note", {"title": "Long", "text": long})), text("Noted."))
    page = await opened(site, owner, agent, demo_server)
    await expect(page.locator("#composer-text")).to_be_focused()
    await page.keyboard.type("note this")
    await page.keyboard.press("Enter")
    card = page.locator(".approval")
    await expect(card).to_contain_text("The very end.")
    await expect(card).to_contain_text("characters, all shown: scroll to read.")
    await expect(page.locator("#composer-text")).to_be_focused()  # nothing took the focus from who writes
    for _ in range(25):
        await page.keyboard.press("Shift+Tab")
        if await page.evaluate("document.activeElement.textContent") == "Allow once":
            break
    await expect(card.get_by_role("button", name="Allow once")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator(".answer")).to_contain_text("Noted.")
    await expect(page.locator("#composer-text")).to_be_focused()
