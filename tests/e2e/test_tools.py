"""Tool calls of a real MCP server, and their approval, as a person sees them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from accounts.models import Organization, User
from agents.models import Agent, AgentServer
from chatui.rows import in_rows
from mcpservers.models import MCPServer, ServerGrant
from tests.e2e.site import Site
from tests.e2e.test_composer import send
from tests.fakes.endpoint import Endpoint, calls, text
from tests.fakes.mcp_server import Exchange, FakeMCPServer

pytestmark = [pytest.mark.e2e, pytest.mark.deadline(150)]  # a browser on a loaded machine
NOTE = ("demo__add_note", {"title": "Hello", "text": "A new note \u202ewith a hidden sign"})


@pytest_asyncio.fixture
async def page(site: Site, owner: User, agent: Agent, demo_server: MCPServer) -> Page:
    await in_rows(AgentServer.objects.create, agent=agent, server=demo_server)
    return await site.open(owner)


@pytest_asyncio.fixture
async def cafe(site: Site, agent: Agent, organization: Organization) -> AsyncIterator[FakeMCPServer]:
    """A server with one tool that takes as long as the test wants."""

    def connect(url: str) -> None:
        allowed = {"rules": [{"tool": "*", "do": "allow"}], "url": url}
        server = MCPServer.objects.create(organization=organization, slug="cafe", title="Café", **allowed)
        ServerGrant.objects.create(server=server, whole_organization=True)
        AgentServer.objects.create(agent=agent, server=server)

    brew = {"name": "brew_coffee", "title": "Brew coffee", "inputSchema": {"type": "object"}}
    async with FakeMCPServer(tools=[brew]) as fake:
        await in_rows(connect, fake.url)
        yield fake


async def test_calls_are_lines_with_state_progress_duration_and_opened_details(
    cafe: FakeMCPServer, page: Page, endpoint: Endpoint
) -> None:
    ready = asyncio.Event()

    async def brew(exchange: Exchange) -> None:
        await exchange.progress(1, 3, "Brewing cup 1 of 3")
        await ready.wait()
        await exchange.result({"content": [{"type": "text", "text": "3 cups are ready."}]})

    cafe.on("tools/call", brew)
    endpoint.script(
        calls(("demo__calculate", {"expression": "6*7"}), ("cafe__brew_coffee", {}), text="Let me see."),
        text("It is 42."),
    )
    await send(page, "calculate and brew")
    slow = page.locator(".call", has_text="Brew coffee")
    await expect(slow.locator(".call-progress")).to_contain_text("Brewing cup 1 of 3 (1/3)")
    await expect(page.locator(".calls-summary")).to_contain_text("1 of 2 tool calls done")
    ready.set()
    await expect(page.locator(".answer")).to_contain_text("It is 42.")
    await expect(page.locator(".calls-summary")).to_contain_text("2 tool calls · Demo tools, Café")
    await expect(slow.locator(".call-state")).to_have_text("Done")
    await expect(slow.locator(".call-time")).to_contain_text("s")
    line = page.locator(".call", has_text="Calculator").locator(".call-open")
    await expect(line).to_have_attribute("aria-expanded", "false")
    await line.press("Enter")
    details = page.locator(".call", has_text="Calculator").locator(".call-details")
    await expect(details).to_contain_text("6*7")
    await expect(details.locator(".external")).to_contain_text("42")
    await expect(details.locator(".external-label")).to_contain_text("From Demo tools, not checked")


async def test_one_call_can_be_cancelled_and_the_answer_goes_on(page: Page, endpoint: Endpoint) -> None:
    brew = ("demo__brew_coffee", {"cups": 60, "seconds_per_cup": 1})
    endpoint.script(calls(brew, ("demo__calculate", {"expression": "1/0"})), text("No coffee then."))
    await send(page, "brew")
    await expect(page.locator(".call-state")).to_have_text(["Running", "Failed"])
    await page.get_by_role("button", name="Cancel Demo tools: Brew coffee (slow)").click()
    await expect(page.locator(".answer")).to_contain_text("No coffee then.")
    await expect(page.locator(".call-state")).to_have_text(["Cancelled", "Failed"])
    await expect(page.locator(".calls-summary")).to_contain_text("2 not successful")


async def test_a_picture_is_shown_from_our_own_address(page: Page, endpoint: Endpoint) -> None:
    endpoint.script(calls(("demo__draw_chart", {"values": [1, 2], "labels": ["a", "b"]})), text("There."))
    await send(page, "draw")
    picture = page.locator(".pictures img")
    await expect(picture).to_be_visible()
    assert str(await picture.get_attribute("src")).startswith("/api/v1/attachments/")


async def test_an_approval_shows_all_survives_a_reload_and_lets_the_call_run_once(
    page: Page, endpoint: Endpoint
) -> None:
    endpoint.script(calls(NOTE), text("Noted."))
    await send(page, "note this")
    card = page.locator(".approval")
    await expect(card).to_contain_text("Allow Add a note on Demo tools?")
    await expect(card).to_contain_text("add_note")
    await expect(card).to_contain_text("A new note \\u{202e}with a hidden sign")
    await expect(card).to_contain_text("Claimed by the server")
    await expect(card).to_contain_text("nobody checked it")
    await expect(page.locator("#assertive")).to_contain_text("asks for your approval: Add a note")
    assert await page.evaluate("document.activeElement.id") == "composer-text"
    assert (await page.title()).startswith("(!) ")
    await page.reload()
    await expect(card).to_contain_text("Open for")
    allow = card.get_by_role("button", name="Allow once")
    await allow.dblclick()
    await expect(page.locator(".answer")).to_contain_text("Noted.")
    assert len(endpoint.requests) == 2
    await page.locator(".call-open").click()
    await expect(page.locator(".decided")).to_have_text(re.compile(r"^Allowed by alice, .*\d"))


async def test_a_denial_with_a_note_reaches_the_model(page: Page, endpoint: Endpoint) -> None:
    endpoint.script(calls(NOTE), text("I understand."))
    await send(page, "note this")
    await page.get_by_role("button", name="Deny with a note").click()
    await page.get_by_label("Tell the agent why (optional)").fill("not on a Sunday")
    await page.get_by_role("button", name="Deny", exact=True).click()
    await expect(page.locator(".answer")).to_contain_text("I understand.")
    await expect(page.locator(".call-state")).to_have_text("Denied")
    assert "not on a Sunday" in str(endpoint.last.messages[-1]["content"])


async def test_an_answer_in_one_tab_settles_the_card_in_the_other(site: Site, page: Page, endpoint: Endpoint) -> None:
    endpoint.script(calls(NOTE), text("Done in both."))
    await send(page, "note this")
    await expect(page.locator(".approval")).to_be_visible()
    other = await site.tab(page.context, page.url.removeprefix(site.url))
    await expect(other.locator(".approval")).to_be_visible()
    await other.get_by_role("button", name="Allow once").click()
    for tab in (page, other):
        await expect(tab.locator(".answer")).to_contain_text("Done in both.")
        await expect(tab.locator(".approval")).to_have_count(0)


async def test_tools_can_be_turned_off_for_the_next_message(page: Page, endpoint: Endpoint) -> None:
    endpoint.script(text("Without."))
    await page.get_by_role("button", name="Tools: 1 tool server on").click()
    await page.get_by_role("switch", name="Use Demo tools").uncheck()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("button", name="Tools: Tools are off")).to_be_focused()
    await send(page, "hello")
    await expect(page.locator(".answer")).to_contain_text("Without.")
    assert endpoint.last.tools == []


async def test_a_server_that_needs_a_value_says_so_and_is_set_up_in_place(
    site: Site,
    owner: User,
    agent: Agent,
    organization: Organization,
    demo_server: MCPServer,
) -> None:
    def prepare() -> None:
        demo_server.env = {"TOKEN": "{{TOKEN}}"}
        demo_server.variables = {"TOKEN": {"title": "Personal token", "sensitive": True}}
        demo_server.save()
        AgentServer.objects.create(agent=agent, server=demo_server)

    await in_rows(prepare)
    page = await site.open(owner)
    await page.get_by_role("button", name="one needs attention").click()
    await expect(page.locator(".server-state")).to_contain_text("Needs setup")
    await page.get_by_role("button", name="Set up").click()
    field: Any = page.get_by_label("Personal token")
    await expect(field).to_be_focused()
    await expect(field).to_have_attribute("type", "password")
    await field.fill("sekret")
    await page.get_by_role("button", name="Store").click()
    await expect(page.locator(".toast")).to_contain_text("Demo tools is set up")
    await page.get_by_role("button", name="Tools: 1 tool server on").click()
    await expect(page.locator(".server-state")).not_to_contain_text("Needs setup")
