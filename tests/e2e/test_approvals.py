"""Approvals as people meet them: always allowed, changed arguments, the page, somebody else's word."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from django.utils import timezone
from playwright.async_api import Page, WebSocketRoute, expect

from accounts.models import User
from agents.models import Agent, AgentServer
from chatui.rows import in_rows
from conversations import supervisor
from conversations.models import Question
from mcpservers.models import MCPServer
from tests.e2e.site import Site
from tests.e2e.test_composer import send
from tests.fakes.endpoint import Endpoint, calls, text

pytestmark = [pytest.mark.e2e, pytest.mark.deadline(150)]  # a browser on a loaded machine
KEPT = "Object.keys(sessionStorage).filter((name) => name.startsWith('chatui:forms:'))"
NOTE = ("demo__add_note", {"title": "Hello", "text": "A new note"})


async def opened(site: Site, owner: User, agent: Agent, server: MCPServer, **rule: Any) -> Page:
    def prepare() -> None:
        server.rules = [{"tool": "add_note", "do": "ask", **rule}, {"tool": "*", "do": "allow"}]
        server.save()
        AgentServer.objects.create(agent=agent, server=server)

    await in_rows(prepare)
    return await site.open(owner)


async def test_always_allow_is_asked_once_and_taken_back_on_the_page(
    site: Site, owner: User, agent: Agent, demo_server: MCPServer, endpoint: Endpoint
) -> None:
    page = await opened(site, owner, agent, demo_server)
    link = page.get_by_role("link", name="Approvals")
    endpoint.script(calls(NOTE), text("Noted."))
    await send(page, "note this")
    await expect(page.get_by_role("link", name="Approvals 1: 1 question for you")).to_be_visible()
    await page.get_by_role("button", name="Always allow").press("Enter")
    await expect(page.get_by_role("menuitem", name="In this chat")).to_be_focused()
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(page.locator(".answer")).to_contain_text("Noted.")
    await expect(page.get_by_role("link", name="Approvals", exact=True)).to_be_visible()
    endpoint.script(calls(NOTE), text("Noted again."))
    await send(page, "and this")
    await expect(page.locator(".answer").last).to_contain_text("Noted again.")
    await expect(page.locator(".approval")).to_have_count(0)
    await link.click()
    await expect(page.get_by_role("heading", name="Approvals")).to_be_visible()
    await expect(page.locator("#approvals")).to_contain_text("Nothing waits for you.")
    row = page.locator(".standing li")
    await expect(row).to_contain_text("Add a note on Demo tools")
    await expect(row).to_contain_text("In all of my chats")
    await page.get_by_role("button", name="Revoke: Add a note on Demo tools").click()
    await expect(page.locator("#approvals")).to_contain_text("You have not allowed any tool for good.")


async def test_arguments_are_changed_on_the_page_from_another_device_and_survive_a_reload(
    site: Site, owner: User, agent: Agent, demo_server: MCPServer, endpoint: Endpoint
) -> None:
    page = await opened(site, owner, agent, demo_server, edit=True)
    elsewhere = await site.open(owner, "/o/acme/approvals/", ready=False, viewport={"width": 375, "height": 700})
    await expect(elsewhere.locator("#approvals")).to_contain_text("Nothing waits for you.")
    endpoint.script(calls(NOTE), text("Noted."))
    await send(page, "note this")
    card = elsewhere.locator(".approval")
    await expect(card).to_contain_text("A new note")
    await card.get_by_role("button", name="Edit arguments").click()
    field = card.get_by_label("Arguments as JSON")
    await field.fill('{"title": 7}')
    await card.get_by_role("button", name="Allow once").click()
    await expect(card.get_by_role("alert")).to_contain_text("do not fit the tool")
    await field.fill('{"title": "Hello", "text": "Another note"}')
    await elsewhere.reload()
    await expect(field).to_have_value('{"title": "Hello", "text": "Another note"}')
    await expect(field).not_to_be_focused()
    await card.get_by_role("button", name="Allow once").click()
    await expect(elsewhere.locator("#approvals")).to_contain_text("Nothing waits for you.")
    await expect(page.locator(".answer")).to_contain_text("Noted.")
    assert "Another note" in str(endpoint.last.messages[-1]["content"])
    assert await elsewhere.evaluate(KEPT) == []
    await elsewhere.evaluate("sessionStorage.setItem('chatui:forms:another:question', '[]')")
    await elsewhere.goto(site.url + "/accounts/logout/")
    await elsewhere.get_by_role("button", name="Sign out").click()
    await expect(elsewhere.get_by_role("heading", name="Sign in")).to_be_visible()
    assert await elsewhere.evaluate(KEPT) == []


async def test_a_note_is_typed_at_once_and_the_keyboard_goes_on_where_one_writes(
    site: Site, owner: User, agent: Agent, demo_server: MCPServer, endpoint: Endpoint
) -> None:
    page = await opened(site, owner, agent, demo_server)
    endpoint.script(calls(NOTE), text("Then not."))
    await send(page, "note this")
    card = page.locator(".approval")
    await card.get_by_role("button", name="Deny with a note").press("Enter")
    await expect(card.get_by_label("Tell the agent why")).to_be_focused()
    await card.get_by_role("button", name="Back").press("Enter")
    await expect(card).to_be_focused()
    await card.get_by_role("button", name="Deny with a note").press("Enter")
    await expect(card.get_by_label("Tell the agent why")).to_be_focused()
    await page.keyboard.type("Not today")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.locator(".answer")).to_contain_text("Then not.")
    assert "Not today" in str(endpoint.last.messages[-1]["content"])
    await expect(page.locator("#composer-text")).to_be_focused()


async def test_an_answer_that_a_dying_connection_took_along_is_sent_over_the_next_one(
    site: Site, owner: User, agent: Agent, demo_server: MCPServer, endpoint: Endpoint
) -> None:
    page = await opened(site, owner, agent, demo_server)
    sockets: list[WebSocketRoute] = []
    lost = asyncio.Event()

    def relay(socket: WebSocketRoute) -> None:
        server, first = socket.connect_to_server(), not sockets
        sockets.append(socket)

        def forward(message: str | bytes) -> None:
            if first and "call.decide" in str(message):
                lost.set()
            else:
                server.send(message)

        socket.on_message(forward)

    await page.route_web_socket("**/ws/**", relay)
    await page.reload()
    endpoint.script(calls(NOTE), text("Noted."))
    await send(page, "note this")
    await page.get_by_role("button", name="Allow once").click()
    await expect(page.locator(".approval-state")).to_have_text("Allowing")
    await lost.wait()
    await sockets[0].close(code=1012)
    await expect(page.locator(".answer")).to_contain_text("Noted.")


async def test_what_expired_says_so_and_is_asked_again(
    site: Site, owner: User, agent: Agent, demo_server: MCPServer, endpoint: Endpoint
) -> None:
    page = await opened(site, owner, agent, demo_server)
    endpoint.script(calls(NOTE), text("Then not."), text("Once more."))
    await send(page, "note this")
    await expect(page.locator(".approval")).to_be_visible()
    await in_rows(lambda: Question.objects.as_system().update(expires_at=timezone.now()))
    await supervisor.current().expire()
    await expect(page.locator(".call-expired")).to_contain_text("Nobody answered in time, so this was not run.")
    await page.get_by_role("button", name="Ask again: Add a note").click()
    await expect(page.locator(".question").last).to_contain_text("“Add a note” on Demo tools came too late")
    await expect(page.locator(".answer").last).to_contain_text("Once more.")
    await expect(page.get_by_role("button", name="Ask again: Add a note")).to_have_count(0)


async def test_an_approver_decides_on_the_page_and_sees_nothing_of_the_chat(
    site: Site, owner: User, bob: User, agent: Agent, demo_server: MCPServer, endpoint: Endpoint
) -> None:
    page = await opened(site, owner, agent, demo_server, approvers=["bob"])
    theirs = await site.open(bob, "/o/acme/approvals/", ready=False)
    endpoint.script(calls(NOTE), text("Noted."))
    await send(page, "our secret plan")
    await expect(page.locator(".approval")).to_contain_text("Waiting for bob to decide")
    await expect(page.locator(".approval button")).to_have_count(0)
    card = theirs.locator(".approval")
    await expect(card).to_contain_text("alice")
    await expect(card.get_by_role("button", name="Always allow")).to_have_count(0)
    assert "secret plan" not in await theirs.content()
    await card.get_by_role("button", name="Allow once").click()
    await expect(page.locator(".answer")).to_contain_text("Noted.")
    await page.locator(".call-open").click()
    await expect(page.locator(".decided")).to_have_text(re.compile(r"^Allowed by bob, .*\d"))
