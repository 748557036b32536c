"""What a person sees at once: a field that fits its text, their words before any answer, how the line stands."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page, expect

from accounts.models import User
from tests.e2e.site import Site
from tests.e2e.test_composer import send
from tests.fakes.endpoint import Endpoint, text

pytestmark = [pytest.mark.e2e, pytest.mark.deadline(90)]  # a browser on a loaded machine
FRAMES = 12  # of 60 a second: 200 ms where nothing else is done, and no clock of a busy machine

# Press the button and count the frames until the own words, their mark, and what is being done are all shown.
PRESS = """() => new Promise((done) => {
    document.querySelector("#composer-send button").click();
    let frames = 0;
    const look = () => {
        frames += 1;
        const shown = document.querySelector(".bubble") && document.querySelector(".question .sent-state")
            && document.querySelector(".answer .status")?.innerText.trim() && document.querySelector(".send.stop");
        if (shown || frames > 600) done(frames);
        else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
})"""


async def height(page: Page) -> float:
    return float(await page.locator("#composer-text").evaluate("el => el.getBoundingClientRect().height"))


async def test_the_field_grows_with_its_text_up_to_a_part_of_the_window_and_shrinks_after_sending(
    site: Site, owner: User, endpoint: Endpoint
) -> None:
    endpoint.script(text("Read."))
    page = await site.open(owner)
    field = page.locator("#composer-text")
    single = await height(page)
    await field.fill("\n".join("line" for _ in range(6)))
    grown = await height(page)
    assert grown > single + 50
    await field.fill("\n".join("line" for _ in range(90)))
    assert grown < await height(page) <= 0.4 * 800 + 1  # the window is 800 pixels high
    assert await field.evaluate("el => el.scrollHeight > el.clientHeight")
    await expect(page.get_by_role("button", name="Send")).to_be_in_viewport()
    await page.keyboard.press("Enter")
    await expect(page.locator(".answer .markdown")).to_have_text("Read.")
    assert await height(page) == single


async def test_a_click_shows_its_effect_before_anything_has_come_over_the_network(site: Site, owner: User) -> None:
    context = await site.context(owner)

    def held(socket: Any) -> None:
        """What the page sends never arrives; what the server says does."""
        server = socket.connect_to_server()
        socket.on_message(lambda _: None)
        server.on_message(socket.send)

    await context.route_web_socket("**/ws/**", held)
    page = await site.tab(context)
    await page.locator("#composer-text").fill("are you quick?")
    assert await page.evaluate(PRESS) <= FRAMES
    await expect(page.locator(".bubble")).to_have_text("are you quick?")
    await expect(page.locator(".question .sent-state")).to_have_text("Sending")
    await expect(page.locator("#composer-text")).to_have_value("")
    await page.locator("#composer-text").fill("the next thought")  # one can go on writing
    await page.get_by_role("button", name="Stop").click()
    await expect(page.get_by_role("button", name="Stopping")).to_be_visible()


async def test_offline_is_said_quietly_the_draft_stays_and_what_was_sent_goes_out_once(
    site: Site, owner: User, endpoint: Endpoint
) -> None:
    endpoint.script(text("Back again."))
    context = await site.context(owner)
    page = await site.tab(context)
    await context.set_offline(True)
    await send(page, "sent without a line")
    await expect(page.locator(".bubble")).to_have_text("sent without a line")
    await expect(page.locator(".composer-notice")).to_contain_text("as soon as there is a connection")
    await page.locator("#composer-text").fill("a draft")
    banner = page.locator(".banner")
    await expect(banner).to_have_text("You are offline. What you write is kept. Try now", use_inner_text=True)
    await expect(banner).to_have_attribute("role", "status")
    await banner.get_by_role("button", name="Try now").click()
    await expect(banner).to_be_visible()
    await context.set_offline(False)
    await expect(page.locator(".answer .markdown")).to_have_text("Back again.")
    await expect(banner).to_have_count(0)
    await expect(page.locator("#composer-text")).to_have_value("a draft")
    assert len(endpoint.requests) == 1
