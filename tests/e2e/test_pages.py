"""The pages beside the chat: with nothing to show, while they load, when that fails, and on a narrow screen."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.urls import reverse
from playwright.async_api import Page, expect

from accounts.models import Organization, User
from agents.models import Agent, AgentServer
from chatui.rows import in_rows
from mcpservers import catalogue
from mcpservers.models import MCPServer
from tests.e2e.site import Site
from tests.e2e.test_approvals import NOTE
from tests.e2e.test_composer import send
from tests.fakes.endpoint import Endpoint, calls, text

pytestmark = [pytest.mark.e2e, pytest.mark.deadline(150)]  # a browser on a loaded machine
NARROW = {"width": 375, "height": 700}
WIDER = """(width) => [...document.querySelectorAll("body *")].filter((el) => {
    for (let box = el.parentElement; box; box = box.parentElement) {
        if (box !== document.body && getComputedStyle(box).overflowX !== "visible") return false;
    }
    return el.getBoundingClientRect().right > width + 1 && getComputedStyle(el).position !== "fixed";
}).slice(0, 5).map((el) => `${el.tagName} ${el.className} ${Math.round(el.getBoundingClientRect().right)}`)"""


async def check_narrow(page: Page, where: str) -> None:
    assert await page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"], (
        where,
        await page.evaluate(WIDER, NARROW["width"]),
    )


async def test_pages_with_nothing_to_show_say_what_will_be_there(
    site: Site, owner: User, bob: User, organization: Organization
) -> None:
    page = await site.open(bob, "/o/acme/connections/", ready=False)
    await expect(page.locator("main")).to_contain_text("There is no server for you yet")
    await expect(page.get_by_role("link", name="Open the administration")).to_have_count(0)
    await page.goto(site.url + "/o/acme/usage/")
    await expect(page.locator("main")).to_contain_text("You have used nothing in this time.")
    await expect(page.locator("main")).to_contain_text("No budget bounds what you may use here.")
    await expect(page.get_by_role("heading", name="Everybody's")).to_have_count(0)
    await page.goto(site.url + "/o/acme/usage/?from=never&to=2020-13-45")  # an address that somebody has mistyped
    await expect(page.get_by_role("heading", name="Usage")).to_be_visible()
    await expect(page.locator("main")).to_contain_text("You have used nothing in this time.")
    theirs = await site.open(owner, "/o/acme/connections/", ready=False)
    await theirs.get_by_role("link", name="Open the administration").click()
    assert "/admin/mcpservers/mcpserver/" in theirs.url


async def test_approvals_load_in_sight_and_a_failure_offers_another_try(site: Site, owner: User) -> None:
    context = await site.context(owner)
    gate, broken = asyncio.Event(), True

    async def held(route: Any) -> None:
        await gate.wait()
        if broken:
            await route.abort()
        else:
            await route.continue_()

    await context.route("**/api/v1/approvals?*", held)
    await context.route_web_socket("**/ws/**", lambda socket: None)  # at its greeting the page looks again by itself
    page = await site.tab(context, "/o/acme/approvals/", ready=False)
    await expect(page.locator("#approvals")).to_have_text("Loading")
    gate.set()
    await expect(page.get_by_role("alert")).to_contain_text("The server could not be reached.")
    broken = False
    await page.get_by_role("button", name="Try again").click()
    await expect(page.locator("#approvals")).to_contain_text("Nothing waits for you.")
    await expect(page.get_by_role("alert")).to_have_count(0)


async def test_no_page_is_wider_than_a_narrow_screen(
    site: Site, owner: User, agent: Agent, demo_server: MCPServer, endpoint: Endpoint
) -> None:
    def prepare() -> None:
        User.objects.filter(pk=owner.pk).update(is_superuser=True, is_staff=True)
        demo_server.title = "Demo tools of the whole department"
        demo_server.description = "https://tools.example.org/" + "a" * 120
        demo_server.save()
        AgentServer.objects.create(agent=agent, server=demo_server)

    await in_rows(prepare)
    await catalogue.refresh(demo_server.pk)
    endpoint.script(calls(NOTE), text("Noted."))
    page = await site.open(owner, viewport=NARROW, has_touch=True, is_mobile=True)
    await check_narrow(page, "a new chat")
    await send(page, "note this")
    await expect(page.locator(".approval")).to_be_visible()
    await check_narrow(page, "a chat that asks")
    for path, words in (("approvals", "Allow once"), ("connections", "Demo tools of"), ("usage", "Everybody's")):
        await page.goto(f"{site.url}/o/acme/{path}/")
        await expect(page.locator("main")).to_contain_text(words)
        await check_narrow(page, path)
    await page.goto(site.url + reverse("admin:mcpservers_mcpserver_changelist"))
    await check_narrow(page, "the servers")
    for name in ("change", "pins", "health", "oauth"):
        await page.goto(site.url + reverse(f"admin:mcpservers_mcpserver_{name}", args=[demo_server.pk]))
        await expect(page.locator("h1").first).to_be_visible()
        await check_narrow(page, name)


async def test_a_model_that_is_added_to_an_endpoint_is_open_to_be_filled_in(site: Site, owner: User) -> None:
    page = await site.open(owner, reverse("admin:agents_modelendpoint_add"), ready=False)
    await page.get_by_text("Add another Model profile").click()
    await page.fill("[name=models-0-slug]", "small")
    await page.get_by_text("Add another Model profile").click()
    await page.fill("[name=models-1-slug]", "large")
    await expect(page.locator("[name=models-0-slug]")).to_be_visible()
