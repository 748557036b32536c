"""An answer while it is written: shown, followed, stopped, resumed, shared between tabs."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import CDPSession, Page, expect

from accounts.models import User
from conversations import consumers
from tests.e2e.site import Site
from tests.e2e.test_composer import send
from tests.fakes.endpoint import Endpoint, failure, text

pytestmark = [pytest.mark.e2e, pytest.mark.deadline(120)]  # a browser on a loaded machine
LINES = "".join(f"Line {number} of a long answer.\n\n" for number in range(60))

# A finger that draws the text downwards, to what was said before.
TOUCH = """() => {
    const target = document.getElementById("scroller");
    const at = (clientY) => ({touches: [new Touch({identifier: 1, target, clientX: 600, clientY})], bubbles: true});
    target.dispatchEvent(new TouchEvent("touchstart", at(300)));
    target.dispatchEvent(new TouchEvent("touchmove", at(320)));
}"""


async def place(page: Page) -> tuple[int, int]:
    """Where the log is scrolled to, and how far from its end."""
    top, rest = await page.evaluate("""() => {
        const log = document.getElementById("scroller");
        return [log.scrollTop, log.scrollHeight - log.clientHeight - log.scrollTop];
    }""")
    return round(top), round(rest)


async def settled(page: Page) -> tuple[int, int]:
    """The place once the browser's own smooth scrolling has come to rest."""
    now = await place(page)
    while True:
        await page.evaluate("() => new Promise((done) => setTimeout(done, 120))")
        before, now = now, await place(page)
        if before == now:
            return now


async def test_the_question_is_shown_at_once_and_the_answer_as_it_comes(
    site: Site, owner: User, endpoint: Endpoint
) -> None:
    gate = asyncio.Event()
    endpoint.script(text("Once **upon", gate, "** a time.", reasoning="I think."))
    page = await site.open(owner)
    await send(page, "Tell me")
    await expect(page.locator(".bubble")).to_have_text("Tell me")
    await expect(page.locator(".answer .markdown strong")).to_have_text("upon")
    await expect(page.locator(".answer")).to_have_attribute("aria-busy", "true")
    await expect(page.get_by_role("button", name="Stop")).to_be_visible()
    assert (await page.title()).startswith("● ")
    gate.set()
    await expect(page.locator(".answer .markdown")).to_have_text("Once upon a time.")
    await expect(page.locator(".answer")).to_have_attribute("aria-busy", "false")
    await expect(page.get_by_role("button", name="Send")).to_be_visible()
    await expect(page.get_by_role("button", name="Thought for a moment")).to_have_attribute("aria-expanded", "false")
    assert "/o/acme/c/" in page.url
    await expect(page.locator(".chat-link[aria-current=page]")).to_have_text("Tell me")


async def test_stop_keeps_what_was_written_marks_it_and_offers_to_continue(
    site: Site, owner: User, endpoint: Endpoint
) -> None:
    endpoint.script(text("So far, ", asyncio.Event(), "never"), text("so good."))
    page = await site.open(owner)
    await send(page, "go")
    await expect(page.locator(".answer .markdown")).to_contain_text("So far,")
    await page.get_by_role("button", name="Stop").click()
    await expect(page.locator(".ending")).to_contain_text("You stopped this answer")
    await page.reload()
    await expect(page.locator(".ending")).to_contain_text("You stopped this answer")
    await page.get_by_role("button", name="Continue").click()
    await expect(page.locator(".ending")).to_have_count(0)
    await expect(page.locator(".answer")).to_contain_text("so good.")
    await expect(page.locator(".answer")).to_have_count(1)


async def test_any_move_upwards_lets_go_and_the_button_leads_back(site: Site, owner: User, endpoint: Endpoint) -> None:
    gates = [asyncio.Event() for _ in range(4)]
    endpoint.script(
        text(LINES, gates[0], "More.\n\n", gates[1], "Still more.\n\n", gates[2], "And more.\n\n", gates[3], "End.")
    )
    page = await site.open(owner)
    await send(page, "long")
    await expect(page.locator(".answer .markdown")).to_contain_text("Line 59")
    assert (await place(page))[1] <= 1
    await page.mouse.move(600, 300)
    await page.mouse.wheel(0, -40)
    await expect(page.locator(".jump-button")).to_be_visible()
    before = await settled(page)
    gates[0].set()
    await expect(page.locator(".answer .markdown")).to_contain_text("More.")
    assert (await place(page))[0] == before[0]
    await expect(page.locator(".jump-button")).to_contain_text("New content")
    await page.locator(".jump-button").click()
    assert (await place(page))[1] <= 1
    gates[1].set()
    await expect(page.locator(".answer .markdown")).to_contain_text("Still more.")
    assert (await place(page))[1] <= 1
    await page.locator("#scroller").focus()
    await page.keyboard.press("PageUp")
    await expect(page.locator(".jump-button")).to_be_visible()
    before = await settled(page)
    gates[2].set()
    await expect(page.locator(".answer .markdown")).to_contain_text("And more.")
    assert (await place(page))[0] == before[0]
    await page.mouse.wheel(0, 5000)
    await expect(page.locator(".jump-button")).to_have_count(0)
    await page.evaluate("document.getElementById('scroller').scrollTop -= 150")
    await expect(page.locator(".jump-button")).to_be_visible()
    before = await settled(page)
    gates[3].set()
    await expect(page.locator(".answer .markdown")).to_contain_text("End.")
    assert (await place(page))[0] == before[0]
    await page.locator(".jump-button").click()
    await expect(page.locator(".jump-button")).to_have_count(0)
    await page.evaluate(TOUCH)
    await expect(page.locator(".jump-button")).to_be_visible()


async def test_a_lost_connection_in_mid_stream_leaves_no_gap_and_doubles_nothing(
    site: Site, owner: User, endpoint: Endpoint
) -> None:
    gate = asyncio.Event()
    endpoint.script(text("one ", "two ", gate, "three ", "four"))
    page = await site.open(owner)
    await send(page, "count")
    await expect(page.locator(".answer .markdown")).to_contain_text("one two")
    await consumers.close_sockets()
    gate.set()
    await expect(page.locator(".answer .markdown")).to_have_text("one two three four", timeout=30_000)
    await expect(page.get_by_role("button", name="Send")).to_be_visible()


async def test_reloading_in_mid_stream_and_a_second_tab_show_the_same(
    site: Site, owner: User, endpoint: Endpoint
) -> None:
    gate = asyncio.Event()
    endpoint.script(text("alpha ", "beta ", gate, "gamma ", "delta"), text("from the other tab"))
    context = await site.context(owner)
    page = await site.tab(context)
    await send(page, "letters")
    await expect(page.locator(".answer .markdown")).to_contain_text("alpha beta")
    other = await site.tab(context, page.url.removeprefix(site.url))
    await page.reload()
    for tab in (page, other):
        await expect(tab.locator(".answer .markdown")).to_contain_text("alpha beta")
        await expect(tab.get_by_role("button", name="Stop")).to_be_visible()
    gate.set()
    for tab in (page, other):
        await expect(tab.locator(".answer .markdown")).to_have_text("alpha beta gamma delta")
    await expect(other.get_by_role("button", name="Send")).to_be_visible()
    await send(other, "again")
    for tab in (page, other):
        await expect(tab.locator(".bubble").nth(1)).to_have_text("again")
        await expect(tab.locator(".answer .markdown").nth(1)).to_have_text("from the other tab")


async def test_an_error_is_a_card_in_its_place_with_a_way_on(site: Site, owner: User, endpoint: Endpoint) -> None:
    endpoint.script(failure(401, "invalid key sk-123"), text("Now it works."))
    page = await site.open(owner)
    await send(page, "hello")
    card = page.locator(".error-card")
    await expect(card).to_contain_text("The model refused our key")
    assert "Traceback" not in await card.inner_text()
    await card.get_by_text("Details").click()
    await expect(card).to_contain_text("endpoint_authentication")
    await card.get_by_role("button", name="Try again").click()
    await expect(page.locator(".answer .markdown")).to_have_text("Now it works.")
    await expect(page.locator(".branch-count")).to_have_text("2/2")


async def test_the_stream_is_in_no_live_region_and_its_begin_and_end_are_announced(
    site: Site, owner: User, endpoint: Endpoint
) -> None:
    gate = asyncio.Event()
    endpoint.script(text("Words ", gate, "end."))
    page = await site.open(owner)
    await send(page, "speak")
    await expect(page.locator("#polite")).to_have_text("The answer is being written.")
    live = "el => Boolean(el.closest('[aria-live]:not([aria-live=off]), [role=log], [role=status], [role=alert]'))"
    assert await page.locator(".answer .markdown").evaluate(live) is False
    gate.set()
    await expect(page.locator("#polite")).to_have_text("The answer is complete.")
    headings = await page.locator("main :is(h2)").all_inner_texts()
    assert headings == ["You", "Helper"]
    await expect(page.locator("h1")).to_have_count(1)


async def busy(meter: CDPSession) -> float:
    """Seconds of the processor that the page's own thread has worked."""
    metrics = (await meter.send("Performance.getMetrics"))["metrics"]
    return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))


async def test_two_thousand_tokens_at_once_keep_the_page_alive(site: Site, owner: User, endpoint: Endpoint) -> None:
    words = [f"w{number} " if number % 40 else "\n\n- item\n\n" for number in range(2000)]
    endpoint.script(text(*words))
    page = await site.open(owner)
    meter = await page.context.new_cdp_session(page)
    await meter.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = await busy(meter)
    await send(page, "fast")
    await expect(page.locator(".answer .markdown")).to_contain_text("w1999", timeout=30_000)
    await expect(page.get_by_role("button", name="Send")).to_be_visible(timeout=30_000)
    assert await busy(meter) - before < 2.5  # of a slow processor; a usual one needs a quarter


async def test_an_answer_that_no_frame_holds_is_shown_to_its_last_word(
    site: Site, owner: User, endpoint: Endpoint
) -> None:
    gate = asyncio.Event()
    lines = [f"{'y' * 79}\n" for _ in range(3600)]
    endpoint.script(text("Begin.\n\n```\n", *lines, gate, "```\n\nThe last word."))
    page = await site.open(owner)
    await send(page, "all of it")
    await expect(page.locator(".answer .markdown")).to_contain_text("Begin.", timeout=30_000)
    await page.reload()  # what the socket sends now is a part of it
    gate.set()
    await expect(page.locator(".answer")).to_have_attribute("aria-busy", "false", timeout=30_000)
    await expect(page.locator(".answer .markdown")).to_contain_text("The last word.", timeout=30_000)
