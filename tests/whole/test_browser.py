"""A browser before a server that dies in mid answer and is started again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from playwright.async_api import Browser, expect

from tests.e2e.site import browser
from tests.fakes.endpoint import Endpoint, text
from tests.whole.site import Site

__all__ = ["browser"]

pytestmark = [pytest.mark.e2e, pytest.mark.deadline(180)]  # servers start and are killed as processes


async def test_an_answer_whose_server_dies_is_kept_marked_and_continued(
    browser: Browser, endpoint: Endpoint, make_site: Callable[..., Site]
) -> None:
    endpoint.script(text("This was shown", asyncio.Event()), text(" and this came after."))
    site = await asyncio.to_thread(make_site, endpoint.base_url, server="uvicorn")
    await asyncio.to_thread(site.start)
    page = await browser.new_page()
    page.set_default_timeout(15_000)
    await page.goto(site.url + "/accounts/login/")
    await page.locator("[name=login]").fill("alice")
    await page.locator("[name=password]").fill("correct horse")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#composer-send button[type=submit]")  # before, Enter is a line break
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
