"""Getting about: sidebar, addresses, other people's chats, themes, drawer, keyboard."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.async_api import expect

from accounts.models import Organization, User
from agents.models import Agent
from chatui.rows import in_rows
from conversations.models import Conversation, Message
from tests.e2e.site import Site
from tests.e2e.test_composer import send
from tests.fakes.endpoint import Endpoint

pytestmark = [pytest.mark.e2e, pytest.mark.deadline(120)]  # a browser on a loaded machine


def chats(owner: User, agent: Agent, *titles: str) -> list[Conversation]:
    now = timezone.now()
    return [
        Conversation.objects.create(
            organization=agent.organization, owner=owner, agent=agent, title=title, active_at=now - timedelta(days=days)
        )
        for days, title in enumerate(titles)
    ]


async def test_chats_are_grouped_searched_renamed_pinned_archived_and_deleted_with_a_way_back(
    site: Site,
    owner: User,
    agent: Agent,
) -> None:
    await in_rows(chats, owner, agent, "Tea prices", "Coffee prices", "小红书 笔记")
    page = await site.open(owner)
    await expect(page.locator(".chats-label")).to_have_text(["Today", "Yesterday", "Previous 7 days"])

    await page.get_by_role("searchbox", name="Search chats").fill("红书")
    await expect(page.locator(".chat-title")).to_have_text(["小红书 笔记"])
    await page.keyboard.press("Escape")
    await expect(page.locator(".chat-title")).to_have_count(3)

    async def act(chat: str, what: str) -> None:
        await page.locator(".chat-row", has_text=chat).hover()
        await page.get_by_role("button", name=f"Actions for {chat}").click()
        await page.get_by_role("menuitem", name=what).click()

    await act("Coffee prices", "Rename")
    await page.get_by_label("New title").fill("Coffee, black")
    await page.keyboard.press("Enter")
    await expect(page.locator(".chat-title").nth(1)).to_have_text("Coffee, black")
    await act("Coffee, black", "Pin")
    await expect(page.locator(".chats-label").first).to_have_text("Pinned")
    await act("Tea prices", "Delete")
    await expect(page.locator(".chat-title")).to_have_count(2)
    await page.get_by_role("button", name="Undo").click()
    await expect(page.locator(".chat-title")).to_have_count(3)
    await act("Tea prices", "Archive")
    await expect(page.locator(".chat-title")).to_have_count(2)
    await page.reload()
    await expect(page.locator(".chat-title")).to_have_text(["Coffee, black", "小红书 笔记"])
    await page.locator(".user-button").click()
    await page.get_by_role("menuitem", name="Archived chats").click()
    await expect(page.locator(".chat-title")).to_have_text(["Tea prices"])


async def test_each_chat_has_an_address_and_back_and_forward_work(
    site: Site,
    owner: User,
    agent: Agent,
) -> None:
    first, second = await in_rows(chats, owner, agent, "First", "Second")
    page = await site.open(owner)
    await page.get_by_role("link", name="First").click()
    await expect(page.locator("h1")).to_have_text("First")
    assert page.url.endswith(f"/o/acme/c/{first.pk}/")
    await page.get_by_role("link", name="Second").click()
    await expect(page.locator("h1")).to_have_text("Second")
    assert await page.evaluate("document.activeElement.id") == "composer-text"
    await page.go_back()
    await expect(page.locator("h1")).to_have_text("First")
    await page.go_forward()
    await expect(page.locator("h1")).to_have_text("Second")
    assert page.url.endswith(f"/o/acme/c/{second.pk}/")
    await expect(page.locator(".chat-link[aria-current=page]")).to_have_text("Second")


async def test_a_title_that_changes_elsewhere_changes_in_every_tab(
    site: Site,
    owner: User,
    agent: Agent,
) -> None:
    (chat,) = await in_rows(chats, owner, agent, "Old title")
    context = await site.context(owner)
    page = await site.tab(context, f"/o/acme/c/{chat.pk}/", ready=False)
    other = await site.tab(context)
    await expect(page.locator("h1")).to_have_text("Old title")
    await other.locator(".chat-row").hover()
    await other.get_by_role("button", name="Actions for Old title").click()
    await other.get_by_role("menuitem", name="Rename").click()
    await other.get_by_label("New title").fill("New title")
    await other.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("New title")
    await expect(page.locator(".chat-title")).to_have_text("New title")


async def test_a_chat_of_somebody_else_is_not_there(
    site: Site,
    owner: User,
    bob: User,
    agent: Agent,
) -> None:
    (chat,) = await in_rows(chats, owner, agent, "Secret plans")
    context = await site.context(bob)
    page = await context.new_page()
    response = await page.goto(f"{site.url}/o/acme/c/{chat.pk}/")
    assert response is not None
    assert response.status == 404
    assert "Secret" not in await page.content()


async def test_the_chosen_theme_stands_before_the_first_paint(site: Site, owner: User) -> None:
    context = await site.context(owner, color_scheme="light")
    page = await site.tab(context)
    await page.locator(".user-button").click()
    await page.get_by_role("menuitem", name="Settings").click()
    await page.get_by_label("Dark").check()
    dark = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    await context.route("**/js/app.js", lambda route: route.abort())
    await page.goto(site.url + "/o/acme/", wait_until="domcontentloaded")
    assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
    assert await page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"


async def test_on_a_narrow_screen_the_sidebar_is_a_drawer_that_holds_the_focus(
    site: Site,
    owner: User,
    agent: Agent,
) -> None:
    await in_rows(chats, owner, agent, "A chat")
    page = await site.open(owner, viewport={"width": 375, "height": 700})
    await expect(page.locator(".chat-link")).to_be_hidden()
    opener = page.get_by_role("button", name="Show the sidebar")
    await opener.click()
    await expect(page.locator(".chat-link")).to_be_visible()
    for _ in range(12):
        await page.keyboard.press("Tab")
        assert await page.evaluate(
            "document.activeElement === document.body || Boolean(document.activeElement.closest('#sidebar'))"
        )
    await page.keyboard.press("Escape")
    await expect(page.locator(".chat-link")).to_be_hidden()
    await expect(opener).to_be_focused()
    await opener.click()
    await page.locator(".chat-link").click()
    await expect(page.locator("h1")).to_have_text("A chat")
    await expect(page.locator(".sidebar")).to_be_hidden()


async def test_keys_lead_everywhere(site: Site, owner: User, agent: Agent, endpoint: Endpoint) -> None:
    await in_rows(chats, owner, agent, "A chat")
    page = await site.open(owner)
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("searchbox", name="Search chats")).to_be_focused()
    await page.keyboard.press("ArrowDown")
    await expect(page.locator(".chat-link")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("A chat")
    await page.keyboard.press("Control+Shift+O")
    await expect(page.locator("h1")).to_have_text("New chat")
    await page.keyboard.press("Control+Shift+S")
    await expect(page.locator(".sidebar")).to_be_hidden()
    await page.reload()
    await expect(page.locator(".sidebar")).to_be_hidden()
    await page.wait_for_selector("#composer-send button[type=submit]")  # before, no key means anything
    await page.keyboard.press("Control+/")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    await expect(dialog).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    await page.keyboard.press("Shift+Escape")
    await expect(page.locator("#composer-text")).to_be_focused()


async def test_signing_out_elsewhere_is_said_and_what_was_written_is_kept(
    site: Site, owner: User, endpoint: Endpoint
) -> None:
    page = await site.open(owner)
    await page.locator("#composer-text").fill("not lost")
    owner.set_password("another one")
    await in_rows(owner.save)
    await page.keyboard.press("Enter")
    await expect(page.locator(".banner")).to_contain_text("You are signed out")
    link = page.locator(".banner a")
    assert str(await link.get_attribute("href")).startswith("/accounts/login/?next=")


async def test_a_thousand_messages_open_at_their_end_and_earlier_ones_come_when_read(
    site: Site,
    owner: User,
    agent: Agent,
) -> None:
    def prepare() -> Conversation:
        (chat,) = chats(owner, agent, "Long")
        parent = None
        made = []
        for number in range(500):
            question = Message(
                conversation=chat, parent=parent, role="user", parts=[{"type": "text", "text": f"Question {number}"}]
            )
            parent = Message(
                conversation=chat,
                parent=question,
                role="assistant",
                parts=[{"type": "text", "text": f"Answer **{number}**\n\n- a\n- b", "round": 1}],
            )
            made += [question, parent]
        Message.objects.bulk_create(made)
        start = timezone.now() - timedelta(hours=1)
        for at, message in enumerate(made):
            message.created_at = start + timedelta(seconds=at)
        Message.objects.bulk_update(made, ["created_at"])
        chat.current_leaf = parent
        chat.save()
        return chat

    chat = await in_rows(prepare)
    page = await site.open(owner, f"/o/acme/c/{chat.pk}/")
    await expect(page.locator(".answer").last).to_contain_text("Answer 499")
    await expect(page.locator(".answer").last).to_be_in_viewport()
    assert await page.locator(".turn").count() < 100
    before = await page.locator(".turn").count()
    await page.mouse.move(700, 300)
    for _ in range(30):
        await page.mouse.wheel(0, -1500)
        if await page.locator(".turn").count() > before:
            break
    assert await page.locator(".turn").count() > before
    await expect(page.locator(".jump-button")).to_be_visible()


async def test_a_person_without_an_agent_is_told_so(
    site: Site, organization: Organization, make_member: Callable[..., User]
) -> None:
    member = await in_rows(make_member, "dora", organization)
    page = await site.open(member, ready=False)
    await expect(page.locator(".hero-title")).to_have_text("There is no agent for you yet")
    await send(page, "hello?")
    await expect(page.locator(".composer-notice")).to_contain_text("There is no agent to ask")
    await expect(page.locator("#composer-text")).to_have_value("hello?")
