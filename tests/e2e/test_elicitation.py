"""What servers ask, as a person sees it: forms and addresses, of a session and between two requests."""

from __future__ import annotations

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
from tests.fakes.mcp_installed import npm_server
from tests.fakes.mcp_server import FakeMCPServer
from tests.mcpservers.test_elicitation_calls import asks, question

pytestmark = [pytest.mark.e2e, pytest.mark.deadline(150)]  # a browser on a loaded machine

FORM: dict[str, Any] = {
    "message": "Whom shall I write to?\n<b>Choose</b> well.",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "title": "Name", "description": "As on the letter", "minLength": 2},
            "copies": {"type": "integer", "title": "Copies", "minimum": 1, "maximum": 9, "default": 2},
            "colour": {"type": "string", "title": "Colour", "enum": ["red", "blue"], "enumNames": ["Red", "Blue"]},
            "extras": {
                "type": "array",
                "title": "Extras",
                "items": {"enum": ["stamp", "seal", "ribbon"]},
                "maxItems": 2,
            },
            "urgent": {"type": "boolean", "title": "Urgent"},
        },
        "required": ["name", "colour"],
    },
}


def granted(server: MCPServer, agent: Agent) -> None:
    ServerGrant.objects.create(server=server, whole_organization=True)
    AgentServer.objects.create(agent=agent, server=server)


@pytest_asyncio.fixture
async def fake() -> AsyncIterator[FakeMCPServer]:
    async with FakeMCPServer(era="modern") as server:
        yield server


@pytest_asyncio.fixture
async def page(site: Site, owner: User, agent: Agent, organization: Organization, fake: FakeMCPServer) -> Page:
    def prepare() -> None:
        server = MCPServer.objects.create(
            organization=organization,
            slug="letters",
            title="Letters",
            url=fake.url,
            rules=[{"tool": "*", "do": "allow"}],
        )
        granted(server, agent)

    await in_rows(prepare)
    return await site.open(owner)


async def test_a_form_keeps_what_is_entered_shows_what_is_wrong_and_survives_a_reload(
    site: Site, page: Page, fake: FakeMCPServer, endpoint: Endpoint
) -> None:
    fake.on("tools/call", asks({"inputRequests": {"q": question(FORM)}, "requestState": "s"}))
    endpoint.script(calls(("letters__echo", {"text": "x"})), text("It is on its way."))
    await send(page, "write a letter")
    card = page.locator(".elicitation")
    await expect(card).to_contain_text("Letters asks you")
    await expect(card).to_contain_text("From Letters for Echo, not checked")
    await expect(card.locator(".elicitation-message")).to_have_text("Whom shall I write to?\n<b>Choose</b> well.")
    assert await card.locator("b, input[type=password]").count() == 0
    await expect(page.locator("#assertive")).to_contain_text("Letters asks you: Whom shall I write to?")
    assert (await page.title()).startswith("(!) ")
    await expect(page.locator(".chat-mark.waiting")).to_have_count(1)
    await page.reload()
    await expect(card.get_by_label("Copies")).to_have_value("2")
    await card.get_by_label("Name").fill("A")
    await card.get_by_role("button", name="Accept and send").click()
    await expect(card.get_by_label("Name")).to_be_focused()
    await expect(card.get_by_label("Name")).to_have_attribute("aria-invalid", "true")
    await expect(card).to_contain_text("Enter at least 2 characters.")
    await expect(card).to_contain_text("Choose one.")
    await card.get_by_label("Name").fill("Ada")
    await card.get_by_label("Blue").check()
    await card.get_by_label("ribbon").check()
    await card.get_by_label("stamp").check()
    await page.keyboard.press("Tab")
    await card.get_by_label("Urgent").check()
    await page.reload()
    await expect(card.get_by_label("Name")).to_have_value("Ada")
    await expect(card.get_by_label("stamp")).to_be_checked()
    other = await site.tab(page.context, page.url.removeprefix(site.url))
    await expect(other.locator(".elicitation")).to_be_visible()
    await card.get_by_label("Copies").press("Enter")
    for tab in (page, other):
        await expect(tab.locator(".answer")).to_contain_text("It is on its way.")
        await expect(tab.locator(".elicitation")).to_have_count(0)
    answers = fake.exchanges_of("tools/call")[-1].params["inputResponses"]
    content = {"name": "Ada", "copies": 2, "colour": "blue", "extras": ["stamp", "ribbon"], "urgent": True}
    assert answers == {"q": {"action": "accept", "content": content}}


async def test_an_address_shows_its_host_and_opens_by_a_click_alone(
    page: Page, fake: FakeMCPServer, endpoint: Endpoint
) -> None:
    place = {"mode": "url", "message": "Pay first.", "url": "https://pay.letters.example/bill?id=7"}
    fake.on("tools/call", asks({"inputRequests": {"q": question(place)}}))
    endpoint.script(calls(("letters__echo", {"text": "x"})), text("Nothing was paid."))
    await send(page, "write a letter")
    card = page.locator(".elicitation")
    await expect(card.locator(".elicitation-host")).to_have_text("pay.letters.example")
    link = card.get_by_role("link", name="Open pay.letters.example")
    await expect(link).to_have_attribute("href", "https://pay.letters.example/bill?id=7")
    await expect(link).to_have_attribute("rel", "noopener noreferrer")
    await expect(link).to_have_attribute("target", "_blank")
    await expect(card.get_by_role("button", name="Accept: I opened it")).to_be_enabled()
    assert len(page.context.pages) == 1
    await card.get_by_role("button", name="Decline").click()
    await expect(page.locator(".answer")).to_contain_text("Nothing was paid.")
    assert fake.exchanges_of("tools/call")[-1].params["inputResponses"] == {"q": {"action": "decline"}}


@pytest.mark.node
async def test_the_official_servers_questions_are_asked_in_the_chat(
    site: Site, owner: User, agent: Agent, organization: Organization, endpoint: Endpoint
) -> None:
    command, *args = npm_server("@modelcontextprotocol/server-everything")

    def prepare() -> None:
        server = MCPServer.objects.create(
            organization=organization,
            slug="everything",
            title="Everything",
            transport="stdio",
            command=command,
            args=args,
            env={"CALLER": "{{user.id}}"},  # so that everybody has a process of their own
            rules=[{"tool": "*", "do": "allow"}],
        )
        granted(server, agent)

    await in_rows(prepare)
    endpoint.script(
        calls(("everything__trigger-elicitation-request", {})),
        calls(("everything__trigger-elicitation-request", {})),
        calls(("everything__trigger-elicitation-request", {})),
        calls(
            (
                "everything__trigger-url-elicitation",
                {"url": "https://login.example/x", "message": "Sign there.", "elicitationId": "e1"},
            )
        ),
        text("All asked."),
    )
    page = await site.open(owner)
    await send(page, "ask me")
    card = page.locator(".elicitation")
    await expect(card.locator(".field")).not_to_have_count(0)
    await page.reload()
    await (
        card.get_by_label("String (required)", exact=True).or_(card.locator("input[type=text]").first).first.fill("Ada")
    )
    await card.get_by_role("button", name="Accept and send").click()
    for answer, of in (("Decline", 2), ("Cancel", 3)):
        await endpoint.received(of)  # the call before has its result: the card is of the next one
        await card.get_by_role("button", name=answer, exact=True).click()
    await expect(card.locator(".elicitation-host")).to_have_text("login.example")
    await card.get_by_role("button", name="Accept: I opened it").click()
    await expect(page.locator(".answer")).to_contain_text("All asked.")
    told = [str(message["content"]) for message in endpoint.last.messages if message["role"] == "tool"]
    assert "Ada" in told[0]
    assert "declined" in told[1]
    assert "cancelled" in told[2]
