"""Files on their way into a message: dropped, pasted, watched while they are uploaded, taken back, tried again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from playwright.async_api import Page, expect

from accounts.models import User
from tests.e2e.site import Site
from tests.e2e.test_composer import send
from tests.fakes.endpoint import Endpoint, text

pytestmark = [pytest.mark.e2e, pytest.mark.deadline(90)]  # a browser on a loaded machine

# A picture that the page itself paints, handed over as the browser would hand over one of a person.
PICTURE = """async (name) => {
    const canvas = new OffscreenCanvas(40, 30);
    canvas.getContext("2d").fillRect(0, 0, 20, 30);
    const data = new DataTransfer();
    data.items.add(new File([await canvas.convertToBlob()], name, {type: "image/png"}));
    return data;
}"""


async def picture(page: Page, name: str) -> Any:
    return await page.evaluate_handle(PICTURE, name)


async def drop(page: Page, name: str) -> None:
    """Anywhere in the window: here on the log."""
    data = await picture(page, name)
    await page.dispatch_event("#log", "dragenter", {"dataTransfer": data})
    await expect(page.locator("#drop")).to_contain_text("Drop files to attach them")
    await expect(page.locator("#drop")).to_contain_text("at most 10 files, 10 MB each")
    await page.dispatch_event("#log", "drop", {"dataTransfer": data})
    await expect(page.locator("#drop")).to_be_hidden()


async def paste(page: Page, name: str) -> None:
    await page.evaluate(
        """data => document.getElementById("composer-text").dispatchEvent(
            new ClipboardEvent("paste", {clipboardData: data, bubbles: true, cancelable: true}))""",
        await picture(page, name),
    )


async def test_a_dropped_and_a_pasted_picture_are_uploaded_in_sight_taken_back_and_tried_again(
    site: Site, owner: User, endpoint: Endpoint
) -> None:
    endpoint.script(text("I see it."))
    context = await site.context(owner)
    gate, broken, gone = asyncio.Event(), True, asyncio.Event()

    async def held(route: Any) -> None:
        if broken:
            await route.abort()
            return
        await gate.wait()
        await route.continue_()

    await context.route("**/api/v1/attachments?*", held)
    page = await site.tab(context)
    page.on("requestfailed", lambda request: gone.set() if "ERR_ABORTED" in (request.failure or "") else None)

    await drop(page, "dropped.png")
    chip = page.locator(".chip", has_text="dropped.png")
    await expect(chip).to_contain_text("The server could not be reached.")
    await expect(page.locator("#composer-text")).to_be_focused()

    broken = False
    await chip.get_by_role("button", name="Upload dropped.png again").click()
    await expect(chip.get_by_role("progressbar", name="Uploading dropped.png")).to_be_visible()
    await expect(chip.locator(".chip-note")).to_contain_text(" %")
    await paste(page, "pasted.png")
    await expect(page.locator(".chip")).to_have_count(2)
    await page.get_by_role("button", name="Cancel pasted.png").click()
    await expect(page.locator(".chip")).to_have_count(1)
    await gone.wait()  # the upload itself has ended, too

    await send(page, "what is it?")
    await expect(page.locator(".composer-notice")).to_contain_text("still being uploaded")
    gate.set()
    await expect(page.locator(".chip.done img")).to_be_visible()
    await page.locator("#composer-text").press("Enter")
    await expect(page.locator(".answer .markdown")).to_have_text("I see it.")
    await expect(page.locator(".question-files img")).to_have_count(1)
    await expect(page.locator(".chip")).to_have_count(0)
