"""Two server processes on one PostgreSQL and one Redis: a turn is followed, stopped and taken up through either."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import aiohttp
import psycopg
import pytest

from tests.fakes.endpoint import Endpoint, calls, text
from tests.settings import TEST_REDIS_URL
from tests.whole.prepared import Prepared, point
from tests.whole.site import Site
from tests.whole.test_restart import NOTE, start

pytestmark = [
    pytest.mark.deadline(180),  # servers start and are killed as processes
    pytest.mark.skipif(os.environ.get("TEST_DATABASE") == "sqlite", reason="SQLite serves one process"),
]


@pytest.fixture(scope="session")
def prepared_database(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """A configured PostgreSQL database, to be copied."""
    address, name = os.environ["DATABASE_URL"], f"prepared_{uuid4().hex}"
    with psycopg.connect(address, autocommit=True) as session:
        session.execute(f'CREATE DATABASE "{name}"')  # a name of our own making
    site = Site(tmp_path_factory.mktemp("prepared"), database_url=address.replace("/postgres?", f"/{name}?", 1))
    return Prepared.at(site, name)


@pytest.fixture
def database(prepared_database: Prepared) -> Iterator[str]:
    """The address of a PostgreSQL database of its own, configured."""
    address, name = os.environ["DATABASE_URL"], f"whole_{uuid4().hex}"
    prepared_database.copy_database(address, name)
    yield address.replace("/postgres?", f"/{name}?", 1)
    with psycopg.connect(address, autocommit=True) as session:
        session.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def make_pair(tmp_path: Path, database: str, prepared_database: Prepared) -> Iterator[tuple[Site, Site]]:
    sites = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        env = {"REDIS_URL": TEST_REDIS_URL, "BASE_URL": "http://127.0.0.1:8000"}
        sites.append(Site(tmp_path / name, database_url=database, env=env))
        sites[-1].keys = prepared_database.keys
    yield sites[0], sites[1]
    for site in sites:
        site.close()


async def begun(pair: tuple[Site, Site], database: str, endpoint: Endpoint, *scopes: str) -> str:
    """Both processes are up; an API key."""
    await asyncio.to_thread(point, database, endpoint.base_url)
    for site in pair:
        await asyncio.to_thread(site.start)
    return pair[0].key("alice", "acme", *scopes)


async def test_a_turn_is_followed_live_and_stopped_through_the_other_process(
    endpoint: Endpoint, make_pair: tuple[Site, Site], database: str
) -> None:
    one, two = make_pair
    gate, never = asyncio.Event(), asyncio.Event()
    endpoint.script(text("Hello", gate, " world", never, "!"))
    key = await begun(make_pair, database, endpoint, "chat")
    async with one.socket("acme", key) as here, two.socket("acme", key) as there:
        await here.send("turn.start", **start("go on"))
        turn = await here.until("turn.started")
        assert (await here.until("text.delta"))["text"] == "Hello"
        await there.send("turn.follow", turn_id=turn["turn_id"], after=0)
        assert (await there.until("text.delta"))["text"] == "Hello"
        gate.set()
        assert (await there.until("text.delta"))["text"] == " world"
        await there.send("turn.stop", turn_id=turn["turn_id"])
        for socket in (here, there):
            assert (await socket.until("turn.finished"))["outcome"] == "stopped"
        numbers = [[f["seq"] for f in s.seen if f.get("turn_id") and "seq" in f] for s in (here, there)]
        assert numbers[0] == numbers[1] == list(range(1, len(numbers[0]) + 1))


async def test_an_answer_through_the_other_process_lets_the_turn_go_on_there_and_both_see_it(
    endpoint: Endpoint, make_pair: tuple[Site, Site], database: str
) -> None:
    one, two = make_pair
    endpoint.script(calls(NOTE), text("Noted."))
    key = await begun(make_pair, database, endpoint, "chat", "approve")
    async with one.socket("acme", key) as here, two.socket("acme", key) as there:
        await here.send("turn.start", **start("note it", "helper"))
        card = await here.until("call.approval")
        await here.until("turn.waiting")
        await there.send("turn.follow", turn_id=card["turn_id"], after=card["seq"])
        await there.send("call.decide", call_id=card["call_id"], decision="allow_once")
        for socket in (here, there):
            finished = await socket.until("turn.finished")
            assert finished["outcome"] == "completed"
            assert [part["text"] for part in finished["message"]["parts"] if part["type"] == "text"] == ["Noted."]


SESSION = (
    "from django.test import Client; from accounts.models import User; from django.conf import settings; c = Client(); "
    "c.force_login(User.objects.get(username='alice'), backend='django.contrib.auth.backends.ModelBackend'); "
    "print(c.cookies[settings.SESSION_COOKIE_NAME].value)"
)
ROW = re.compile(r'<td[^>]*>([^<]*:\d+)</td>.*?name="connection" value="([0-9a-f-]{36})"', re.DOTALL)


async def test_a_process_shows_the_connections_of_the_other_and_closes_them(
    endpoint: Endpoint, make_pair: tuple[Site, Site], database: str
) -> None:
    """The first one connects to the demo server when it starts, to list its tools; the second knows them by then."""
    await begun(make_pair, database, endpoint, "chat")
    one, two = make_pair
    assert one.process is not None
    theirs = f":{one.process.pid}"
    session = (await asyncio.to_thread(two.manage, "shell", "-c", SESSION)).stdout.split()[-1]
    jar = aiohttp.CookieJar(unsafe=True)  # of a numeric host
    async with aiohttp.ClientSession(two.url, cookies={"sessionid": session}, cookie_jar=jar) as browser:

        async def held() -> list[str]:
            async with browser.get("/admin/connections/") as page:
                return [id for process, id in ROW.findall(await page.text()) if process.endswith(theirs)]

        while not (found := await held()):  # noqa: ASYNC110 - nothing tells when it has told what it holds
            await asyncio.sleep(0.2)
        token = next(cookie.value for cookie in jar if "csrf" in cookie.key)
        data = {"connection": found[0], "csrfmiddlewaretoken": token}
        async with browser.post("/admin/connections/close/", data=data) as answer:
            assert "is being closed" in await answer.text()
        while found[0] in await held():  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0.2)
