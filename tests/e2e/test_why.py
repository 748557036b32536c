"""Why a tool asks: told to the person whom it concerns, from the list of tools."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from accounts.models import User
from agents.models import Agent, AgentServer
from chatui.rows import in_rows
from mcpservers.models import MCPServer
from tests.e2e.site import Site
from tests.e2e.test_composer import send
from tests.fakes.endpoint import Endpoint, text

pytestmark = [pytest.mark.e2e, pytest.mark.deadline(150)]  # a browser on a loaded machine


async def test_the_list_of_tools_tells_why_one_asks(
    site: Site, owner: User, agent: Agent, demo_server: MCPServer, endpoint: Endpoint
) -> None:
    await in_rows(AgentServer.objects.create, agent=agent, server=demo_server)
    page = await site.open(owner)
    endpoint.script(text("Hello."))
    await send(page, "hello")  # lists the tools
    await expect(page.locator(".answer")).to_contain_text("Hello.")
    await page.reload()
    await page.get_by_role("button", name="Tools: 1 tool server on").click()
    await page.get_by_role("button", name="Show tools").click()
    await page.locator(".tools li", has_text="Add a note").get_by_role("button", name="asks first").click()
    dialog = page.get_by_role("dialog", name="Add a note on Demo tools")
    await expect(dialog).to_contain_text("a person is asked before each call")
    await expect(dialog).to_contain_text("The rule “add_note: ask” of the server decides.")
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
