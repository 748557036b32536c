"""Processes of one site over a real Redis: each sees what the others hold, and word of one reaches all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID, uuid4

import pytest
from channels.layers import channel_layers
from redis import asyncio as redis

from accounts.models import Organization, User
from chatui.rows import in_rows
from mcpservers import connections, peers
from mcpservers.connections import ConnectionManager
from mcpservers.errors import ServerUnavailableError
from mcpservers.health import troubles
from mcpservers.models import MCPServer
from mcpservers.transports import target_of
from tests.fakes.authserver import FakeAuthServer
from tests.fakes.authstate import PEOPLE
from tests.fakes.mcp_protected import ProtectedMCPServer
from tests.fakes.mcp_server import FakeMCPServer, after
from tests.fakes.mcp_targets import actor, definition, managed, target
from tests.fakes.wallet import Wallet
from tests.settings import TEST_REDIS_URL


@pytest.fixture
def shared(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Several processes, which find each other over Redis."""
    settings.REDIS_URL = TEST_REDIS_URL
    settings.CHANNEL_LAYERS = {
        "default": {"BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer", "CONFIG": {"hosts": [TEST_REDIS_URL]}}
    }
    channel_layers.backends.clear()
    monkeypatch.setattr(peers, "PREFIX", f"test:{uuid4().hex}:")
    monkeypatch.setattr(peers, "GROUP", f"test.{uuid4().hex}")
    yield
    channel_layers.backends.clear()


@pytest.fixture
def as_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """From now on this is another process of that name."""

    def be(name: str) -> None:
        monkeypatch.setattr(peers, "_own_id", lambda: name)
        monkeypatch.setattr(peers, "process", lambda: f"{name}:1")

    return be


@pytest.fixture(autouse=True)
async def manager(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ConnectionManager]:
    """The manager of this loop, without rows."""
    monkeypatch.setattr(peers, "TIMEOUT", 60)  # a slow machine's Redis is not away
    loop = asyncio.get_running_loop()
    async with managed() as manager:
        connections._managers[loop] = manager
        yield manager
        connections._managers.pop(loop, None)


@pytest.fixture
async def fake() -> AsyncIterator[FakeMCPServer]:
    async with FakeMCPServer() as server:
        yield server


@asynccontextmanager
async def running(work: Any, ready: Callable[[], Any]) -> AsyncIterator[None]:
    """`work` in a task, once `ready` is true."""
    task = asyncio.create_task(work)
    while not await ready():  # noqa: ASYNC110 - Redis tells nobody that something was written
        await asyncio.sleep(0.01)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def is_published() -> bool:
    async with redis.Redis.from_url(TEST_REDIS_URL) as client:
        return bool([key async for key in client.scan_iter(f"{peers.PREFIX}*")])


async def is_heard() -> bool:
    async with redis.Redis.from_url(TEST_REDIS_URL) as client:
        return bool(await client.pubsub_channels(f"*{peers.GROUP}*"))


async def gone(id: UUID) -> None:
    while any(  # noqa: ASYNC110 - nothing tells when the word of another process was heard
        info.id == id and info.state != "closing" for info in connections.live_connections()
    ):
        await asyncio.sleep(0.01)  # as said above


async def test_alone_a_process_tells_of_itself_and_names_no_process(fake: FakeMCPServer) -> None:
    async with connections.manager().borrow(target(fake.url)):
        told = peers.everywhere()
    assert [info.process for info in told.connections] == [""]
    assert told.complete


async def test_what_another_process_holds_is_seen_with_its_name(
    shared: None, as_process: Callable[[str], None], fake: FakeMCPServer
) -> None:
    as_process("one")
    to = target(fake.url)
    with pytest.raises(ServerUnavailableError):
        async with connections.manager().borrow(target("http://127.0.0.1:9/mcp", title="Down")):
            raise AssertionError
    async with connections.manager().borrow(to) as connection, running(peers.publish(), is_published):
        as_process("two")
        connections._managers.clear()  # another process holds nothing of this
        told = await asyncio.to_thread(peers.everywhere)
    (info,) = told.connections
    assert (info.id, info.process, info.title, info.leases) == (connection.id, "one:1", "Fake", 1)
    assert info.age >= 0
    assert "Down" in [trouble.message for _, trouble in told.troubles][-1]
    as_process("one")
    assert not await is_published(), "what ended is forgotten at once"


async def test_without_redis_only_this_process_is_told_of_and_that_is_said(
    shared: None, settings: Any, fake: FakeMCPServer
) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:9/0"
    async with connections.manager().borrow(target(fake.url)):
        told = peers.everywhere()
    assert (len(told.connections), told.complete) == (1, False)


async def test_a_process_that_cannot_be_understood_costs_nothing_but_the_whole(
    shared: None, fake: FakeMCPServer
) -> None:
    async with redis.Redis.from_url(TEST_REDIS_URL) as client:
        for number, text in enumerate((b"{}", b"not json", b'{"connections": [{"id": "of another version"}]}')):
            await client.set(f"{peers.PREFIX}{number}", text, ex=30)
    async with connections.manager().borrow(target(fake.url)):
        told = await asyncio.to_thread(peers.everywhere)
    assert (len(told.connections), told.complete) == (1, False)


@pytest.mark.parametrize("word", ["changed", "reconnect"])
async def test_a_server_that_was_changed_elsewhere_is_connected_to_anew_here(
    word: str, shared: None, as_process: Callable[[str], None], fake: FakeMCPServer
) -> None:
    as_process("one")
    to, other = target(fake.url), target(fake.url)
    async with running(peers.listen(), is_heard):
        ids = []
        for each in (to, other):
            async with connections.manager().borrow(each) as connection:
                ids.append(connection.id)
        for _ in range(3):
            connections.manager().breaker.failed(to.circuit, "it was down")
        as_process("two")
        await peers._tell({"type": word, "server": str(to.server_id)})
        as_process("one")
        await gone(ids[0])
    assert connections.manager().breaker.refusal(to.circuit) is None, "it is tried again at once"
    for each, before in zip((to, other), ids, strict=True):
        async with connections.manager().borrow(each) as connection:
            assert (connection.id == before) is (each is other)
    assert len(fake.sessions) == 3


async def test_a_changed_server_ends_no_call_and_is_left_by_the_next(shared: None, fake: FakeMCPServer) -> None:
    gate = asyncio.Event()
    fake.on("tools/call", after(gate, fake.reply))
    to = target(fake.url)

    async def call() -> Any:
        async with connections.manager().borrow(to) as connection:
            return await connection.request("tools/call", {"name": "echo", "arguments": {"text": "x"}}, timeout=20)

    running_call = asyncio.create_task(call())
    await fake.heard("tools/call")
    await asyncio.to_thread(peers.server_changed, to.server_id)
    await gone(connections.live_connections()[0].id)
    gate.set()
    assert (await running_call)["content"] == [{"type": "text", "text": "x"}]
    await call()
    assert len(fake.sessions) == 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("door", ["organization", "person", "server"])
async def test_what_is_held_to_a_server_ends_with_its_row_whichever_door_it_went_through(
    door: str, fake: FakeMCPServer, organization: Organization, bob: User
) -> None:
    """By a cascade no door of its own is passed; a local process would run on for an hour."""

    def made() -> MCPServer:
        owner = {"owner": bob} if door == "person" else {}
        return MCPServer.objects.create(organization=organization, slug="my-s", title="S", url=fake.url, **owner)

    row = await in_rows(made)
    to = target(fake.url, pk=row.pk)
    async with connections.manager().borrow(to) as connection:
        pass
    going: Any = {"organization": organization, "person": bob, "server": row}[door]
    await in_rows(going.delete)
    await gone(connection.id)
    await fake.until(lambda: fake.ended == set(fake.sessions))


async def test_a_connection_is_closed_from_another_process(
    shared: None, as_process: Callable[[str], None], fake: FakeMCPServer
) -> None:
    as_process("one")
    async with running(peers.listen(), is_heard):
        async with connections.manager().borrow(target(fake.url)) as connection:
            pass
        as_process("two")
        message = {"type": "close", "connection": str(connection.id)}
        await peers._tell(message)
        as_process("one")
        await gone(connection.id)


async def test_an_account_that_changed_elsewhere_ends_its_connections_here_and_no_others(
    shared: None, as_process: Callable[[str], None]
) -> None:
    as_process("one")
    async with FakeAuthServer() as auth, ProtectedMCPServer(auth=auth, era="modern") as server:
        made, bob, carol = definition(server.url, oauth={}), actor("bob"), actor("carol")
        ids = {}
        for who, person in ((bob, PEOPLE[0]), (carol, PEOPLE[1])):
            wallet = Wallet(server, person)
            to = target_of(made, who, {}, account=wallet.account, source=wallet)
            async with connections.manager().borrow(to) as connection:
                ids[who.username] = connection.id
        async with running(peers.listen(), is_heard):
            as_process("two")
            await peers._tell({"type": "account", "server": str(made.pk), "user": str(bob.user_id)})
            as_process("one")
            await gone(ids["bob"])
        assert [info.user_id for info in connections.live_connections() if info.state == "ready"] == [carol.user_id]


async def test_an_account_that_changed_is_tried_at_once(fake: FakeMCPServer) -> None:
    down = definition("http://127.0.0.1:9/mcp", oauth={})
    to = target_of(down, actor(), {})
    manager = connections.manager()
    for _ in range(3):
        with pytest.raises(ServerUnavailableError):
            async with manager.borrow(to):
                raise AssertionError
    assert manager.breaker.refusal(to.circuit) is not None
    assert peers.here().pauses[0].server_id == down.pk
    await peers.account_changed(down.pk, actor().user_id)
    await asyncio.sleep(0)
    assert manager.breaker.refusal(to.circuit) is None
    troubles.forget(down.pk)
