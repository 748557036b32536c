"""A sign-in that is asked for by one process and completed after a restart, or at another process."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from html import unescape
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest_asyncio

from tests.fakes.authpages import consent
from tests.fakes.authserver import FakeAuthServer
from tests.fakes.endpoint import Endpoint, calls, text
from tests.fakes.mcp_protected import ProtectedMCPServer
from tests.whole.site import Site
from tests.whole.test_processes import database, make_pair, prepared_database, pytestmark
from tests.whole.test_restart import start

__all__ = ["database", "make_pair", "prepared_database", "pytestmark"]

CONFIGURATION = """
users:
  alice: {{email: alice@example.org, password: correct horse}}
organizations:
  acme:
    name: Acme
    members: {{alice: admin}}
    endpoints:
      main: {{base_url: {base_url}, api_key: sk-test, models: {{gpt: {{name: test-model}}}}}}
    servers:
      notes:
        title: Notes
        transport: http
        url: {notes_url}
        oauth: {{}}
        rules: [{{tool: "*", do: allow}}]
        grants: [{{organization: true}}]
    agents:
      helper: {{name: Helper, model: main/gpt, servers: [notes], grants: [{{organization: true}}]}}
"""


@pytest_asyncio.fixture
async def notes() -> AsyncIterator[ProtectedMCPServer]:
    async with FakeAuthServer() as auth, ProtectedMCPServer(auth=auth, open_listing=True) as server:
        yield server


class Browser:
    """A person's browser with cookies, at whichever process it is pointed to."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session
        self.cookies: dict[str, str] = {}

    async def ask(self, method: str, url: str, **fields: Any) -> tuple[int, str]:
        async with self.session.request(
            method, url, cookies=self.cookies, allow_redirects=False, headers={"Referer": url}, **fields
        ) as response:
            for name, cookie in response.cookies.items():
                self.cookies[name] = cookie.value
            return response.status, await response.text()

    async def submit(self, url: str, **values: str) -> tuple[int, str]:
        """Open a page with a form, and send that."""
        _, page = await self.ask("GET", url)
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        assert token is not None, page
        return await self.ask("POST", url, data={**values, "csrfmiddlewaretoken": token[1]})

    async def link(self, site: Site, other: Site | None = None) -> str:
        """Begin at `site`, allow access, and come back to `other`; what the last page says."""
        status, _ = await self.submit(f"{site.url}/accounts/login/", login="alice", password="correct horse")
        assert status == 302
        status, page = await self.submit(f"{site.url}/o/acme/connections/notes/begin", window="1")
        leads = re.search(r'content="0;url=([^"]+)"', page)
        assert leads is not None, page
        parts = urlsplit(await consent(unescape(leads[1])))
        status, page = await self.ask("GET", f"{(other or site).url}{parts.path}?{parts.query}")
        assert status == 200, page
        return page


@pytest_asyncio.fixture
async def browser() -> AsyncIterator[Browser]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield Browser(session)


async def test_after_a_restart_between_the_card_and_the_consent_the_turn_goes_on_and_the_call_is_made_once(
    endpoint: Endpoint, make_site: Callable[..., Site], notes: ProtectedMCPServer, browser: Browser
) -> None:
    endpoint.script(calls(("notes__whoami", {})), text("You are Ada there."))
    site = await asyncio.to_thread(make_site, endpoint.base_url)
    await asyncio.to_thread(site.apply, CONFIGURATION.format(base_url=endpoint.base_url, notes_url=notes.url))
    await asyncio.to_thread(site.start)
    key = await asyncio.to_thread(site.key, "alice", "acme", "chat", "approve")
    async with site.socket("acme", key) as socket:
        await socket.send("turn.start", **start("who am I there?", "helper"))
        card = await socket.until("authorization.required")
        assert (card["server"], card["title"]) == ("notes", "Notes")
        waiting = await socket.until("turn.waiting")
    site.kill()
    await asyncio.to_thread(site.start)
    async with site.socket("acme", key) as socket:
        assert (await socket.until("hello"))["turns"][0]["status"] == "waiting"
        await socket.send("turn.follow", turn_id=waiting["turn_id"], after=waiting["seq"])
        await socket.until("turn.snapshot")
        assert "Signed in as" in await browser.link(site)
        completed = await socket.until("authorization.completed")
        assert completed["call_id"] == card["call_id"]
        assert completed["account"]
        finished = await socket.until("turn.finished")
        assert finished["outcome"] == "completed"
    assert notes.calls_of("ada") == ["whoami"]


async def test_a_sign_in_at_another_process_lets_the_turn_go_on_and_its_follower_see_it(
    endpoint: Endpoint, make_pair: tuple[Site, Site], notes: ProtectedMCPServer, browser: Browser
) -> None:
    one, two = make_pair
    endpoint.script(calls(("notes__whoami", {})), text("You are Ada there."))
    await asyncio.to_thread(one.apply, CONFIGURATION.format(base_url=endpoint.base_url, notes_url=notes.url))
    for site in make_pair:
        await asyncio.to_thread(site.start)
    key = await asyncio.to_thread(one.key, "alice", "acme", "chat", "approve")
    async with one.socket("acme", key) as socket:
        await socket.send("turn.start", **start("who am I there?", "helper"))
        await socket.until("turn.waiting")
        await browser.link(one, other=two)
        finished = await socket.until("turn.finished")
        assert finished["outcome"] == "completed"
        told = [frame for frame in socket.seen if frame["type"] == "connection.changed"]
        assert [(frame["server"], frame["state"]) for frame in told] == [("notes", "connected")]
    assert notes.calls_of("ada") == ["whoami"]
