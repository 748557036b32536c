"""The whole product on loopback with a real browser before it: `site.open(user)` is a page, signed in and ready.

Everything runs in the test's own event loop, so that a gate in a scripted answer is an `asyncio.Event` of the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
import uvicorn
from channels.routing import ProtocolTypeRouter
from django.core.asgi import get_asgi_application
from playwright.async_api import Browser, BrowserContext, Error, Page, async_playwright, expect

from accounts.models import Organization, User
from agents.models import Agent
from chatui.routing import websocket
from chatui.rows import in_rows
from mcpservers.models import MCPServer
from tests.conversations.chat import cookie_of
from tests.fakes.demo_server import ALLOWED, ASKED, make_demo_server
from tests.fakes.endpoint import Endpoint, endpoint

__all__ = ["Site", "agent", "browser", "demo_server", "endpoint", "owner", "site"]

NO_BROWSER = "needs Chromium on the PATH, or Playwright's own: python -m playwright install chromium"


@pytest_asyncio.fixture
async def browser() -> AsyncIterator[Browser]:
    found = next(
        (path for name in ("chromium", "google-chrome", "chromium-browser") if (path := shutil.which(name))), None
    )
    async with async_playwright() as playwright:
        try:
            running = await playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        except Error:
            pytest.skip(NO_BROWSER)
        yield running
        await running.close()


expect.set_options(timeout=20_000)  # milliseconds; it returns as soon as what is expected is there


@dataclass
class Site:
    """`complaints` is what a page must not give cause for: script errors, refusals by the policy, foreign requests."""

    url: str
    browser: Browser
    complaints: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    known: set[str] = field(default_factory=set)  # hosts that pages may lead to

    async def context(self, user: User | None, **options: Any) -> BrowserContext:
        context = await self.browser.new_context(
            **{"viewport": {"width": 1200, "height": 800}, "reduced_motion": "reduce", **options}
        )
        context.set_default_timeout(15_000)
        if user is not None:
            name, _, value = (await in_rows(cookie_of, user)).partition("=")
            await context.add_cookies([{"name": name, "value": value, "url": self.url}])
        return context

    async def open(self, user: User | None, path: str = "/o/acme/", *, ready: bool = True, **options: Any) -> Page:
        return await self.tab(await self.context(user, **options), path, ready=ready)

    async def tab(self, context: BrowserContext, path: str = "/o/acme/", *, ready: bool = True) -> Page:
        page = await context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(f"script error: {error}"))
        page.on("console", self._heard)
        page.on("request", self._asked)
        await page.goto(self.url + path)
        if ready:
            await page.wait_for_selector("#composer-send button[type=submit], #composer-send .stop")
            await page.wait_for_selector(".pick, .message")
        return page

    def _heard(self, message: Any) -> None:
        if "Content Security Policy" in message.text or "Refused to" in message.text:
            self.complaints.append(message.text)

    def _asked(self, request: Any) -> None:
        parts = urlsplit(request.url)
        ours = {urlsplit(self.url).netloc, *self.known}
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc not in ours:
            self.foreign.append(request.url)


@pytest_asyncio.fixture
async def site(transactional_db: None, browser: Browser, settings: Any) -> AsyncIterator[Site]:
    from chatui import lifecycle
    from conversations import supervisor

    application = ProtocolTypeRouter({"http": get_asgi_application(), "websocket": websocket})
    listener = socket.create_server(("127.0.0.1", 0))  # from here on whoever connects is answered, if a little later
    config = uvicorn.Config(application, lifespan="off", log_level="error", ws="websockets-sansio")
    server = uvicorn.Server(config)
    server.capture_signals = _no_signals  # Ctrl-C is pytest's
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="site")
    here = Site(f"http://127.0.0.1:{listener.getsockname()[1]}", browser)
    try:
        yield here
        for context in browser.contexts:
            await context.close()
        supervisor.current().draining = False
        await supervisor.current().aclose(drain_seconds=0)
        await lifecycle.aclose()
    finally:
        server.should_exit = True
        await serving
    assert not here.complaints, here.complaints
    assert not here.foreign, here.foreign


@contextlib.contextmanager
def _no_signals() -> Iterator[None]:
    yield


@pytest.fixture
def demo_server(transactional_db: None, organization: Organization) -> MCPServer:
    return make_demo_server(organization, ASKED, ALLOWED)


@pytest.fixture
def agent(
    transactional_db: None, endpoint: Endpoint, organization: Organization, make_agent: Callable[..., Agent]
) -> Agent:
    return make_agent(
        organization, base_url=endpoint.base_url, description="Answers questions.", starters=["Tell me a story"]
    )


@pytest.fixture
def owner(agent: Agent, alice: User) -> User:
    """Alice, who has an agent."""
    return alice
