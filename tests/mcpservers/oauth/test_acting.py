"""Calls and lists with people's own accounts, linked for real: whose account acts, and who is asked to sign in."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection as database
from django.db.backends.utils import CursorWrapper
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.actors import Actor
from accounts.models import Membership, Organization, Role, User
from chatui.rows import in_rows
from mcpservers import catalogue, connections, entries
from mcpservers.acting import identities
from mcpservers.authorizing import authorize_call
from mcpservers.calls import ToolOutcome, call_tool
from mcpservers.catalogue import Offer, WantedServer, offered_to, server_states
from mcpservers.models import LinkedAccount, MCPServer
from mcpservers.oauth import accounts, tokens
from tests.fakes.authserver import FakeAuthServer
from tests.fakes.authstate import Person
from tests.fakes.mcp_protected import ProtectedMCPServer
from tests.fakes.mcp_server import FakeMCPServer
from tests.mcpservers.oauth.conftest import Link, Make


@pytest.fixture(autouse=True)
async def _closed() -> AsyncIterator[None]:
    entries.memory.clear()
    yield
    await catalogue.aclose()
    await connections.aclose()


@pytest.fixture
async def fake(auth: FakeAuthServer) -> AsyncIterator[ProtectedMCPServer]:
    async with ProtectedMCPServer(auth=auth, era="modern") as server:
        yield server
        await catalogue.aclose()
        await connections.aclose()


@pytest.fixture
async def server(make_server: Make, fake: ProtectedMCPServer) -> MCPServer:
    return await make_server(fake.url, timeout=60, connect_timeout=60)


async def call(actor: Actor, server: MCPServer, tool: str = "whoami", **options: Any) -> ToolOutcome:
    async def progress(*_: object) -> None: ...

    arguments = {"text": "x"} if tool == "add_note" else {}
    return await call_tool(actor, server.pk, tool, arguments, turn_id=uuid4(), progress=progress, **options)


def owner(outcome: ToolOutcome) -> str:
    assert outcome.status == "ok", outcome.text
    return str(json.loads(outcome.text)["owner"])


async def offer(actor: Actor, server: MCPServer, **options: Any) -> Offer:
    return await offered_to(actor, [WantedServer(server.pk)], **options)


def names(offered: Offer) -> list[str]:
    return [tool.name for tool in offered.tools]


# --- Whose account ----------------------------------------------------------------------------------------------------


async def test_a_call_acts_with_the_account_that_was_linked(link: Link, actor: Actor, server: MCPServer) -> None:
    await link(server, "grace")
    assert owner(await call(actor, server)) == "grace"


async def test_of_several_accounts_the_default_acts_unless_one_is_chosen(
    link: Link, actor: Actor, server: MCPServer
) -> None:
    await link(server, "ada")
    other = await link(server, "grace")
    assert owner(await call(actor, server)) == "ada"
    assert owner(await call(actor, server, account_id=other.pk)) == "grace"
    await in_rows(accounts.make_default, actor, other.pk)
    assert owner(await call(actor, server)) == "grace"


async def test_an_account_that_is_not_mine_or_gone_is_never_replaced_by_another(
    link: Link, actor: Actor, server: MCPServer, fake: ProtectedMCPServer
) -> None:
    await link(server)
    outcome = await call(actor, server, account_id=uuid4())
    assert outcome.sign_in is not None
    assert fake.calls_of("ada") == []


async def test_several_people_with_several_accounts_each_act_as_themselves(
    link: Link,
    server: MCPServer,
    fake: ProtectedMCPServer,
    auth: FakeAuthServer,
    organization: Organization,
    actor_of: Callable[[User], Actor],
) -> None:
    auth.people += tuple(Person(f"p{n}", f"sub-p{n}", f"P {n}", f"p{n}@x.example") for n in range(6))

    def member(number: int) -> Actor:
        user = User.objects.create_user(f"user{number}", f"user{number}@example.org", "correct horse")
        Membership.objects.create(user=user, organization=organization, role=Role.MEMBER)
        return actor_of(user)

    wanted: list[tuple[Actor, UUID, str]] = []
    for number in range(3):
        who = await in_rows(member, number)
        for person in (f"p{2 * number}", f"p{2 * number + 1}"):
            account = await link(server, person, who)
            wanted.append((who, account.pk, person))
    calls = [each for each in wanted for _ in range(5)]
    random.Random(11).shuffle(calls)
    found = await asyncio.gather(*(call(who, server, account_id=account) for who, account, _ in calls))
    assert [owner(outcome) for outcome in found] == [person for _, _, person in calls]
    assert fake.trespasses == []


async def test_a_valid_token_costs_one_query_and_no_write(
    link: Link, actor: Actor, server: MCPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await link(server)
    await call(actor, server)

    def reads() -> list[str]:
        with CaptureQueriesContext(database) as queries:
            assert authorize_call(actor, server.pk, "whoami").allowed
        return [query["sql"] for query in queries.captured_queries]

    asked = await in_rows(reads)
    assert len(asked) == 4, "member, grants with the server, pins, account"
    assert all(sql.startswith("SELECT") for sql in asked)
    read: list[UUID] = []

    def noted(account_id: UUID) -> Any:
        read.append(account_id)
        return before(account_id)

    before = tokens.read
    monkeypatch.setattr(tokens, "read", noted)
    assert owner(await call(actor, server)) == "ada"
    assert read == [], "the token is of the row that was read with the permission"


async def test_a_call_with_an_account_writes_nothing_and_reads_one_row_more_than_one_without(
    link: Link, actor: Actor, make_server: Make, server: MCPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    execute = CursorWrapper.execute

    def noted(cursor: CursorWrapper, sql: str, params: Any = None) -> Any:
        said.append(sql)
        return execute(cursor, sql, params)

    async def statements(of: MCPServer, tool: str) -> list[str]:
        said.clear()
        assert (await call(actor, of, tool)).status == "ok"
        await asyncio.gather(*tokens._noting)  # what is written beside the way counts, too
        return list(said)

    await link(server)
    async with FakeMCPServer(era="modern") as open_server:
        plain = await make_server(open_server.url, "plain", oauth=None, connect_timeout=60)
        for each, tool in ((plain, "echo"), (server, "whoami")):
            assert (await call(actor, each, tool)).status == "ok"  # now it is connected
        monkeypatch.setattr(CursorWrapper, "execute", noted)
        without, with_one = await statements(plain, "echo"), await statements(server, "whoami")
        assert [sql for sql in with_one if not sql.startswith("SELECT")] == []
        assert 0 < len(without) <= len(with_one) <= len(without) + 1
        await connections.aclose()


async def test_as_whom_many_servers_are_called_is_one_query_and_decrypts_nothing(
    link: Link, actor: Actor, make_server: Make, fake: ProtectedMCPServer
) -> None:
    """The offer of every turn asks this: of people's servers, of the organization's, and of those without accounts."""
    robot = {"grant": "client_credentials", "client_id": "robot", "client_secret": "s3cret"}
    machines = [await make_server(fake.url, f"robot-{number}", oauth=robot) for number in range(3)]
    own = [await make_server(fake.url, f"own-{number}") for number in range(2)]
    plain = await make_server(fake.url, "plain", oauth=None)
    for server in own:
        await link(server)

    def asked() -> tuple[list[str], dict[UUID, Any]]:
        with CaptureQueriesContext(database) as queries:
            found = identities(actor, [*machines, *own, plain])
        return [query["sql"] for query in queries.captured_queries], found

    await in_rows(asked)  # makes the rows of the organization's accounts
    statements, found = await in_rows(asked)
    (sql,) = statements
    assert "tokens" not in sql
    assert [found[server.pk].links for server in (*machines, *own, plain)] == [False] * 3 + [True] * 2 + [False]
    assert all(found[server.pk].account is not None for server in (*machines, *own))
    assert found[plain.pk].account is None


# --- Who is asked to sign in ------------------------------------------------------------------------------------------


async def test_without_an_account_nothing_is_sent_and_a_sign_in_is_asked_for(
    actor: Actor, server: MCPServer, fake: ProtectedMCPServer, auth: FakeAuthServer
) -> None:
    outcome = await call(actor, server)
    assert outcome.status == "unavailable"
    assert "sign in" in outcome.text
    needed = outcome.sign_in
    assert needed is not None
    assert (needed.reason, needed.host) == ("none", auth.origin.removeprefix("http://"))
    assert needed.scopes == ("notes:read", "notes:write")
    assert fake.count("tools/call") == 0


async def test_an_account_that_has_ended_is_asked_for_by_name(
    link: Link, actor: Actor, server: MCPServer, fake: ProtectedMCPServer
) -> None:
    account = await link(server)
    await call(actor, server)
    await in_rows(LinkedAccount.objects.as_system().filter(pk=account.pk).update, state="relink", tokens={})
    needed = (await call(actor, server)).sign_in
    assert needed is not None
    assert (needed.reason, needed.account, needed.account_id) == ("expired", account.name, account.pk)
    assert fake.calls_of("ada") == ["whoami"]


async def test_a_refused_token_is_renewed_and_the_call_made_once(
    link: Link, actor: Actor, server: MCPServer, fake: ProtectedMCPServer, auth: FakeAuthServer
) -> None:
    await link(server)
    auth.memory.expire_all()
    assert owner(await call(actor, server)) == "ada"
    assert fake.calls_of("ada") == ["whoami"]
    assert auth.count("token") == 2


async def test_a_server_that_refuses_every_token_asks_for_a_sign_in_and_does_not_loop(
    link: Link, actor: Actor, server: MCPServer, fake: ProtectedMCPServer, auth: FakeAuthServer
) -> None:
    await link(server)
    fake.refuse_all = True
    needed = (await call(actor, server)).sign_in
    assert needed is not None
    assert needed.reason in ("refused", "expired")
    assert auth.count("token") <= 2


async def test_more_access_is_asked_for_and_the_same_account_gets_it(
    link: Link, actor: Actor, server: MCPServer, fake: ProtectedMCPServer
) -> None:
    fake.prm_changes = {"scopes_supported": ["notes:read"]}
    account = await link(server)
    needed = (await call(actor, server, "add_note")).sign_in
    assert needed is not None
    assert needed.reason == "insufficient_scope"
    assert "notes:write" in needed.scopes
    again = await link(server, "ada", account_id=needed.account_id, scopes=needed.scopes)
    assert again.pk == account.pk
    assert (await call(actor, server, "add_note")).status == "ok"
    assert fake.notes["ada"] == ["Call Charles", "x"]


@pytest.mark.parametrize("kind", ["bearer", "BEARER", None])
async def test_a_token_goes_as_bearer_however_its_kind_is_spelled(
    link: Link, actor: Actor, server: MCPServer, auth: FakeAuthServer, kind: str | None
) -> None:
    auth.token_changes = {"token_type": kind}  # and the server takes the word `Bearer` in no other spelling
    await link(server)
    assert owner(await call(actor, server)) == "ada"


async def test_steps_to_and_fro_between_two_scopes_end_with_both(
    link: Link, actor: Actor, server: MCPServer, fake: ProtectedMCPServer, auth: FakeAuthServer
) -> None:
    fake.prm_changes = {"scopes_supported": ["openid"]}
    auth.default_scopes = ("openid",)
    fake.tool_scopes = {"whoami": ("notes:read",), "add_note": ("notes:write",)}
    await link(server)
    for tool, wanted in (("whoami", {"notes:read"}), ("add_note", {"notes:read", "notes:write"})):
        needed = (await call(actor, server, tool)).sign_in
        assert needed is not None
        assert needed.reason == "insufficient_scope"
        assert set(needed.scopes) >= wanted
        await link(server, "ada", account_id=needed.account_id, scopes=needed.scopes)
        assert (await call(actor, server, tool)).status == "ok"
    assert (await call(actor, server, "whoami")).status == "ok"  # and nobody is asked a third time
    assert await LinkedAccount.objects.as_system().acount() == 1


@pytest.mark.parametrize("challenge", ["bare", "none"])
async def test_a_server_that_does_not_say_where_is_its_own_place_to_sign_in(
    link: Link, actor: Actor, make_server: Make, auth: FakeAuthServer, challenge: str
) -> None:
    async with ProtectedMCPServer(
        auth=auth, era="modern", challenge=challenge, prm_at="none", same_origin=True
    ) as lonely:
        server = await make_server(lonely.url, "lonely", connect_timeout=60)
        assert (await call(actor, server)).sign_in is not None
        await link(server)
        assert owner(await call(actor, server)) == "ada"
        await catalogue.aclose()
        await connections.aclose()


async def test_a_server_that_says_nothing_of_accounts_is_found_to_have_some(
    link: Link, actor: Actor, make_server: Make, fake: ProtectedMCPServer
) -> None:
    server = await make_server(fake.url, "plain", oauth=None, connect_timeout=60)
    offered = await offer(actor, server)
    assert [problem.code for problem in offered.problems] == ["needs_sign_in"]
    assert (await in_rows(MCPServer.objects.as_system().get, pk=server.pk)).signs_in
    assert (await call(actor, server)).sign_in is not None
    await link(server)
    assert owner(await call(actor, server)) == "ada"


async def test_a_server_that_only_wants_accounts_for_calls_is_found_out_by_one(
    actor: Actor, make_server: Make, fake: ProtectedMCPServer
) -> None:
    fake.open_listing = True
    server = await make_server(fake.url, "plain", oauth=None, connect_timeout=60)
    assert names(await offer(actor, server)) == ["whoami", "list_notes", "add_note"]
    assert (await call(actor, server)).sign_in is not None
    assert (await in_rows(MCPServer.objects.as_system().get, pk=server.pk)).signs_in


# --- The catalogue without a login ------------------------------------------------------------------------------------


async def test_what_is_listed_for_anybody_is_offered_before_anybody_signs_in(
    link: Link, actor: Actor, server: MCPServer, fake: ProtectedMCPServer
) -> None:
    fake.open_listing = True
    offered = await offer(actor, server)
    assert names(offered) == ["whoami", "list_notes", "add_note"]
    assert offered.problems == ()
    assert (await call(actor, server, pin=offered.tools[0].definition.pin)).sign_in is not None
    account = await link(server)
    # In the turn that goes on the tools are those that were offered before.
    assert owner(await call(actor, server, pin=offered.tools[0].definition.pin)) == "ada"
    offered = await offer(actor, server)
    assert offered.tools[0].account is not None
    assert offered.tools[0].account.name == account.name


async def test_a_server_whose_very_list_needs_an_account_says_where_to_sign_in(
    link: Link, actor: Actor, server: MCPServer, fake: ProtectedMCPServer, auth: FakeAuthServer
) -> None:
    offered = await offer(actor, server)
    (problem,) = offered.problems
    assert (problem.code, names(offered)) == ("needs_sign_in", [])
    assert problem.sign_in is not None
    assert problem.sign_in.url.startswith("/o/acme/connections/notes/begin?scopes=notes")
    assert problem.sign_in.host == auth.origin.removeprefix("http://")
    heard = len(fake.exchanges)
    assert (await offer(actor, server)).problems == (problem,)
    assert len(fake.exchanges) == heard, "it is not asked again at every turn"
    (state,) = await server_states(actor, [server.pk])
    assert state.state == "needs_sign_in"
    await link(server)
    assert names(await offer(actor, server)) == ["whoami", "list_notes", "add_note"]
    (state,) = await server_states(actor, [server.pk])
    assert (state.state, len(state.tools)) == ("ready", 3)


async def test_where_an_admin_allows_it_others_lists_are_shown_before_a_sign_in(
    link: Link,
    actor: Actor,
    make_server: Make,
    fake: ProtectedMCPServer,
    alice: User,
    actor_of: Callable[[User], Actor],
) -> None:
    shared = await make_server(fake.url, "shared", oauth={"share_tools": True})
    closed = await make_server(fake.url, "closed")
    other = await in_rows(actor_of, alice)
    for server in (shared, closed):
        await link(server, "grace", other)
        assert names(await offer(other, server)) == ["whoami", "list_notes", "add_note"]
    heard = len(fake.exchanges)
    assert names(await offer(actor, shared)) == ["whoami", "list_notes", "add_note"]
    assert len(fake.exchanges) == heard
    assert (await call(actor, shared)).sign_in is not None
    assert names(await offer(actor, closed)) == []


async def test_two_accounts_keep_a_list_each(link: Link, actor: Actor, server: MCPServer) -> None:
    await link(server, "ada")
    other = await link(server, "grace")
    chosen = {server.slug: str(other.pk)}
    for _ in range(2):
        await offer(actor, server)
        await offer(actor, server, accounts=chosen)
    rows = await in_rows(lambda: list(server.catalogue_entries.values_list("owner_key", flat=True)))
    assert len(rows) == 2


# --- The organization's account ---------------------------------------------------------------------------------------


async def test_an_account_of_the_organization_serves_everybody_over_one_connection(
    actor: Actor,
    make_server: Make,
    fake: ProtectedMCPServer,
    auth: FakeAuthServer,
    alice: User,
    actor_of: Callable[[User], Actor],
) -> None:
    auth.configure("robot", "s3cret-of-the-robot")
    oauth = {"grant": "client_credentials", "client_id": "robot", "client_secret": "s3cret-of-the-robot"}
    server = await make_server(fake.url, "robot", oauth=oauth | {"scopes": ["notes:read"]})
    other = await in_rows(actor_of, alice)
    assert names(await offer(actor, server)) == ["whoami", "list_notes", "add_note"]
    for who in (actor, other):
        assert owner(await call(who, server)) == "robot"
    assert auth.count("token") == 1
    assert len(connections.manager().list_connections()) == 1
    auth.memory.expire_all()
    an_hour_ago = timezone.now() - timedelta(hours=1)
    await in_rows(LinkedAccount.objects.as_system().filter(server=server).update, renewed_at=an_hour_ago)
    assert owner(await call(other, server)) == "robot"
    assert (await in_rows(identities, actor, [server]))[server.pk].links is False
