"""A hostile MCP server: whatever it says, wherever it is shown, nothing runs, nothing is fetched, nothing is hidden."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from django.urls import reverse
from playwright.async_api import Page, expect

from accounts.models import AuditRecord, Organization, User
from agents.models import Agent, AgentServer
from chatui.rows import in_rows
from mcpservers import catalogue
from mcpservers.models import MCPServer, ServerGrant
from mcpservers.naming import exposed_name
from mcpservers.serverlog import ServerLog, path_of
from tests.e2e.site import Site
from tests.e2e.test_composer import send
from tests.fakes.endpoint import Endpoint, calls, text
from tests.fakes.hostile_mcp import (
    ASKS,
    BREAKS,
    FAILS,
    FORM,
    LOGGED,
    OPENS,
    READS,
    UNSEEN,
    HostileMCPServer,
    attack,
    log_lines,
)
from tests.fakes.mcp_server import Exchange
from tests.fakes.own_servers import own, within_reach  # noqa: F401  # a fixture

pytestmark = [pytest.mark.e2e, pytest.mark.deadline(240)]  # a browser on a loaded machine
FOUND = """(unseen) => {
    const all = [...document.querySelectorAll("*")];
    const written = ["title", "alt", "aria-label", "aria-description", "placeholder", "label"];
    const texts = [document.body.innerText, ...all.flatMap((el) => written.map((name) => el.getAttribute(name) || ""))];
    const shown = texts.filter((text) => [...unseen].some((sign) => text.includes(sign)) || text.includes("\\x1b"));
    const leads = (el) => el.matches("a[href]") && !["http:", "https:", "mailto:"].includes(el.protocol);
    const loads = (el) => /^(IMG|IFRAME|OBJECT|EMBED|VIDEO|AUDIO|SOURCE|IMAGE|LINK|BASE|FORM)$/i.test(el.tagName)
        && ["src", "href", "data", "action"].some((name) => (el.getAttribute(name) || "").includes("evil.example"));
    return {
        hit: window.hit ?? null,
        pwned: document.querySelectorAll(".pwned").length,
        handlers: all.filter((el) => ["onerror", "onload", "onclick"].some((name) => el.hasAttribute(name))).length,
        leads: all.filter(leads).map((el) => el.outerHTML.slice(0, 200)),
        loads: all.filter(loads).map((el) => el.outerHTML.slice(0, 200)),
        unseen: shown.map((text) => {
            const at = [...unseen, "\\x1b"].map((sign) => text.indexOf(sign)).filter((place) => place >= 0)[0];
            return JSON.stringify(text.slice(Math.max(0, at - 60), at + 20));
        }),
    };
}"""
NOTHING: dict[str, Any] = {"hit": None, "pwned": 0, "handlers": 0, "leads": [], "loads": [], "unseen": []}


async def check(page: Page, where: str) -> None:
    assert await page.evaluate(FOUND, UNSEEN) == NOTHING, where


@pytest_asyncio.fixture
async def hostile() -> AsyncIterator[HostileMCPServer]:
    async with HostileMCPServer() as server:
        yield server
        await catalogue.aclose()


@pytest.fixture
def server(organization: Organization, agent: Agent, hostile: HostileMCPServer) -> MCPServer:
    made: MCPServer = MCPServer.objects.create(
        organization=organization,
        slug="trap",
        title="Trap",
        url=hostile.url,
        use_instructions=True,
        rules=[{"tool": "asks*", "do": "ask"}, {"tool": "*", "do": "allow"}],
    )
    ServerGrant.objects.create(server=made, whole_organization=True)
    AgentServer.objects.create(agent=agent, server=made)
    return made


def call_of(*tools: str) -> Any:
    return calls(*((exposed_name("trap", tool), {"text": "hello"}) for tool in tools))


def without_choices(value: Any) -> Any:
    """Without the values that a schema allows, which are what they are."""
    if isinstance(value, dict):
        return {name: without_choices(item) for name, item in value.items() if name != "enum"}
    return [without_choices(item) for item in value] if isinstance(value, list) else value


async def failing(exchange: Exchange) -> None:
    await exchange.error(-32000, attack("connect-error") + LOGGED)


async def opened(page: Page) -> None:
    """Every call's details are open."""
    closed = page.locator(".call-open[aria-expanded=false]")
    while await closed.count():
        await closed.first.click()


async def test_nothing_that_it_says_does_anything_in_a_chat(
    site: Site, owner: User, server: MCPServer, endpoint: Endpoint
) -> None:
    page = await site.open(owner)
    endpoint.script(call_of(READS, FAILS, BREAKS), text("Three calls."))
    await send(page, "go")
    await expect(page.locator(".answer")).to_contain_text("Three calls.")
    await expect(page.locator(".call")).to_have_count(3)
    for visit in ("stream", "reload"):
        await opened(page)
        results = page.locator(".call-details .external")
        await expect(results.first).to_contain_text("result-text")
        await expect(results.first.locator(".external-label")).to_contain_text("From Trap, not checked")
        await check(page, visit)
        await page.reload()
        await expect(page.locator(".call")).to_have_count(3)
    told = json.dumps(without_choices(endpoint.requests[0].body), ensure_ascii=False)
    assert "[Trap]" in str(endpoint.requests[0].body["tools"]), "attributed to the model"
    assert "quoted below its name" in str(endpoint.requests[0].messages)
    assert [told[max(0, told.find(sign) - 200) :][:220] for sign in UNSEEN if sign in told] == []
    await page.locator("#composer-text").click()
    endpoint.script(call_of(ASKS), text("Asked."))
    await send(page, "ask")
    card = page.locator(".approval")
    await expect(card).to_contain_text("asks-title")
    await check(page, "approval")
    pending = await site.tab(page.context, "/o/acme/approvals/", ready=False)
    await expect(pending.locator("main")).to_contain_text("asks-title")
    await check(pending, "approvals page")
    await card.get_by_role("button", name="Allow once").click()
    await expect(page.locator(".answer").last).to_contain_text("Asked.")

    for tool, words in ((FORM, "form-message"), (OPENS, "url-message")):
        endpoint.script(call_of(tool), text(f"After {words}."))
        await send(page, "question")
        question = page.locator(".elicitation")
        await expect(question).to_contain_text(words)
        await expect(question.locator(".external-label")).to_contain_text("From Trap")
        await check(page, words)
        await question.get_by_role("button", name="Decline").click()
        await expect(page.locator(".answer").last).to_contain_text(f"After {words}.")

    await page.get_by_role("button", name="Tools: 1 tool server on").click()
    await page.get_by_role("button", name="Show tools").click()
    await expect(page.locator(".tools li")).to_have_count(6)
    await check(page, "picker")
    linking = await site.tab(page.context, "/o/acme/connections/", ready=False)
    await expect(linking.locator("main")).to_contain_text("Trap")
    await check(linking, "connections")


async def test_nothing_that_it_says_does_anything_in_the_admin(
    site: Site, owner: User, agent: Agent, server: MCPServer, organization: Organization, hostile: HostileMCPServer
) -> None:
    await in_rows(User.objects.filter(pk=owner.pk).update, is_superuser=True, is_staff=True)
    await catalogue.refresh(server.pk)
    local = await in_rows(
        lambda: MCPServer.objects.create(
            organization=organization, slug="local", title="Local", transport="stdio", command="python", url=""
        )
    )
    ServerLog(path_of(local.pk)).write(log_lines())

    def address(name: str, of: MCPServer = server) -> str:
        return reverse(f"admin:mcpservers_mcpserver_{name}", args=[of.pk])

    page = await site.open(owner, address("change"), ready=False)
    await expect(page.locator("table")).to_contain_text(["reads-description"])
    await check(page, "server")
    await page.get_by_role("button", name="Test connection").click()
    await expect(page.locator("table").first).to_contain_text("It calls itself")
    await check(page, "test")
    for name, words in (("pins", "reads-description"), ("health", "Health"), ("log", "stderr")):
        await page.goto(site.url + address(name, local if name == "log" else server) + "?show=all")
        await expect(page.locator("#main, main, body").first).to_contain_text(words)
        await check(page, name)
    await page.goto(site.url + address("change"))
    for tool in (READS, FAILS, BREAKS):
        await page.goto(f"{site.url}{address('try')}?{urlencode({'tool': tool})}")
        await check(page, "try")
        await page.get_by_role("button", name="Call it").click()
        await expect(page.locator("section pre")).to_be_visible()
        await check(page, f"tried {tool[:6]}")
    for path in ("connections/", "mcpservers/mcpserver/", "accounts/auditrecord/"):
        await page.goto(f"{site.url}/admin/{path}")
        await check(page, path)
    entries = AuditRecord.objects.as_system().filter(action__in=["tool.call", "pin.accepted"]).order_by("action")
    for entry in await in_rows(lambda: list(entries.values_list("pk", flat=True))):
        await page.goto(f"{site.url}/admin/accounts/auditrecord/{entry}/change/")
        await check(page, "audit entry")
    whom = {"organization": organization.pk, "user": owner.pk, "agent": agent.pk}
    shown = (("preview", {}, "reads"), ("why", {"server": server.pk, "tool": READS}, "It can be used"))
    for name, more, words in shown:
        await page.goto(f"{site.url}{reverse(f'admin:{name}')}?{urlencode(whom | more)}")
        await expect(page.get_by_text(words).first).to_be_visible()
        await check(page, name)
    await page.goto(site.url + "/o/acme/usage/?by=tool")
    await expect(page.locator("main")).to_contain_text("trap › reads")
    await check(page, "usage")

    hostile.on("server/discover", failing)
    hostile.on("initialize", failing)
    await page.goto(site.url + address("change"))
    await page.get_by_role("button", name="Test connection").click()
    await expect(page.get_by_text("It did not work.")).to_be_visible()
    await check(page, "failed test")
    for name in ("change", "health"):
        await page.goto(site.url + address(name))
        await check(page, f"{name} after a failure")


async def test_nothing_that_it_says_does_anything_where_people_check_servers_of_their_own(
    site: Site,
    owner: User,
    organization: Organization,
    hostile: HostileMCPServer,
    within_reach: None,  # noqa: F811  # the fixture
) -> None:
    await in_rows(own, owner, organization, hostile.url)
    page = await site.open(owner, "/o/acme/connections/", ready=False)
    dialog = page.get_by_role("dialog", name="Check My notes")
    for visit in ("first", "changed", "failed"):
        await page.get_by_role("button", name="Check My notes").click()
        if visit == "failed":
            await expect(dialog.locator(".check-bad")).to_be_visible()
        else:
            await expect(dialog.locator(".check-ok")).to_contain_text("6 tools")
            await expect(dialog).to_contain_text("reads-description")
        if visit == "changed":
            await expect(dialog.locator(".waiting")).to_contain_text("is not what you accepted any more")
        await check(page, visit)
        await dialog.get_by_role("button", name="Done").click()
        hostile.tools[0] |= {"description": attack("reads-description-other")}
        if visit == "changed":
            hostile.on("server/discover", failing)
            hostile.on("initialize", failing)
