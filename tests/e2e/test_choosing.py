"""Choosing who answers and with which tools; and what is shown where something cannot be had."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import expect

from accounts.models import Organization, User
from agents.models import Agent, AgentServer
from chatui.rows import in_rows
from conversations.models import Conversation
from mcpservers.models import MCPServer
from tests.conversations.api.conftest import make_conversation, make_exchange
from tests.e2e.site import Site
from tests.e2e.test_composer import send
from tests.fakes.endpoint import Endpoint, text

pytestmark = [pytest.mark.e2e, pytest.mark.deadline(90)]  # a browser on a loaded machine


async def test_another_agent_is_chosen_by_keyboard_and_in_a_chat_it_begins_a_new_one(
    site: Site, owner: User, organization: Organization, endpoint: Endpoint, make_agent: Callable[..., Agent]
) -> None:
    await in_rows(lambda: make_agent(organization, "poet", base_url=endpoint.base_url, instructions="You rhyme."))
    endpoint.script(text("In rhymes."), text("In prose."))
    page = await site.open(owner)
    panel = page.get_by_role("group", name="Choose an agent")
    await page.get_by_role("button", name="Agent: Helper").press("Enter")
    await expect(panel.get_by_role("button", name="Helper")).to_be_focused()
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.locator(".hero-title")).to_have_text("Poet")
    await expect(page.locator("#composer-text")).to_be_focused()
    await send(page, "tea?")
    await expect(page.locator(".answer .markdown")).to_have_text("In rhymes.")
    assert "You rhyme." in str(endpoint.last.messages[0]["content"])

    await page.get_by_role("button", name="Agent: Poet").press("Enter")
    await expect(panel).to_contain_text("Another agent starts a new chat.")
    await panel.get_by_role("button", name="Helper").press("Enter")
    await expect(page.locator("h1")).to_have_text("New chat")
    await send(page, "tea?")
    await expect(page.locator(".answer .markdown")).to_have_text("In prose.")
    assert "You rhyme." not in str(endpoint.last.messages[0]["content"])
    await expect(page.locator(".chat-link")).to_have_count(2)


async def test_a_server_that_does_not_work_says_so_in_the_picker_and_in_the_chat_with_a_way_out(
    site: Site, owner: User, bob: User, agent: Agent, demo_server: MCPServer, endpoint: Endpoint
) -> None:
    def prepare() -> None:
        demo_server.transport, demo_server.command = "stdio", "no-such-program"
        demo_server.save()
        AgentServer.objects.create(agent=agent, server=demo_server)

    await in_rows(prepare)
    endpoint.script(text("Without it."), text("As before."))
    for person, way_out in ((owner, "Test it in the administration"), (bob, "tell an administrator")):
        page = await site.open(person)
        await page.get_by_role("button", name="Tools: 1 tool server on").click()
        await expect(page.locator(".server-state")).to_have_text("Not working")
        await expect(page.locator(".server-message")).to_contain_text(way_out)
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("button", name="Tools: 1 tool server on, one needs attention")).to_be_focused()
    await send(page, "hello")
    await expect(page.locator(".answer .notice")).to_contain_text("Demo tools")
    await expect(page.locator(".answer .markdown")).to_have_text("Without it.")
    await send(page, "and now?")
    await expect(page.locator(".answer .markdown").last).to_have_text("As before.")


async def test_what_could_not_be_loaded_says_so_and_is_had_by_trying_again(
    site: Site, owner: User, agent: Agent
) -> None:
    def prepare() -> Conversation:
        chat = make_conversation(owner, agent, title="A chat")
        chat.current_leaf = make_exchange(chat, "Tea?", "Tea.")[1]
        chat.save()
        return chat

    chat = await in_rows(prepare)
    context = await site.context(owner)
    broken = True

    async def flaky(route: Any) -> None:
        await (route.abort() if broken else route.continue_())

    for path in ("agents", "conversations", f"conversations/{chat.pk}/messages"):
        await context.route(f"**/api/v1/{path}?*", flaky)
    page = await site.tab(context, f"/o/acme/c/{chat.pk}/", ready=False)
    hero = page.locator(".hero")
    await expect(hero).to_contain_text("This chat could not be loaded")
    await expect(hero).to_contain_text("The server could not be reached.")
    remark = page.locator(".chats-remark")
    await expect(remark).to_contain_text("The chats could not be loaded.")
    broken = False
    await hero.get_by_role("button", name="Try again").click()
    await expect(page.locator(".bubble")).to_have_text("Tea?")
    await remark.get_by_role("button", name="Try again").click()
    await expect(page.locator(".chat-title")).to_have_text("A chat")
    await page.get_by_role("link", name="New chat").click()
    await expect(hero).to_contain_text("The agents could not be loaded")
    await hero.get_by_role("button", name="Try again").click()
    await expect(page.locator(".hero-title")).to_have_text("Helper")


async def test_what_trying_again_does_not_cure_is_said_with_the_way_on(site: Site, owner: User) -> None:
    context = await site.context(owner)
    code = 4403
    await context.route_web_socket("**/ws/**", lambda socket: socket.close(code=code))
    page = await site.tab(context)
    banner = page.get_by_role("alert")
    await expect(banner).to_contain_text("You are no longer a member of this organization.")
    await expect(banner.get_by_role("link", name="Go to your chats")).to_have_attribute("href", "/")
    await page.locator("#composer-text").fill("a draft")
    code = 4409
    await page.reload()
    await expect(banner).to_contain_text("There is a new version of this page.")
    await banner.get_by_role("link", name="Load it").click()
    await expect(page.locator("#composer-text")).to_have_value("a draft")


async def test_a_message_above_a_mebibyte_stays_with_the_reason_and_the_next_one_is_answered(
    site: Site, owner: User, endpoint: Endpoint
) -> None:
    endpoint.script(text("Read."))
    page = await site.open(owner)
    field = page.locator("#composer-text")
    # The second is less than a mebibyte, but not as JSON.
    for character, length, words in (("ä", 2**19 + 1, "longer than 1 MiB"), ("\u0001", 2**20 - 9, "that is no text")):
        await field.evaluate(
            """(el, [character, length]) => {
            el.value = character.repeat(length);
            el.dispatchEvent(new Event("input", {bubbles: true}));
        }""",
            [character, length],
        )
        await field.press("Enter")
        await expect(page.locator(".composer-notice")).to_contain_text(words)
        await expect(page.locator(".composer-notice")).to_contain_text("Attach it as a file")
        await expect(page.locator(".question")).to_have_count(0)
        assert await field.evaluate("el => el.value.length") == length
    await send(page, "short")
    await expect(page.locator(".answer .markdown")).to_have_text("Read.")
    await expect(page.locator(".composer-notice")).to_have_count(0)
