"""Why a tool asks, is withheld or was changed: told to the person whom it concerns, from the list of tools."""

from __future__ import annotations

import pytest
from django.utils import timezone
from playwright.async_api import expect

from accounts.models import User
from agents.models import Agent, AgentServer
from chatui.rows import in_rows
from mcpservers.models import CatalogueEntry, MCPServer
from tests.e2e.site import Site

pytestmark = [pytest.mark.e2e, pytest.mark.deadline(150)]  # a browser on a loaded machine


LISTED = [
    {
        "name": "add_note",
        "title": "Add a note",
        "inputSchema": {"type": "object", "properties": {"no": False, "text": {"type": "string"}}},
    },
    {"name": "broken", "title": "Broken", "inputSchema": {"type": "string"}},
]


async def test_the_list_of_tools_tells_why_one_asks_and_what_became_of_each(
    site: Site, owner: User, agent: Agent, demo_server: MCPServer
) -> None:
    def prepare() -> None:
        CatalogueEntry.objects.create(
            server=demo_server,
            definition_hash=demo_server.definition_hash(),
            tools=LISTED,
            revision=1,
            fetched_at=timezone.now(),
        )
        AgentServer.objects.create(agent=agent, server=demo_server)

    await in_rows(prepare)
    page = await site.open(owner)
    await page.get_by_role("button", name="Tools: 1 tool server on").click()
    await expect(page.locator(".server-state")).to_contain_text("1 tool, 1 withheld")
    await page.get_by_role("button", name="Show tools").click()
    broken, noted = (page.locator(".tools li", has_text=title) for title in ("Broken", "Add a note"))
    await expect(broken).to_contain_text("withheld")
    await expect(broken).to_contain_text("Its input schema describes a value of type string; it must be an object.")
    await expect(noted).to_contain_text("Changed for the model: The property 'no', for which no value is allowed")
    await page.locator(".tools li", has_text="Add a note").get_by_role("button", name="asks first").click()
    dialog = page.get_by_role("dialog", name="Add a note on Demo tools")
    await expect(dialog).to_contain_text("a person is asked before each call")
    await expect(dialog).to_contain_text("The rule “add_note: ask” of the server decides.")
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
