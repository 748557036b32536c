"""The whole demo before a browser, started as `make demo` starts it."""

from __future__ import annotations

import asyncio
import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.demo.test_running import demo, free_port
from tests.e2e.test_composer import send

pytestmark = [pytest.mark.e2e, pytest.mark.deadline(180)]  # a browser on a loaded machine


async def test_the_demo_answers_with_its_tools_and_lets_one_sign_in(browser: Browser, tmp_path: Path) -> None:
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
        await expect(page.locator(".call-state")).to_have_text(["Done", "Done"])
        await line.click()
        await expect(page.locator(".call-details").first).to_contain_text("Asia/Shanghai")
        await expect(page.locator(".answer")).to_contain_text(re.compile(r"Shanghai.*\d\d:\d\d", re.DOTALL))
        await expect(page.locator("#polite")).to_have_text("The answer is complete.")

        await send(page, "What is in my own notes?")
        async with page.expect_popup() as opening:
            await page.locator(".sign-in").get_by_role("link", name="Connect").click()
        window = await opening.value
        await window.get_by_role("button", name="Continue").click()
        await window.get_by_label("Jonas").check()
        await window.get_by_role("button", name="Allow").click()
        await expect(page.locator(".answer").last).to_contain_text("bread knife")
        await expect(page.locator(".sign-in")).to_have_count(0)
        assert errors == []
        await page.context.close()
        assert (await asyncio.to_thread(running.stop)).strip() == ""
