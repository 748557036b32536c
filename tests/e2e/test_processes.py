"""A browser before servers that are processes of their own: one that dies in mid answer, and the whole demo."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.demo.test_running import demo, free_port
from tests.fakes.endpoint import Endpoint, text
from tests.whole.conftest import make_site, migrated
from tests.whole.site import Site

__all__ = ["make_site", "migrated"]

pytestmark = [pytest.mark.e2e, pytest.mark.deadline(180)]


async def test_an_answer_whose_server_dies_is_kept_marked_and_continued(
    browser: Browser, endpoint: Endpoint, make_site: Callable[..., Site]
) -> None:
    endpoint.script(text("This was shown", asyncio.Event()), text(" and this came after."))
    site = await asyncio.to_thread(make_site, endpoint.base_url, server="uvicorn")
    await asyncio.to_thread(site.start)
    link = (await asyncio.to_thread(site.manage, "signin_link", "alice")).stdout.strip()
    page = await browser.new_page()
    page.set_default_timeout(15_000)
    await page.goto(link)
    await page.get_by_role("button", name="Sign in").click()
    await page.locator("#composer-text").fill("go on")
    await page.keyboard.press("Enter")
    answer = page.locator(".answer")
    await expect(answer).to_contain_text("This was shown")
    await asyncio.to_thread(site.until_stored, "This was shown")
    await asyncio.to_thread(site.kill)
    await page.locator("#composer-text").fill("a draft meanwhile")
    await expect(page.locator(".banner")).to_contain_text("Reconnecting")
    await expect(answer).to_contain_text("This was shown")
    await asyncio.to_thread(site.start)
    retry = page.get_by_role("button", name="Try now")
    if await retry.is_visible():
        await retry.click()
    await expect(page.locator(".ending.interrupted")).to_be_visible()
    await expect(answer).to_contain_text("This was shown")
    await page.get_by_role("button", name="Continue").click()
    await expect(answer).to_contain_text("This was shown and this came after.")
    await expect(page.locator(".ending")).to_have_count(0)
    await expect(page.locator("#composer-text")).to_have_value("a draft meanwhile")
    await page.context.close()


async def test_the_demo_answers_a_suggested_question_with_its_tools(browser: Browser, tmp_path: Path) -> None:
    with ExitStack() as stack:
        running = await asyncio.to_thread(stack.enter_context, demo(tmp_path / "var", free_port()))
        page = await browser.new_page()
        page.set_default_timeout(15_000)
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        await page.goto(running.link)
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_role("button", name="What time is it in Shanghai and in New York?").click()
        await expect(page.locator(".calls-summary")).to_contain_text("2 tool calls · Café tools")
        line = page.locator(".call").first.locator(".call-open")
        if not await line.count():
            await page.locator(".calls-summary").click()
        await expect(page.locator(".call-state")).to_have_text(["Done", "Done"])
        await line.click()
        await expect(page.locator(".call-details").first).to_contain_text("Asia/Shanghai")
        await expect(page.locator(".answer")).to_contain_text(re.compile(r"Shanghai.*\d\d:\d\d", re.DOTALL))
        await expect(page.locator("#polite")).to_have_text("The answer is complete.")
        assert errors == []
        await page.context.close()
        assert (await asyncio.to_thread(running.stop)).strip() == ""
