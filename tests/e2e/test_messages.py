"""What one can do with messages: edit, branch, copy, answer again; code and tables; long and narrow."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import expect

from accounts.models import User
from agents.models import Agent
from chatui.rows import in_rows
from tests.e2e.site import Site
from tests.e2e.test_composer import send
from tests.fakes.endpoint import Endpoint, text

pytestmark = [pytest.mark.e2e, pytest.mark.deadline(120)]  # a browser on a loaded machine

RICH = """Some **bold** text.

```python
def f(x):
    return x  # a comment that is long enough to leave the width of a narrow screen behind, and then some more
```

| Name | Amount | A column with a long name that needs its room |
|:--|--:|---|
| tea | 3 | it costs $5 and then $10 |
| =cmd | -4 | x |
"""


async def test_editing_a_question_makes_a_branch_and_the_chosen_one_stays_after_a_reload(
    site: Site, owner: User, endpoint: Endpoint
) -> None:
    endpoint.script(text("Answer one."), text("Answer two."), text("Answer three."))
    page = await site.open(owner)
    await send(page, "question one")
    await expect(page.locator(".answer .markdown")).to_have_text("Answer one.")
    await expect(page.get_by_role("button", name="Answer again")).to_be_visible()
    await page.locator("#composer-text").press("ArrowUp")
    editor = page.get_by_role("textbox", name="Edit your message")
    await expect(editor).to_have_value("question one")
    await editor.fill("question two")
    await page.keyboard.press("Enter")
    await expect(page.locator(".answer .markdown")).to_have_text("Answer two.")
    await expect(page.locator(".bubble")).to_have_text("question two")
    assert [message["content"] for message in endpoint.last.messages if message["role"] == "user"] == ["question two"]
    await page.get_by_role("button", name="Previous version of your message").click()
    await expect(page.locator(".answer .markdown")).to_have_text("Answer one.")
    await expect(page.locator(".branch-count")).to_have_text("1/2")
    await page.wait_for_load_state("networkidle")
    await page.reload()
    await expect(page.locator(".answer .markdown")).to_have_text("Answer one.")
    await expect(page.locator(".branch-count")).to_have_text("1/2")
    await page.get_by_role("button", name="Answer again").click()
    await page.get_by_role("menuitem", name="Try again").click()
    await expect(page.locator(".answer .markdown")).to_have_text("Answer three.")
    await expect(page.locator(".answer .branch-count")).to_have_text("2/2")


async def test_a_question_is_answered_again_by_another_model_that_the_agent_has(
    site: Site, owner: User, agent: Agent, endpoint: Endpoint
) -> None:
    await in_rows(
        lambda: agent.other_models.create(
            organization=agent.organization, endpoint=agent.model.endpoint, slug="big", name="big-1", title="Big model"
        )
    )
    endpoint.script(text("By the small one."), text("By the big one."))
    page = await site.open(owner)
    await send(page, "who are you?")
    await expect(page.locator(".answer .markdown")).to_have_text("By the small one.")
    await page.get_by_role("button", name="Answer again").click()
    await page.get_by_role("menuitem", name="With Big model").click()
    await expect(page.locator(".answer .markdown")).to_have_text("By the big one.")
    assert endpoint.last.body["model"] == "big-1"
    await page.get_by_role("button", name="About this answer").click()
    await expect(page.locator("dl.about")).to_contain_text("Big model")


async def test_escape_leaves_the_editor_and_the_text_as_it_was(site: Site, owner: User, endpoint: Endpoint) -> None:
    endpoint.script(text("Fine."))
    page = await site.open(owner)
    await send(page, "leave me")
    await expect(page.locator(".answer .markdown")).to_have_text("Fine.")
    await page.get_by_role("button", name="Edit your message").click()
    await page.get_by_label("Edit your message").fill("changed")
    await page.keyboard.press("Escape")
    await expect(page.locator(".bubble")).to_have_text("leave me")
    assert await page.evaluate("document.activeElement.id") == "composer-text"


async def test_answers_code_and_tables_are_copied_as_their_source(site: Site, owner: User, endpoint: Endpoint) -> None:
    endpoint.script(text(RICH))
    page = await site.open(owner, permissions=["clipboard-read", "clipboard-write"])
    await send(page, "rich")
    await expect(page.locator(".table")).to_be_visible()
    await expect(page.get_by_role("button", name="Copy the answer as Markdown")).to_be_visible()
    clipboard = "navigator.clipboard.readText()"
    await page.get_by_role("button", name="Copy the answer as Markdown").click()
    await expect(page.locator("#polite")).to_have_text("Message copied")
    assert await page.evaluate(clipboard) == RICH
    await page.get_by_role("button", name="Copy code").click()
    await expect(page.locator("#polite")).to_have_text("Code copied")
    assert (await page.evaluate(clipboard)).startswith("def f(x):\n    return x")
    await page.get_by_role("button", name="Copy as CSV").click()
    await expect(page.locator("#polite")).to_have_text("Table copied as CSV")
    assert "'=cmd,-4,x" in await page.evaluate(clipboard)
    await page.get_by_role("button", name="Copy as Markdown").click()
    await expect(page.locator("#polite")).to_have_text("Table copied as Markdown")
    assert "| tea | 3 | it costs $5 and then $10 |\n| =cmd | -4 | x |\n" in await page.evaluate(clipboard)
    await expect(page.locator(".code .hljs-keyword").first).to_have_text("def")
    await expect(page.locator(".table")).to_contain_text("$5 and then $10")
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Download code").click()
    assert (await download.value).suggested_filename == "code.py"


async def test_code_scrolls_in_itself_wraps_at_a_press_and_is_folded_when_long(
    site: Site, owner: User, endpoint: Endpoint
) -> None:
    lines = "\n".join(f"let value{number} = {number};" for number in range(80))
    endpoint.script(text(f"```js\nlet wide = '{'x ' * 200}';\n{lines}\n```\n\n```\nshort\n```"))
    page = await site.open(owner)
    await send(page, "code")
    code, other = page.locator(".code").first, page.locator(".code").last
    await expect(code.locator(".code-language")).to_have_text("JavaScript")
    await expect(other).to_contain_text("short")
    await expect(other.locator(".code-fold")).to_have_count(0)
    pre = code.locator("pre")
    over = "el => el.scrollWidth > el.clientWidth + 1"
    assert await pre.evaluate(over)
    assert await page.evaluate("document.documentElement.scrollWidth") <= 1200
    wrap = code.get_by_role("button", name="Wrap lines")
    await wrap.click()
    await expect(wrap).to_have_attribute("aria-pressed", "true")
    assert not await pre.evaluate(over)
    fold = code.locator(".code-fold")
    await expect(fold).to_have_text("Show all 81 lines")
    folded = await pre.evaluate("el => el.clientHeight")
    await fold.click()
    await expect(fold).to_have_attribute("aria-expanded", "true")
    await expect(fold).to_have_text("Show less")
    assert await pre.evaluate("el => el.clientHeight") > folded * 1.5


async def test_another_answer_can_be_shorter_longer_or_as_one_says(site: Site, owner: User, endpoint: Endpoint) -> None:
    endpoint.script(text("Usual."), text("Short."), text("Long."), text("Rhymed."))
    page = await site.open(owner)
    await send(page, "what is tea?")
    await expect(page.locator(".answer .markdown")).to_have_text("Usual.")

    async def again(how: str) -> None:
        await page.get_by_role("button", name="Answer again").click()
        await page.get_by_role("menuitem", name=how).click()

    await again("Shorter")
    await expect(page.locator(".answer .markdown")).to_have_text("Short.")
    await expect(page.locator(".question .branch-count")).to_have_text("2/2")
    await page.get_by_role("button", name="Previous version of your message").click()
    await again("Longer")
    await expect(page.locator(".answer .markdown")).to_have_text("Long.")
    await page.get_by_role("button", name="Previous version of your message").click()
    await again("With an instruction")
    await page.get_by_label("What should be different?").fill("In verse, please.")
    await page.keyboard.press("Enter")
    await expect(page.locator(".answer .markdown")).to_have_text("Rhymed.")
    asked = [str(request.messages[-1]["content"]) for request in endpoint.requests]
    assert all(words.startswith("what is tea?") for words in asked)
    assert ["shorter" in asked[1], "more detail" in asked[2], asked[3].endswith("In verse, please.")] == [True] * 3
    assert [message["role"] for message in endpoint.last.messages].count("user") == 1  # no earlier version is told


@pytest.mark.parametrize("width", [320, 375])
async def test_nothing_is_wider_than_a_narrow_screen(width: int, site: Site, owner: User, endpoint: Endpoint) -> None:
    endpoint.script(text(RICH + "\n" + "x" * 300))
    page = await site.open(owner, viewport={"width": width, "height": 640}, has_touch=True, is_mobile=True)
    await send(page, "https://example.org/" + "a" * 200)
    await expect(page.locator(".table")).to_be_visible()
    await expect(page.get_by_role("button", name="Send")).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    size: Any = await page.evaluate("parseFloat(getComputedStyle(document.getElementById('composer-text')).fontSize)")
    assert size >= 16
    small = """[...document.querySelectorAll("button, summary, .chat-link, select")].filter((el) => {
        const box = el.getBoundingClientRect();
        return box.width > 0 && getComputedStyle(el).visibility !== "hidden" && (box.height < 43.5 || box.width < 43.5);
    }).map((el) => el.className + " " + (el.title || el.textContent))"""
    assert await page.evaluate(small) == []


async def test_the_whole_answer_prints(site: Site, owner: User, endpoint: Endpoint) -> None:
    endpoint.script(text("".join(f"Line {number}.\n\n" for number in range(150))))
    page = await site.open(owner)
    await send(page, "much")
    await expect(page.locator(".answer .markdown")).to_contain_text("Line 149.")
    await page.emulate_media(media="print")
    assert await page.evaluate("document.documentElement.scrollHeight") > 3000
    await expect(page.locator(".composer")).to_be_hidden()
    await expect(page.locator(".sidebar")).to_be_hidden()


async def test_right_to_left_text_stands_on_the_right(site: Site, owner: User, endpoint: Endpoint) -> None:
    endpoint.script(text("مرحبا بالعالم، هذا نص عربي."))
    page = await site.open(owner)
    await send(page, "السلام عليكم")
    await expect(page.locator(".answer .markdown")).to_contain_text("مرحبا")
    assert await page.locator(".answer .markdown p").evaluate("el => getComputedStyle(el).direction") == "rtl"
