"""A tool call from the rows to the server and back: who may, what is repeated, what the model is told."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection as database
from django.db.backends.utils import CursorWrapper
from django.test.utils import CaptureQueriesContext

from accounts.actors import Actor
from accounts.models import Group, Membership, Organization, Role, User
from chatui.rows import in_rows
from mcpservers import connections, sending
from mcpservers.calls import ToolOutcome, authorize_call, call_tool
from mcpservers.models import MCPServer, ServerGrant, UserVariables
from tests.fakes.mcp_server import Exchange, FakeMCPServer, Handler, after, big, body, die, hang, once, status

pytestmark = pytest.mark.django_db(transaction=True)
ActorOf = Callable[[User], Actor]
Ahead = Callable[[float], None]


@pytest.fixture
async def fake() -> AsyncIterator[FakeMCPServer]:
    async with FakeMCPServer() as server:
        yield server


@pytest.fixture(autouse=True)
async def _closed() -> AsyncIterator[None]:
    yield
    await connections.aclose()


@pytest.fixture
def server(organization: Organization, fake: FakeMCPServer) -> MCPServer:
    made = MCPServer.objects.create(
        organization=organization, slug="tickets", title="Tickets", url=fake.url, timeout=60, connect_timeout=60
    )
    ServerGrant.objects.create(server=made, whole_organization=True)
    return made


@pytest.fixture
def call(server: MCPServer, bob: User, actor_of: ActorOf) -> Callable[..., Any]:
    """Call a tool of the server as Bob."""
    actor = actor_of(bob)

    async def run(tool: str = "echo", arguments: dict[str, Any] | None = None, **options: Any) -> ToolOutcome:
        async def progress(*_: object) -> None: ...

        options = {"turn_id": uuid4(), "progress": progress} | options
        return await call_tool(options.pop("actor", actor), server.pk, tool, arguments or {"text": "hi"}, **options)

    return run


async def row(server: MCPServer, **fields: Any) -> MCPServer:
    """The server's row, changed first."""

    def change() -> MCPServer:
        MCPServer.objects.as_system().filter(pk=server.pk).update(**fields)
        return MCPServer.objects.as_system().get(pk=server.pk)

    if fields:
        return await in_rows(change)
    return await in_rows(MCPServer.objects.as_system().get, pk=server.pk)


# --- What comes back --------------------------------------------------------------------------------------------


async def test_a_result_comes_back_and_what_was_learnt_is_stored(call: Any, server: MCPServer) -> None:
    outcome = await call()
    assert (outcome.status, outcome.text) == ("ok", "hi")
    assert outcome.content == ({"type": "text", "text": "hi"},)
    assert outcome.duration_ms > 0
    stored = await row(server)
    assert stored.era["transport"] == "streamable-http"
    assert stored.era["mode"] == "legacy"
    assert stored.last_connected_at is not None
    assert stored.last_error == ""


async def test_a_tools_own_error_is_an_error_and_never_repeats_our_secret(
    call: Any, server: MCPServer, fake: FakeMCPServer
) -> None:
    async def fail(exchange: Exchange) -> None:
        text = f"invalid key in {exchange.headers['authorization']}"
        await exchange.result({"content": [{"type": "text", "text": text}], "isError": True})

    await row(server, headers={"Authorization": "Bearer hunter22"})
    fake.on("tools/call", fail)
    outcome = await call()
    assert (outcome.status, outcome.text) == ("error", "invalid key in •••")


async def test_arguments_reach_the_server_as_storable_text(call: Any, fake: FakeMCPServer) -> None:
    await call("echo", {"text": "a\ud800b\0c", "deep": [{"x": "\udfff"}]})
    assert (await fake.heard("tools/call")).params["arguments"] == {
        "text": "a\ufffdb\ufffdc",
        "deep": [{"x": "\ufffd"}],
    }


async def test_a_number_that_json_lacks_is_an_error_and_harms_nothing(call: Any, fake: FakeMCPServer) -> None:
    assert (await call("echo", {"n": float("nan")})).status == "error"
    assert fake.count("tools/call") == 0
    assert (await call()).status == "ok"


async def test_progress_is_passed_on(call: Any, fake: FakeMCPServer) -> None:
    told: asyncio.Queue[Any] = asyncio.Queue()

    async def progressed(*progress: Any) -> None:
        await told.put(progress)

    async def slow(exchange: Exchange) -> None:
        await exchange.progress(1, 3, "one of three")
        await exchange.server.reply(exchange)

    fake.on("tools/call", slow)
    assert (await call(progress=progressed)).status == "ok"
    assert await told.get() == (1, 3, "one of three")


async def test_a_question_that_nobody_can_answer_is_an_error(call: Any, fake: FakeMCPServer) -> None:
    fake.era = "modern"

    async def ask(exchange: Exchange) -> None:
        await exchange.result({"resultType": "input_required", "inputRequests": {}})

    fake.on("tools/call", ask)
    outcome = await call()
    assert outcome.status == "error"
    assert "asks a person" in outcome.text


# --- Who may ----------------------------------------------------------------------------------------------------


async def test_without_a_grant_nothing_is_sent(call: Any, server: MCPServer, fake: FakeMCPServer) -> None:
    await in_rows(server.grants.all().delete)
    outcome = await call()
    assert outcome.status == "denied"
    assert "not granted" in outcome.text
    assert fake.connections == 0


async def test_a_demotion_or_an_exclusion_counts_from_the_next_call_on(
    call: Any, server: MCPServer, bob: User, fake: FakeMCPServer
) -> None:
    assert (await call()).status == "ok"
    await in_rows(Membership.objects.filter(user=bob).update, role=Role.AUDITOR)
    assert (await call()).status == "denied"
    await in_rows(Membership.objects.filter(user=bob).update, role=Role.MEMBER, is_active=False)
    outcome = await call()
    assert outcome.status == "denied"
    assert "no longer a member" in outcome.text
    assert fake.count("tools/call") == 1


async def test_a_call_that_had_to_wait_is_looked_at_again_just_before_it_is_sent(
    call: Any, server: MCPServer, fake: FakeMCPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def withdrawn_meanwhile(exchange: Exchange) -> None:
        await in_rows(server.grants.all().delete)
        await fake.usual(exchange)

    monkeypatch.setattr(sending, "STALE_SECONDS", 0.0)
    fake.on("initialize", withdrawn_meanwhile)
    outcome = await call()
    assert (outcome.status, "not granted to you" in outcome.text) == ("denied", True)
    assert fake.count("tools/call") == 0


async def test_a_server_that_is_switched_off_is_not_called(call: Any, server: MCPServer, fake: FakeMCPServer) -> None:
    await row(server, enabled=False)
    outcome = await call()
    assert outcome.status == "denied"
    assert "switched off" in outcome.text
    assert fake.connections == 0


async def test_another_organizations_server_does_not_exist(
    call: Any, charlie: User, actor_of: ActorOf, fake: FakeMCPServer
) -> None:
    outcome = await call(actor=await in_rows(actor_of, charlie))
    assert outcome.status == "denied"
    assert "no such server" in outcome.text
    assert fake.connections == 0


async def test_a_rule_that_denies_holds_at_the_call_too(call: Any, server: MCPServer, fake: FakeMCPServer) -> None:
    await row(server, rules=[{"tool": "write*", "do": "deny"}, {"tool": "*", "do": "allow"}])
    assert (await call("write_all")).status == "denied"
    assert (await call("echo")).status == "ok"
    assert fake.count("tools/call") == 1


async def test_a_tool_that_the_agent_does_not_offer_is_denied(call: Any) -> None:
    assert (await call("echo", allow_globs=("get_*", "search"))).status == "denied"
    assert (await call("echo", allow_globs=("get_*", "ec*"))).status == "ok"


def test_grants_may_name_tools_groups_and_people_and_deny_wins(
    server: MCPServer, bob: User, organization: Organization, actor_of: ActorOf
) -> None:
    server.grants.all().delete()
    team = Group.objects.create(organization=organization, slug="team")
    Membership.objects.get(user=bob).groups.add(team)
    ServerGrant.objects.create(server=server, group=team, tool="get_*")
    actor = actor_of(bob)
    assert authorize_call(actor, server.pk, "get_one").allowed
    assert not authorize_call(actor, server.pk, "write").allowed
    ServerGrant.objects.create(server=server, user=bob, tool="get_secret", deny=True)
    assert not authorize_call(actor, server.pk, "get_secret").allowed
    assert authorize_call(actor, server.pk, "get_one").allowed


def test_the_scopes_of_a_key_hold_although_the_rows_do_not_know_them(
    server: MCPServer, bob: User, actor_of: ActorOf
) -> None:
    narrow = replace(actor_of(bob), scopes=frozenset({"read"}))
    assert not authorize_call(narrow, server.pk, "echo").allowed


def test_authorizing_takes_three_queries_however_many_grants_there_are(
    server: MCPServer, bob: User, organization: Organization, actor_of: ActorOf
) -> None:
    for number in range(20):
        group = Group.objects.create(organization=organization, slug=f"g{number}")
        Membership.objects.get(user=bob).groups.add(group)
        ServerGrant.objects.create(server=server, group=group)
    actor = actor_of(bob)
    with CaptureQueriesContext(database) as queries:
        assert authorize_call(actor, server.pk, "echo").allowed
    assert len(queries) == 3


# --- Users' own values --------------------------------------------------------------------------------------------


@pytest.fixture
async def personal(server: MCPServer) -> MCPServer:
    """The server with a variable that each user sets."""
    variables = {"TOKEN": {"title": "Personal token", "sensitive": True}}
    return await row(server, variables=variables, headers={"Authorization": "Bearer {{TOKEN}}"})


async def test_a_warm_call_crosses_to_rows_once_and_asks_nothing_but_whether_it_may(
    call: Any, fake: FakeMCPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From one end to the other, in whichever thread."""
    await call()
    asked: list[tuple[int, str]] = []
    execute = CursorWrapper.execute

    def counting(self: CursorWrapper, sql: str, params: Any = None) -> Any:
        asked.append((threading.get_ident(), sql))
        return execute(self, sql, params)

    monkeypatch.setattr(CursorWrapper, "execute", counting)
    assert (await call()).status == "ok"
    assert len({thread for thread, _ in asked}) == 1
    assert len(asked) == 3, "member, grants with the server, pins"
    assert all(sql.startswith("SELECT") for _, sql in asked)


async def test_a_missing_value_is_said_by_title_and_nothing_is_sent(
    call: Any, personal: MCPServer, fake: FakeMCPServer
) -> None:
    outcome = await call()
    assert outcome.status == "unavailable"
    assert "Personal token" in outcome.text
    assert fake.connections == 0


async def test_each_user_calls_with_the_own_value_and_a_new_one_counts_at_once(
    call: Any, personal: MCPServer, alice: User, bob: User, actor_of: ActorOf, fake: FakeMCPServer
) -> None:
    for user, value in ((alice, "of-alice"), (bob, "of-bob-1")):
        await in_rows(UserVariables.objects.create, server=personal, user=user, values={"TOKEN": value})
    await call()
    await call(actor=await in_rows(actor_of, alice))
    await in_rows(UserVariables.objects.filter(user=bob).update, values={"TOKEN": "of-bob-2"})
    await call()
    sent = [exchange.headers["authorization"] for exchange in fake.exchanges_of("tools/call")]
    assert sent == ["Bearer of-bob-1", "Bearer of-alice", "Bearer of-bob-2"]
    assert len(fake.sessions) == 3


# --- Trouble --------------------------------------------------------------------------------------------------------


async def test_a_server_that_is_down_is_unavailable_in_words_and_noted_for_the_admin(
    call: Any, server: MCPServer, fake: FakeMCPServer
) -> None:
    await fake.stop()
    outcome = await call()
    assert outcome.status == "unavailable"
    assert "“Tickets” cannot be reached" in outcome.text
    assert "cannot be reached" in (await row(server)).last_error


async def test_one_users_trouble_is_not_noted_as_the_servers(
    call: Any, personal: MCPServer, bob: User, fake: FakeMCPServer
) -> None:
    await in_rows(UserVariables.objects.create, server=personal, user=bob, values={"TOKEN": "wrong-token"})
    fake.on("POST", status(401))
    outcome = await call()
    assert (outcome.status, "sign-in" in outcome.text) == ("unavailable", True)
    assert (await row(personal)).last_error == ""


async def test_a_hanging_tool_times_out_and_the_next_call_works(call: Any, fake: FakeMCPServer, ahead: Ahead) -> None:
    fake.on("tools/call", hang)
    running = asyncio.create_task(call())
    await fake.heard("tools/call")
    ahead(60)
    outcome = await running
    assert outcome.status == "timeout"
    assert "no answer within 60 s" in outcome.text
    assert "may have taken effect" in outcome.text
    fake.on("tools/call", None)
    assert (await call()).status == "ok"


async def test_progress_for_ever_ends_at_the_absolute_limit(
    call: Any, fake: FakeMCPServer, settings: Any, ahead: Ahead
) -> None:
    settings.MCP = settings.MCP | {"CALL_MAX_SECONDS": 100}
    told = asyncio.Semaphore(1)

    async def forever(exchange: Exchange) -> None:
        for _ in range(10):
            await told.acquire()
            await exchange.progress(1)
        await exchange.server.reply(exchange)

    async def progressed(*_: object) -> None:
        ahead(40)
        told.release()

    fake.on("tools/call", forever)
    outcome = await call(progress=progressed)
    assert (outcome.status, "no result within 100 s" in outcome.text) == ("timeout", True)


async def test_an_answer_above_the_limit_is_an_error(call: Any, fake: FakeMCPServer, settings: Any) -> None:
    settings.MCP = settings.MCP | {"MAX_MESSAGE": 2**20}
    fake.on("tools/call", big(2 * 2**20))
    outcome = await call()
    assert (outcome.status, "larger than 1048576 bytes" in outcome.text) == ("error", True)


@pytest.mark.parametrize(
    "answer",
    [
        body('{"jsonrpc":"2.0","id":{id},"result":{}}'),
        body('{"jsonrpc":"2.0","id":{id},"result":{"content":"text"}}'),
        body('{"jsonrpc":"2.0","id":{id},"result":{"content":[1,null,{"type":"image"}],"structuredContent":[1]}}'),
        body('{"jsonrpc":"2.0","id":{id},"result":{"content":null,"isError":"yes"}}'),
    ],
)
async def test_a_malformed_result_never_raises(call: Any, answer: Handler, fake: FakeMCPServer) -> None:
    fake.on("tools/call", answer)
    outcome = await call()
    assert outcome.status in ("ok", "error")
    assert outcome.text


async def test_a_fault_of_our_own_is_an_error_result_without_its_details(
    call: Any, fake: FakeMCPServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("table secret_table")

    monkeypatch.setattr("mcpservers.results.normalise", broken)
    outcome = await call()
    assert outcome.status == "error"
    assert "secret_table" not in outcome.text
    assert "secret_table" in caplog.text


# --- A tool never runs twice by our doing -----------------------------------------------------------------------


async def test_a_session_that_the_server_forgot_is_replaced_and_the_call_made_once_more(
    call: Any, fake: FakeMCPServer
) -> None:
    await call("write")
    fake.forget_sessions()
    assert (await call("write")).status == "ok"
    assert len(fake.sessions) == 2


async def test_a_session_that_is_forgotten_again_and_again_ends_in_an_error(call: Any, fake: FakeMCPServer) -> None:
    fake.on("tools/call", status(404))
    outcome = await call("write")
    assert (outcome.status, "no longer knows the session" in outcome.text) == ("unavailable", True)
    assert fake.count("tools/call") == 2


@pytest.mark.parametrize("fault", [die, status(200, content_type="text/event-stream")])
async def test_a_writing_tool_whose_connection_was_lost_is_not_repeated(
    call: Any, fake: FakeMCPServer, fault: Handler
) -> None:
    fake.on("tools/call", once(fault))
    outcome = await call("write")
    assert outcome.status == "error"
    assert "may have taken effect" in outcome.text
    assert fake.count("tools/call") == 1
    assert (await call("write")).status == "ok"


async def test_a_tool_that_only_reads_is_repeated_once(call: Any, server: MCPServer, fake: FakeMCPServer) -> None:
    fake.on("tools/call", once(die))
    assert (await call("echo", annotations={"readOnlyHint": True})).status == "ok"
    fake.on("tools/call", once(die))
    await row(server, read_only=["ec*"])
    assert (await call("echo")).status == "ok"
    assert fake.count("tools/call") == 4
    fake.on("tools/call", die)
    assert (await call("echo")).status == "error"
    assert fake.count("tools/call") == 6


async def test_an_error_answer_is_never_repeated(call: Any, fake: FakeMCPServer) -> None:
    fake.on("tools/call", status(500))
    assert (await call("echo", annotations={"readOnlyHint": True})).status == "error"
    assert fake.count("tools/call") == 1


async def test_stopping_reaches_the_server_and_the_connection_stays(call: Any, fake: FakeMCPServer) -> None:
    fake.on("tools/call", hang)
    running = asyncio.create_task(call())
    exchange = await fake.heard("tools/call")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await fake.until(lambda: exchange.message["id"] in fake.cancelled)
    fake.on("tools/call", None)
    assert (await call()).status == "ok"
    assert len(fake.sessions) == 1


# --- Parameter headers of the stateless era ---------------------------------------------------------------------


MARKED = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}


async def test_arguments_that_the_schema_marks_are_repeated_in_headers(call: Any, fake: FakeMCPServer) -> None:
    fake.era = "modern"
    await call("echo", {"region": "eu"}, input_schema=MARKED)
    headers = (await fake.heard("tools/call")).headers
    assert headers["mcp-param-region"] == "eu"
    assert headers["mcp-name"] == "echo"


async def test_a_schema_that_we_did_not_know_is_asked_for_when_the_server_insists(
    call: Any, fake: FakeMCPServer
) -> None:
    fake.era = "modern"
    fake.tools = [{"name": "echo", "inputSchema": MARKED}]

    async def insist(exchange: Exchange) -> None:
        if exchange.headers.get("mcp-param-region") == "eu":
            await exchange.server.usual(exchange)
        else:
            error = {"code": -32020, "message": "header mismatch"}
            text = json.dumps({"jsonrpc": "2.0", "id": exchange.message["id"], "error": error})
            await exchange.respond(400, text, "application/json")

    fake.on("tools/call", insist)
    assert (await call("echo", {"region": "eu"})).status == "ok"
    assert fake.count("tools/list") == 1


async def test_a_list_without_end_costs_a_call_that_insists_no_more_than_a_list_does(
    call: Any, fake: FakeMCPServer
) -> None:
    fake.era = "modern"

    async def for_ever(exchange: Exchange) -> None:
        await exchange.result({"tools": [{"name": "other", "inputSchema": {}}], "nextCursor": "again"})

    async def insist(exchange: Exchange) -> None:
        error = {"code": -32020, "message": "header mismatch"}
        text = json.dumps({"jsonrpc": "2.0", "id": exchange.message["id"], "error": error})
        await exchange.respond(400, text, "application/json")

    fake.on("tools/list", for_ever)
    fake.on("tools/call", insist)
    assert (await call("echo", {"region": "eu"})).status == "error"
    assert fake.count("tools/list") == 2


# --- Many at once -----------------------------------------------------------------------------------------------


async def test_calls_at_once_share_one_connection_and_overlap(call: Any, fake: FakeMCPServer) -> None:
    gate = asyncio.Event()
    fake.on("tools/call", after(gate, fake.usual))
    running = [asyncio.create_task(call("echo", {"text": str(number)})) for number in range(8)]
    await fake.heard("tools/call", times=8)
    gate.set()
    assert [outcome.text for outcome in await asyncio.gather(*running)] == [str(number) for number in range(8)]
    assert len(fake.sessions) == 1


async def test_nothing_configured_means_nothing_started(actor_of: ActorOf, bob: User) -> None:
    before = threading.active_count()
    outcome = await call_tool(
        await in_rows(actor_of, bob), UUID(int=1), "echo", {}, turn_id=None, progress=lambda *_: asyncio.sleep(0)
    )
    assert outcome.status == "denied"
    assert connections.manager().list_connections() == []
    assert threading.active_count() <= before + 1
