"""The composer in a real browser: text before scripts, keys, drafts, failures, files."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from playwright.async_api import Page, expect

from accounts.models import User
from tests.e2e.site import Site
from tests.fakes.endpoint import Endpoint, text

pytestmark = [pytest.mark.e2e, pytest.mark.deadline(90)]  # a browser on a loaded machine


async def send(page: Page, words: str) -> None:
    await page.locator("#composer-text").fill(words)
    await page.keyboard.press("Enter")


async def test_what_is_typed_before_any_script_has_run_is_kept(site: Site, owner: User) -> None:
    context = await site.context(owner)
    gate = asyncio.Event()

    async def held(route: Any) -> None:
        await gate.wait()
        await route.continue_()

    await context.route("**/js/app.js", held)
    page = await context.new_page()
    await page.goto(site.url + "/o/acme/", wait_until="commit")
    await page.locator("#composer-text").press_sequentially("typed early")
    assert await page.locator("#composer-send button").is_disabled()
    gate.set()
    await page.wait_for_selector("#composer-send button[type=submit]")
    assert await page.locator("#composer-text").input_value() == "typed early"
    assert await page.evaluate("document.activeElement.id") == "composer-text"


async def test_enter_sends_once_and_shift_enter_breaks_the_line(site: Site, owner: User, endpoint: Endpoint) -> None:
    endpoint.script(text("Hello."))
    page = await site.open(owner)
    field = page.locator("#composer-text")
    await field.press_sequentially("first")
    await page.keyboard.press("Shift+Enter")
    await field.press_sequentially('second "quoted" a^2 --')
    await page.keyboard.press("Enter")
    await expect(page.locator(".answer .markdown")).to_have_text("Hello.")
    await expect(page.locator(".bubble")).to_have_text('first\nsecond "quoted" a^2 --')
    assert await field.input_value() == ""
    assert len(endpoint.requests) == 1
    assert endpoint.last.messages[-1]["content"] == 'first\nsecond "quoted" a^2 --'


async def test_enter_of_an_input_method_never_sends(site: Site, owner: User) -> None:
    page = await site.open(owner)
    await page.locator("#composer-text").fill("你好")
    press = """options => document.getElementById("composer-text").dispatchEvent(
        new KeyboardEvent("keydown", {key: "Enter", bubbles: true, cancelable: true, ...options}))"""
    assert await page.evaluate(press, {"keyCode": 229}) is True  # not prevented: left to the input method
    assert await page.evaluate(press, {"keyCode": 13, "isComposing": True}) is True
    assert await page.evaluate(press, {"keyCode": 13}) is False
    await expect(page.locator(".bubble")).to_have_count(1)


async def test_a_double_click_sends_once_and_does_not_stop(site: Site, owner: User, endpoint: Endpoint) -> None:
    gate = asyncio.Event()
    endpoint.script(text("Going ", gate, "on."))
    page = await site.open(owner)
    await page.locator("#composer-text").fill("hi")
    await page.get_by_role("button", name="Send").dblclick()
    await expect(page.get_by_role("button", name="Stop")).to_be_visible()
    await expect(page.locator(".answer .markdown")).to_contain_text("Going")
    gate.set()
    await expect(page.locator(".answer .markdown")).to_have_text("Going on.")
    assert len(endpoint.requests) == 1
    await expect(page.locator(".question")).to_have_count(1)


async def test_blank_text_cannot_be_sent_and_the_button_says_why(site: Site, owner: User) -> None:
    page = await site.open(owner)
    button = page.get_by_role("button", name="Send")
    await expect(button).to_have_attribute("aria-disabled", "true")
    await expect(button).to_have_attribute("title", "Write a message first")
    await send(page, "  \n ")
    await expect(page.locator(".question")).to_have_count(0)
    await expect(page.locator(".composer-notice")).to_contain_text("Write something first")


async def test_each_chat_keeps_its_own_draft_through_reload_and_navigation(
    site: Site, owner: User, endpoint: Endpoint
) -> None:
    endpoint.fallback = text("Yes.")
    page = await site.open(owner)
    await send(page, "one")
    await expect(page.locator(".answer .markdown")).to_have_text("Yes.")
    await page.locator("#composer-text").fill("draft of one")
    await page.get_by_role("link", name="New chat").click()
    await expect(page.locator("#composer-text")).to_have_value("")
    await page.locator("#composer-text").fill("draft of a new chat")
    await page.locator(".chat-link").first.click()
    await expect(page.locator("#composer-text")).to_have_value("draft of one")
    await page.reload()
    await expect(page.locator("#composer-text")).to_have_value("draft of one")
    await page.go_back()
    await expect(page.locator("#composer-text")).to_have_value("draft of a new chat")


async def test_while_an_answer_is_written_one_can_type_and_enter_keeps_the_text(
    site: Site, owner: User, endpoint: Endpoint
) -> None:
    gate = asyncio.Event()
    endpoint.script(text("First ", gate, "answer."), text("Second."))
    page = await site.open(owner)
    await send(page, "one")
    await expect(page.locator(".answer .markdown")).to_contain_text("First")
    await send(page, "two")
    await expect(page.locator(".composer-notice")).to_contain_text("still being written")
    await expect(page.locator("#composer-text")).to_have_value("two")
    gate.set()
    await expect(page.locator(".answer .markdown")).to_have_text("First answer.")
    await expect(page.locator(".composer-notice")).to_have_count(0)
    await page.keyboard.press("Enter")
    await expect(page.locator(".answer .markdown").nth(1)).to_have_text("Second.")


async def test_a_refused_message_comes_back_with_the_reason(
    site: Site, owner: User, endpoint: Endpoint, settings: Any
) -> None:
    settings.TURN = {**settings.TURN, "PER_USER": 0}
    page = await site.open(owner)
    await send(page, "too much")
    await expect(page.locator(".composer-notice")).to_contain_text("Too many answers at once")
    await expect(page.locator("#composer-text")).to_have_value("too much")
    await expect(page.locator(".question")).to_have_count(0)
    await page.reload()
    await expect(page.locator("#composer-text")).to_have_value("too much")


async def test_without_a_connection_nothing_is_lost_and_it_goes_out_later(
    site: Site, owner: User, endpoint: Endpoint
) -> None:
    endpoint.script(text("Here I am."))
    context = await site.context(owner)
    sockets: list[Any] = []
    down = False

    async def through(socket: Any) -> None:
        if down:
            await socket.close(code=1011)
            return
        sockets.append(socket)
        socket.connect_to_server()

    await context.route_web_socket("**/ws/**", through)
    page = await site.tab(context)
    down = True
    for socket in sockets:
        await socket.close(code=1011)
    await send(page, "are you there?")
    await expect(page.locator(".bubble")).to_have_text("are you there?")
    await expect(page.locator(".composer-notice")).to_contain_text("as soon as there is a connection")
    await expect(page.locator(".banner")).to_contain_text("Reconnecting")
    await page.reload(wait_until="commit")
    await expect(page.locator(".bubble")).to_have_text("are you there?")
    down = False
    await expect(page.locator(".answer .markdown")).to_have_text("Here I am.", timeout=40_000)
    await expect(page.locator(".question")).to_have_count(1)
    assert len(endpoint.requests) == 1


async def test_a_message_that_waits_for_the_connection_can_be_taken_back(site: Site, owner: User) -> None:
    context = await site.context(owner)
    await context.route_web_socket("**/ws/**", lambda socket: socket.close(code=1011))
    page = await site.tab(context)
    await send(page, "on second thoughts")
    await page.get_by_role("button", name="Take it back").click()
    await expect(page.locator("#composer-text")).to_have_value("on second thoughts")
    await expect(page.locator(".question")).to_have_count(0)


async def test_files_become_chips_and_failures_say_why(site: Site, owner: User, endpoint: Endpoint) -> None:
    endpoint.script(text("I read it."))
    page = await site.open(owner)
    files: list[Any] = [
        {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"the secret word is tea"},
        {"name": "bad.bin", "mimeType": "application/octet-stream", "buffer": b"\x00\x01\x02\xff"},
        {"name": "empty.txt", "mimeType": "text/plain", "buffer": b""},
    ]
    await page.locator("input[type=file]").set_input_files(files)
    await expect(page.locator(".composer-notice")).to_contain_text("“empty.txt” is empty")
    await expect(page.locator(".chip.done")).to_contain_text("notes.txt")
    await expect(page.locator(".chip.failed")).to_contain_text("bad.bin")
    await send(page, "what does it say?")
    await expect(page.locator(".composer-notice")).to_contain_text("was not uploaded")
    await page.get_by_role("button", name="Remove bad.bin").click()
    await page.locator("#composer-text").press("Enter")
    await expect(page.locator(".answer .markdown")).to_have_text("I read it.")
    await expect(page.locator(".question-files .file")).to_contain_text("notes.txt")
    assert "the secret word is tea" in str(endpoint.last.messages[-1]["content"])
    await expect(page.locator(".chip")).to_have_count(0)


async def test_a_long_paste_becomes_a_file_and_can_be_put_back(site: Site, owner: User) -> None:
    page = await site.open(owner)
    await page.locator("#composer-text").focus()
    await page.evaluate("""() => {
        const data = new DataTransfer();
        data.setData("text/plain", "long ".repeat(4000));
        data.setData("text/html", "<h1>long</h1>");
        document.getElementById("composer-text").dispatchEvent(
            new ClipboardEvent("paste", {clipboardData: data, bubbles: true, cancelable: true}));
    }""")
    await expect(page.locator(".chip")).to_contain_text("pasted-text.txt")
    await page.get_by_role("button", name="Put it in the message").click()
    await expect(page.locator(".chip")).to_have_count(0)
    assert len(await page.locator("#composer-text").input_value()) == 20_000


async def test_the_other_send_key_can_be_chosen(site: Site, owner: User, endpoint: Endpoint) -> None:
    endpoint.script(text("Sent."))
    page = await site.open(owner)
    await page.locator(".user-button").click()
    await page.get_by_role("menuitem", name="Settings").click()
    await page.get_by_label("Ctrl+Enter").check()
    await page.keyboard.press("Escape")
    await page.locator("#composer-text").fill("one")
    await page.keyboard.press("Enter")
    assert await page.locator("#composer-text").input_value() == "one\n"
    await page.keyboard.press("Control+Enter")
    await expect(page.locator(".answer .markdown")).to_have_text("Sent.")


async def test_a_message_sent_before_the_agents_are_known_goes_out_when_they_are(
    site: Site, owner: User, endpoint: Endpoint
) -> None:
    endpoint.script(text("Quick."))
    context = await site.context(owner)
    gate = asyncio.Event()

    async def held(route: Any) -> None:
        await gate.wait()
        await route.continue_()

    await context.route("**/api/v1/agents*", held)
    page = await site.tab(context, ready=False)
    await page.wait_for_selector("#composer-send button[type=submit]")
    await send(page, "be quick")
    await expect(page.locator(".composer-notice")).to_contain_text("as soon as the agents are loaded")
    gate.set()
    await expect(page.locator(".answer .markdown")).to_have_text("Quick.")
    await expect(page.locator("#composer-text")).to_have_value("")
