"""What axe-core finds on the main pages, in light and dark: nothing that keeps people out."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse
from playwright.async_api import Page, expect

from accounts.models import User
from agents.models import Agent, AgentServer
from chatui.rows import in_rows
from mcpservers import catalogue
from mcpservers.models import MCPServer
from tests.conversations.chat import cookie_of
from tests.e2e.site import Site
from tests.e2e.test_approvals import NOTE
from tests.e2e.test_composer import send
from tests.fakes.endpoint import Endpoint, calls
from tests.fakes.installed import from_npm

pytestmark = [pytest.mark.e2e, pytest.mark.node, pytest.mark.deadline(150)]  # a browser on a loaded machine
AXE = "axe-core@4.14.1"  # MPL-2.0
# Every rule once; what a theme changes is looked at in the other theme too.
RUN = """async (only) => (await axe.run(document, {resultTypes: ["violations"], ...only})).violations
    .filter(({impact}) => impact === "serious" || impact === "critical")
    .flatMap(({id, help, nodes}) => nodes.map(({target}) => `${id}: ${target.join(" ")} (${help})`))"""
SUM = ("demo__calculate", {"expression": "2+3"})


async def found(page: Page, where: str, source: str) -> list[str]:
    wrong: list[Any] = []
    for theme, only in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):
        await page.emulate_media(color_scheme=theme)
        if theme == "dark" and "/admin/" in page.url:
            await page.goto(page.url)  # it has the theme that it began with
        await page.evaluate(source)
        wrong += [f"{where}, {theme}: {each}" for each in await page.evaluate(RUN, only)]
    await page.emulate_media(color_scheme="light")
    return wrong


async def test_axe_finds_nothing_serious_on_the_main_pages_in_light_and_dark(
    site: Site, owner: User, agent: Agent, demo_server: MCPServer, endpoint: Endpoint
) -> None:
    source = (from_npm("axe", AXE) / "axe-core" / "axe.min.js").read_text()

    def prepare() -> None:
        User.objects.filter(pk=owner.pk).update(is_superuser=True, is_staff=True)
        AgentServer.objects.create(agent=agent, server=demo_server)

    await in_rows(prepare)
    await catalogue.refresh(demo_server.pk)
    endpoint.script(calls(SUM, text="Let me see."), calls(NOTE))
    page = await site.open(None, "/accounts/login/", ready=False)
    wrong = await found(page, "sign-in", source)
    name, _, value = (await in_rows(cookie_of, owner)).partition("=")
    await page.context.add_cookies([{"name": name, "value": value, "url": site.url}])
    await page.goto(site.url + "/o/acme/")
    await expect(page.get_by_role("button", name="Tell me a story")).to_be_visible()
    wrong += await found(page, "an empty chat", source)
    await send(page, "note this")
    await expect(page.locator(".approval")).to_be_visible()
    await page.get_by_role("button", name="Deny with a note").click()
    wrong += await found(page, "a chat with tools", source)
    await page.get_by_role("button", name="Tools: 1 tool server on").click()
    await expect(page.locator(".popover")).to_be_visible()
    wrong += await found(page, "the picker", source)
    for path, words in (("approvals", "Allow once"), ("connections", "Demo tools"), ("usage", "Everybody's")):
        await page.goto(f"{site.url}/o/acme/{path}/")
        await expect(page.locator("main")).to_contain_text(words)
        wrong += await found(page, path, source)
    for admin in (reverse("admin:index"), reverse("admin:mcpservers_mcpserver_health", args=[demo_server.pk])):
        await page.goto(site.url + admin)
        await expect(page.locator("h1").first).to_be_visible()
        wrong += await found(page, admin, source)
    assert not wrong, "\n".join(wrong)
