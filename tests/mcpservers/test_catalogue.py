"""What actors are offered: by grants and rules, from the catalogue, and never held up by somebody's server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.actors import Actor
from accounts.models import Group, Membership, Organization, Role, User
from chatui.rows import in_rows
from mcpservers import catalogue, connections, entries, pins
from mcpservers.approvals import Do
from mcpservers.candidates import load_candidates
from mcpservers.catalogue import Offer, ServerState, WantedServer, offered_to, refresh, server_states
from mcpservers.models import CatalogueEntry, MCPServer, ServerGrant, UserVariables
from tests.fakes.mcp_server import ECHO, WRITE, Exchange, FakeMCPServer, Handler, after, hang, once, status

pytestmark = pytest.mark.django_db(transaction=True)
ActorOf = Callable[[User], Actor]
Made = Callable[..., MCPServer]


@pytest.fixture(autouse=True)
async def _clean() -> AsyncIterator[None]:
    entries.memory.clear()
    yield
    await _close()


async def _close() -> None:
    await catalogue.aclose()
    await connections.aclose()


@pytest.fixture
async def fake() -> AsyncIterator[FakeMCPServer]:
    async with FakeMCPServer() as server:
        yield server
        await _close()


@pytest.fixture
async def fakes() -> AsyncIterator[Callable[[int], Any]]:
    """Start so many servers, which end with the test."""
    async with AsyncExitStack() as stack:

        async def start(count: int) -> list[FakeMCPServer]:
            return [await stack.enter_async_context(FakeMCPServer()) for _ in range(count)]

        yield start
        await _close()


@pytest.fixture
def make_server(organization: Organization) -> Made:
    """A server of Acme that everybody there may use."""

    def make(slug: str = "s", url: str = "", grant: bool = True, **fields: Any) -> MCPServer:
        fields = {"organization": organization, "title": slug.title(), "timeout": 60, "connect_timeout": 60} | fields
        made = MCPServer.objects.create(slug=slug, url=url, **fields)
        if grant:
            ServerGrant.objects.create(server=made, whole_organization=True)
        return made

    return make


@pytest.fixture
def server(make_server: Made, fake: FakeMCPServer) -> MCPServer:
    return make_server(url=fake.url)


@pytest.fixture
def actor(bob: User, actor_of: ActorOf) -> Actor:
    return actor_of(bob)


async def offer(actor: Actor, *servers: MCPServer, **options: Any) -> Offer:
    return await offered_to(actor, [WantedServer(server.pk) for server in servers], **options)


def names(offered: Offer) -> list[str]:
    return [tool.exposed_name for tool in offered.tools]


def problems(offered: Offer) -> list[tuple[str, str]]:
    return [(problem.slug, problem.code) for problem in offered.problems]


async def make(model: Any, **fields: Any) -> Any:
    return await in_rows(model.objects.create, **fields)


async def change(server: MCPServer, **fields: Any) -> None:
    await in_rows(lambda: MCPServer.objects.as_system().filter(pk=server.pk).update(**fields))


def lists(*tools: str) -> Handler:
    async def answer(exchange: Exchange) -> None:
        await exchange.result({"tools": [{"name": tool, "inputSchema": {"type": "object"}} for tool in tools]})

    return answer


# --- The catalogue serves ---------------------------------------------------------------------------------------


async def test_an_unknown_server_is_connected_and_a_known_one_is_not(
    actor: Actor, server: MCPServer, fake: FakeMCPServer
) -> None:
    first = await offer(actor, server)
    assert (names(first), first.problems) == (["s__echo", "s__write"], ())
    heard = len(fake.exchanges)
    await fake.stop()
    for forget in (lambda: None, entries.memory.clear):
        forget()
        assert names(await offer(actor, server)) == ["s__echo", "s__write"]
    assert len(fake.exchanges) == heard


async def test_what_is_offered_says_what_it_is(actor: Actor, server: MCPServer) -> None:
    echo = (await offer(actor, server)).tools[0]
    assert (echo.server_id, echo.server_slug, echo.server_title) == (server.pk, "s", "S")
    assert (echo.name, echo.title, echo.description) == ("echo", "Echo", "Say it again.")
    assert echo.definition.input_schema == ECHO["inputSchema"]
    assert echo.decision is Do.ASK


async def test_twenty_servers_with_fifty_tools_are_offered_within_twenty_milliseconds(
    actor: Actor, make_server: Made
) -> None:
    wanted = await in_rows(_fill_rows, make_server, 20, 50)
    took = []
    for _ in range(12):
        began = time.thread_time()
        offered = await offered_to(actor, wanted)
        took.append((time.thread_time() - began) * 1000)
    assert len(offered.tools) == 1000
    assert not offered.problems
    assert min(took) < 20, "milliseconds of this thread, which the loop shares with everybody"


def _fill_rows(make_server: Made, servers: int, tools: int) -> list[WantedServer]:
    schema = {"type": "object", "properties": {"q": {"type": "string"}, "n": {"type": ["integer", "null"]}}}
    listed = [{"name": f"tool_{n}", "description": "d" * 100, "inputSchema": schema} for n in range(tools)]
    wanted = []
    for number in range(servers):
        made = make_server(f"s-{number}", "https://example.org/mcp", rules=[{"tool": "x*", "do": "deny"}])
        _store(made, listed)
        wanted.append(WantedServer(made.pk))
    return wanted


def _store(server: MCPServer, tools: list[dict[str, Any]], **fields: Any) -> None:
    fields = {"fetched_at": timezone.now(), "revision": entries.new_revision()} | fields
    CatalogueEntry.objects.create(server=server, definition_hash=server.definition_hash(), tools=tools, **fields)


def test_the_number_of_queries_does_not_grow_with_the_servers(actor: Actor, make_server: Made) -> None:
    counts = []
    every = _fill_rows(make_server, 12, 2)
    load_candidates(actor, every, "openai")  # the first time what each lists is taken down
    for wanted in (every[:1], every):
        entries.memory.clear()
        pins.memory.clear()
        with CaptureQueriesContext(connection) as queries:
            loaded = load_candidates(actor, wanted, "openai")
        counts.append(len(queries.captured_queries))
        assert all(candidate.entry is not None for candidate in loaded)
    assert counts[0] == counts[1] <= 7


async def test_nothing_wanted_asks_nobody(actor: Actor) -> None:
    assert await offered_to(actor, []) == Offer()


# --- Grants, rules, globs ---------------------------------------------------------------------------------------


async def test_without_a_grant_nothing_is_offered_and_nobody_is_connected(
    actor: Actor, make_server: Made, fake: FakeMCPServer
) -> None:
    server = await in_rows(make_server, url=fake.url, grant=False)
    offered = await offer(actor, server)
    assert (names(offered), problems(offered)) == ([], [("s", "not_granted")])
    assert not fake.exchanges


async def test_grants_name_groups_users_and_tools(
    actor_of: ActorOf, alice: User, bob: User, organization: Organization, make_server: Made, fake: FakeMCPServer
) -> None:
    def grants() -> MCPServer:
        made = make_server(url=fake.url, grant=False)
        group = Group.objects.create(organization=organization, slug="g")
        Membership.objects.get(user=bob).groups.add(group)
        ServerGrant.objects.create(server=made, group=group, tool="e*")
        ServerGrant.objects.create(server=made, user=alice)
        ServerGrant.objects.create(server=made, user=alice, tool="write", deny=True)
        return made

    server = await in_rows(grants)
    for user in (alice, bob):
        offered = await offer(await in_rows(actor_of, user), server)
        assert names(offered) == ["s__echo"]
        assert not offered.problems, "a tool that is denied does not take the server away"
        assert [tool.name for tool in offered.withheld] == ["write"]


async def test_a_denied_server_is_not_given_back_by_a_grant_of_a_tool(actor: Actor, server: MCPServer) -> None:
    await make(ServerGrant, server=server, user_id=actor.user_id, deny=True)
    await make(ServerGrant, server=server, user_id=actor.user_id, tool="echo")
    offered = await offer(actor, server)
    assert (names(offered), problems(offered)) == ([], [("s", "not_granted")])


async def test_a_guest_is_given_only_what_names_the_guest(
    make_member: Any, actor_of: ActorOf, organization: Organization, server: MCPServer
) -> None:
    guest = await in_rows(lambda: actor_of(make_member("gus", organization, Role.GUEST)))
    assert problems(await offer(guest, server)) == [("s", "not_granted")]
    await make(ServerGrant, server=server, user_id=guest.user_id, tool="echo")
    assert names(await offer(guest, server)) == ["s__echo"]


async def test_another_organizations_server_does_not_exist(charlie: User, actor_of: ActorOf, server: MCPServer) -> None:
    foreigner = await in_rows(actor_of, charlie)
    assert await offer(foreigner, server) == Offer()
    assert await server_states(foreigner, [server.pk]) == []


async def test_a_server_that_is_off_offers_nothing(actor: Actor, server: MCPServer, fake: FakeMCPServer) -> None:
    await change(server, enabled=False)
    assert problems(await offer(actor, server)) == [("s", "disabled")]
    assert not fake.exchanges


async def test_rules_withhold_what_they_deny_and_decide_the_rest(actor: Actor, server: MCPServer) -> None:
    await change(server, rules=[{"tool": "write", "do": "deny"}, {"tool": "echo", "do": "allow"}])
    offered = await offer(actor, server, agent_rules=[{"tool": "s__echo", "do": "ask"}])
    assert names(offered) == ["s__echo"]
    assert offered.tools[0].decision is Do.ASK
    assert "write" in offered.withheld[0].withheld


async def test_hints_of_the_server_grant_nothing_and_an_admins_word_does(actor: Actor, server: MCPServer) -> None:
    assert (await offer(actor, server)).tools[0].decision is Do.ASK, "echo claims to be read-only"
    await change(server, read_only=["ec*"])
    assert [tool.decision for tool in (await offer(actor, server)).tools] == [Do.ALLOW, Do.ASK]


async def test_an_agent_may_want_only_some_tools(actor: Actor, server: MCPServer) -> None:
    offered = await offered_to(actor, [WantedServer(server.pk, ("e*", "x"))])
    assert names(offered) == ["s__echo"]
    assert not offered.withheld


async def test_no_number_of_tools_makes_one_of_them_vanish(actor: Actor, make_server: Made) -> None:
    wanted = await in_rows(_fill_rows, make_server, 3, 50)
    offered = await offered_to(actor, wanted)
    assert len(offered.tools) == 150
    assert not offered.problems
    assert not offered.withheld


async def test_instructions_are_an_admins_choice(actor: Actor, server: MCPServer) -> None:
    assert (await offer(actor, server)).instructions == ()
    await change(server, use_instructions=True)
    assert (await offer(actor, server)).instructions == (("S", "Be kind."),)


async def test_a_tool_that_cannot_be_repaired_costs_only_itself(
    actor: Actor, server: MCPServer, fake: FakeMCPServer
) -> None:
    fake.tools = [ECHO, {"name": "bad", "inputSchema": {"type": "string"}}, WRITE]
    offered = await offer(actor, server)
    assert names(offered) == ["s__echo", "s__write"]
    assert [(tool.name, bool(tool.withheld)) for tool in offered.withheld] == [("bad", True)]


# --- Users of their own -----------------------------------------------------------------------------------------


@pytest.fixture
def own(make_server: Made, fake: FakeMCPServer) -> MCPServer:
    """A server that lists other tools for another token."""

    async def by_token(exchange: Exchange) -> None:
        token = exchange.headers.get("x-token", "")
        await lists({"t-alice": "admin_tool", "t-bob": "basic"}.get(token, f"other_{token}"))(exchange)

    fake.on("tools/list", by_token)
    return make_server(url=fake.url, headers={"X-Token": "{{TOKEN}}"}, variables={"TOKEN": {"title": "Token"}})


async def test_tools_depend_on_the_user(
    own: MCPServer, alice: User, bob: User, actor_of: ActorOf, fake: FakeMCPServer
) -> None:
    actors = {user.username: await in_rows(actor_of, user) for user in (alice, bob)}
    for name, who in actors.items():
        await make(UserVariables, server=own, user_id=who.user_id, values={"TOKEN": f"t-{name}"})
    for forget in (lambda: None, entries.memory.clear, lambda: None):
        assert names(await offer(actors["alice"], own)) == ["s__admin_tool"]
        assert names(await offer(actors["bob"], own)) == ["s__basic"]
        forget()
    assert fake.count("tools/list") == 2


async def test_a_server_whose_variables_are_missing_says_what_to_do(
    own: MCPServer, actor: Actor, fake: FakeMCPServer
) -> None:
    offered = await offer(actor, own)
    assert problems(offered) == [("s", "not_ready")]
    assert [state.state for state in await server_states(actor, [own.pk])] == ["needs_setup"]
    assert not fake.exchanges


async def test_a_changed_value_is_another_list(own: MCPServer, actor: Actor) -> None:
    row = await make(UserVariables, server=own, user_id=actor.user_id, values={"TOKEN": "t-bob"})
    assert names(await offer(actor, own)) == ["s__basic"]
    row.values = {"TOKEN": "z"}
    await in_rows(row.save)
    assert names(await offer(actor, own)) == ["s__other_z"]
    assert await in_rows(CatalogueEntry.objects.count) == 1


# --- Change -----------------------------------------------------------------------------------------------------


async def test_a_list_that_changes_is_offered_in_the_next_turn(
    actor: Actor, server: MCPServer, fake: FakeMCPServer
) -> None:
    fake.on("tools/list", lists("alpha"))
    assert names(await offer(actor, server)) == ["s__alpha"]
    await fake.heard("GET")
    fake.on("tools/list", lists("beta"))
    await fake.notify("notifications/tools/list_changed")
    await fake.heard("tools/list", 2)
    assert names(await offer(actor, server)) == ["s__beta"]
    entries.memory.clear()
    assert names(await offer(actor, server)) == ["s__beta"]


async def test_a_change_during_a_listing_is_not_lost(actor: Actor, server: MCPServer, fake: FakeMCPServer) -> None:
    gate = asyncio.Event()
    fake.on("tools/list", once(after(gate, lists("old")), lists("new")))
    asking = asyncio.create_task(offer(actor, server))
    await fake.heard("tools/list")
    await fake.heard("GET")
    changed = _changed_callback()
    await fake.notify("notifications/tools/list_changed")
    await changed.wait()
    gate.set()
    assert names(await asking) == ["s__new"]


def _changed_callback() -> asyncio.Event:
    """Set once the manager has told everybody of a change."""
    heard = asyncio.Event()

    async def hear(_: object) -> None:
        heard.set()

    connections.manager().on_tools_changed.append(hear)
    return heard


async def test_changes_are_heard_also_by_a_process_that_listed_nothing(
    actor: Actor, server: MCPServer, fake: FakeMCPServer
) -> None:
    await in_rows(_store, server, [{"name": "stored", "inputSchema": {}}])
    assert names(await offer(actor, server)) == ["s__stored"]
    target = (await in_rows(load_candidates, actor, [WantedServer(server.pk)], "openai"))[0].target
    assert target is not None
    async with connections.manager().borrow(target):
        await fake.until(lambda: bool(fake.open_streams))
        await fake.notify("notifications/tools/list_changed")
        await fake.heard("tools/list")
    assert names(await offer(actor, server)) == ["s__echo", "s__write"]


async def test_a_changed_definition_is_another_entry(actor: Actor, server: MCPServer, fakes: Any) -> None:
    await offer(actor, server)
    (other,) = await fakes(1)
    other.tools = [WRITE]
    await change(server, url=other.url)
    assert names(await offer(actor, server)) == ["s__write"]


async def test_a_stale_entry_serves_at_once_and_is_listed_again_behind(
    actor: Actor, server: MCPServer, fake: FakeMCPServer
) -> None:
    old = timezone.now() - timedelta(hours=13)
    await in_rows(lambda: _store(server, [{"name": "old", "inputSchema": {}}], fetched_at=old))
    gate = asyncio.Event()
    fake.on("tools/list", after(gate, lists("new")))
    assert names(await offer(actor, server)) == ["s__old"]
    await fake.heard("tools/list")
    gate.set()
    for task in [task for task in asyncio.all_tasks() if task.get_name() == "catalogue-s"]:
        await asyncio.wait([task])
    assert names(await offer(actor, server)) == ["s__new"]


async def test_an_incomplete_list_serves_this_turn_and_is_not_kept(
    actor: Actor, server: MCPServer, fake: FakeMCPServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def circle(exchange: Exchange) -> None:
        await exchange.result({"tools": [ECHO], "nextCursor": "c1"})

    fake.on("tools/list", circle)
    offered = await offer(actor, server)
    assert (names(offered), problems(offered)) == (["s__echo"], [("s", "incomplete")])
    assert "same cursor" in caplog.text
    assert not await in_rows(CatalogueEntry.objects.exists)
    fake.on("tools/list", None)
    assert names(await offer(actor, server)) == ["s__echo", "s__write"]


# --- Trouble ----------------------------------------------------------------------------------------------------


def listings(*slugs: str) -> set[asyncio.Task[Any]]:
    """The tasks that still list these servers."""
    return {task for task in asyncio.all_tasks() if task.get_name() in {f"catalogue-{slug}" for slug in slugs}}


async def test_one_silent_server_holds_nobody_up(
    actor: Actor, make_server: Made, fakes: Any, settings: Any, ahead: Callable[[float], None]
) -> None:
    started = await fakes(5)
    started[2].on("POST", hang)
    servers = [await in_rows(make_server, f"s{at}", each.url, connect_timeout=600) for at, each in enumerate(started)]
    offering = asyncio.create_task(offer(actor, *servers))
    await started[2].heard("POST")
    while others := listings("s0", "s1", "s3", "s4"):
        await asyncio.wait(others)
    ahead(settings.MCP["OFFER_BUDGET_SECONDS"])
    offered = await offering
    assert {name.partition("__")[0] for name in names(offered)} == {"s0", "s1", "s3", "s4"}
    assert problems(offered) == [("s2", "unavailable")]
    assert "next message" in offered.problems[0].message


async def test_a_silent_server_is_waited_for_once_not_in_every_turn(
    actor: Actor, make_server: Made, fakes: Any, settings: Any, ahead: Callable[[float], None]
) -> None:
    silent, well = await fakes(2)
    silent.on("POST", hang)
    servers = [
        await in_rows(make_server, "silent", silent.url, connect_timeout=3600),
        await in_rows(make_server, "well", well.url),
    ]
    first = asyncio.create_task(offer(actor, *servers))
    await silent.heard("POST")
    while others := listings("well"):
        await asyncio.wait(others)
    ahead(settings.MCP["OFFER_BUDGET_SECONDS"])
    assert problems(await first) == [("silent", "unavailable")]
    settings.MCP = {**settings.MCP, "OFFER_BUDGET_SECONDS": 1200}
    for wanted in (servers, servers[:1]):
        again = await offer(actor, *wanted)
        assert problems(again) == [("silent", "unavailable")]


async def test_a_late_server_is_offered_in_the_next_turn(
    actor: Actor, server: MCPServer, fake: FakeMCPServer, settings: Any
) -> None:
    settings.MCP = {**settings.MCP, "OFFER_BUDGET_SECONDS": 0.1}
    gate = asyncio.Event()
    fake.on("tools/list", after(gate, lists("late")))
    assert problems(await offer(actor, server)) == [("s", "unavailable")]
    gate.set()
    for task in [task for task in asyncio.all_tasks() if task.get_name() == "catalogue-s"]:
        await asyncio.wait([task])
    assert names(await offer(actor, server)) == ["s__late"]
    assert fake.count("tools/list") == 1


async def test_a_server_that_fails_is_not_tried_again_at_once(
    actor: Actor, server: MCPServer, fake: FakeMCPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.on("POST", status(500))
    assert problems(await offer(actor, server)) == [("s", "unavailable")]
    tried = len(fake.exchanges)
    assert problems(await offer(actor, server)) == [("s", "unavailable")]
    assert [state.state for state in await server_states(actor, [server.pk])] == ["error"]
    assert len(fake.exchanges) == tried
    fake.on("POST", None)
    catalogue.invalidate(server.pk)
    assert names(await offer(actor, server)) == ["s__echo", "s__write"]


async def test_one_users_failure_is_not_another_users(
    own: MCPServer, alice: User, bob: User, actor_of: ActorOf, fake: FakeMCPServer
) -> None:
    async def refuse_bob(exchange: Exchange) -> None:
        if exchange.headers.get("x-token") == "t-bob":
            await exchange.respond(401)
        else:
            await fake.usual(exchange)

    fake.on("POST", refuse_bob)
    for user in (alice, bob):
        await make(UserVariables, server=own, user_id=user.pk, values={"TOKEN": f"t-{user.username}"})
    assert problems(await offer(await in_rows(actor_of, bob), own)) == [("s", "unavailable")]
    assert not problems(await offer(await in_rows(actor_of, alice), own))


async def test_many_who_ask_at_once_cause_one_listing(actor: Actor, server: MCPServer, fake: FakeMCPServer) -> None:
    offers = await asyncio.gather(*(offer(actor, server) for _ in range(8)))
    assert all(names(each) == ["s__echo", "s__write"] for each in offers)
    assert fake.count("tools/list") == 1


async def test_who_stops_asking_stops_no_listing(actor: Actor, server: MCPServer, fake: FakeMCPServer) -> None:
    gate = asyncio.Event()
    fake.on("tools/list", after(gate, lists("a")))
    asking = asyncio.create_task(offer(actor, server))
    await fake.heard("tools/list")
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    gate.set()
    assert names(await offer(actor, server)) == ["s__a"]
    assert fake.count("tools/list") == 1


async def test_a_failure_of_our_own_is_logged_and_told_without_detail(
    actor: Actor, server: MCPServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(entries, "store", broken)
    with caplog.at_level(logging.ERROR):
        offered = await offer(actor, server)
    assert problems(offered) == [("s", "unavailable")]
    assert "secret" not in offered.problems[0].message
    assert "secret" in caplog.text


# --- The picker, the admin, the start of a process --------------------------------------------------------------


async def test_states_come_at_once_and_what_is_unknown_is_listed_meanwhile(
    actor: Actor, server: MCPServer, make_server: Made, fake: FakeMCPServer
) -> None:
    gate = asyncio.Event()
    fake.on("tools/list", after(gate, lists("a")))
    off = await in_rows(lambda: make_server("off", fake.url, enabled=False))
    states = await server_states(actor, [server.pk, off.pk, uuid4()])
    assert [(state.slug, state.state) for state in states] == [("s", "unknown"), ("off", "off")]
    gate.set()
    await offer(actor, server)
    (state,) = await server_states(actor, [server.pk])
    assert isinstance(state, ServerState)
    assert (state.state, [tool.exposed_name for tool in state.tools]) == ("ready", ["s__a"])


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_refresh_tells_how_it_went_and_is_what_is_offered(actor: Actor, make_server: Made, era: str) -> None:
    async with FakeMCPServer(era=era) as fake:
        server = await in_rows(make_server, url=fake.url)
        report = await refresh(server.pk)
        assert (report.tools, report.error, report.transport) == (2, "", "streamable-http")
        assert report.era == era
        assert report.protocol_version == {"legacy": "2025-11-25", "modern": "2026-07-28"}[era]
        assert report.server_info["name"] == "fake"
    assert names(await offer(actor, server)) == ["s__echo", "s__write"], "though the server is gone"
    assert not connections.manager().list_connections()


async def test_a_refresh_tests_connecting_and_not_an_open_connection(
    actor: Actor, server: MCPServer, fake: FakeMCPServer
) -> None:
    await offer(actor, server)
    fake.on("POST", status(401))
    report = await refresh(server.pk)
    assert report.tools == 0
    assert report.error == "“S” cannot be reached: it wants a sign-in, or the credentials are wrong (HTTP 401)."
    assert names(await offer(actor, server)) == ["s__echo", "s__write"], "what is known serves on"


async def test_a_refresh_of_a_users_server_needs_the_users_values(own: MCPServer, actor: Actor) -> None:
    assert (await refresh(own.pk)).error == "Set up first: Token."
    await make(UserVariables, server=own, user_id=actor.user_id, values={"TOKEN": "t-bob"})
    assert (await refresh(own.pk, actor=actor)).tools == 1
    assert names(await offer(actor, own)) == ["s__basic"]


async def test_a_refresh_lets_a_failed_server_be_tried_again(
    actor: Actor, server: MCPServer, fake: FakeMCPServer
) -> None:
    fake.on("POST", status(500))
    assert problems(await offer(actor, server)) == [("s", "unavailable")]
    fake.on("POST", None)
    assert not (await refresh(server.pk)).error
    assert names(await offer(actor, server)) == ["s__echo", "s__write"]


async def test_a_refresh_reports_warnings(server: MCPServer, fake: FakeMCPServer) -> None:
    fake.tools = [{"name": "re\u200bad", "inputSchema": {}}, 7]
    assert len((await refresh(server.pk)).warnings) == 2


async def test_a_process_fills_the_catalogue_when_it_starts(
    actor: Actor, make_server: Made, fakes: Any, own: MCPServer
) -> None:
    started = await fakes(3)
    started[0].on("POST", status(500))
    servers = [await in_rows(make_server, f"s{at}", each.url) for at, each in enumerate(started)]
    await catalogue.fill()
    for each in started:
        await each.stop()
    offered = await offer(actor, *servers)
    assert {name.partition("__")[0] for name in names(offered)} == {"s1", "s2"}
    assert await in_rows(lambda: own.catalogue_entries.exists()) is False, "nobody's values are used"
    asked: list[UUID] = [server.pk for server in servers[1:]]
    assert await in_rows(CatalogueEntry.objects.filter(server__in=asked).count) == 2


async def test_filling_again_asks_only_for_what_is_not_known(server: MCPServer, fake: FakeMCPServer) -> None:
    await catalogue.fill()
    await catalogue.fill()
    assert fake.count("tools/list") == 1


async def test_a_saved_server_is_listed_anew_behind(
    actor: Actor, server: MCPServer, fake: FakeMCPServer, fakes: Any
) -> None:
    await offer(actor, server)
    (other,) = await fakes(1)
    await change(server, url=other.url)
    await in_rows(catalogue.invalidate, server.pk)
    await other.heard("tools/list")
    await change(server, enabled=False)
    await in_rows(catalogue.invalidate, server.pk)
    assert other.count("tools/list") == 1
