"""A tool that its server does not know when it is called: one new list, then a stub, and a moment's peace."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from accounts.actors import Actor
from accounts.models import Organization, User
from chatui.rows import in_rows
from mcpservers import catalogue, connections, entries, fetching
from mcpservers.calls import ToolOutcome, call_tool
from mcpservers.catalogue import WantedServer, offered_to
from mcpservers.missing import is_unknown, says_unknown
from mcpservers.models import MCPServer, ServerGrant, UserVariables
from tests.fakes.mcp_server import ECHO, WRITE, Exchange, FakeMCPServer, hang, once

pytestmark = pytest.mark.django_db(transaction=True)


async def refuse(exchange: Exchange) -> None:
    await exchange.error(-32602, f"Unknown tool: {exchange.params['name']}")


async def say_so(exchange: Exchange) -> None:
    text = f"MCP error -32602: Tool {exchange.params['name']} not found"
    await exchange.result({"content": [{"type": "text", "text": text}], "isError": True})


@pytest.fixture
async def fake() -> AsyncIterator[FakeMCPServer]:
    entries.memory.clear()
    async with FakeMCPServer(tools=[ECHO, WRITE]) as server:
        yield server
        await catalogue.aclose()
        await connections.aclose()


@pytest.fixture
def server(organization: Organization, fake: FakeMCPServer) -> MCPServer:
    made = MCPServer.objects.create(
        organization=organization, slug="s", title="S", url=fake.url, timeout=60, connect_timeout=60
    )
    ServerGrant.objects.create(server=made, whole_organization=True)
    return made


@pytest.fixture
def actor(bob: User, actor_of: Callable[[User], Actor]) -> Actor:
    return actor_of(bob)


@pytest.fixture
def call(server: MCPServer, actor: Actor) -> Callable[..., Any]:
    async def run(tool: str = "write", actor: Actor = actor) -> ToolOutcome:
        async def progress(*_: object) -> None: ...

        return await call_tool(actor, server.pk, tool, {}, turn_id=uuid4(), progress=progress)

    return run


async def names(actor: Actor, server: MCPServer) -> list[str]:
    return [tool.name for tool in (await offered_to(actor, [WantedServer(server.pk)])).tools]


@pytest.mark.parametrize("answer", [refuse, say_so])
async def test_a_tool_that_is_gone_is_a_stub_and_the_catalogue_knows(
    call: Any, fake: FakeMCPServer, actor: Actor, server: MCPServer, answer: Any
) -> None:
    assert await names(actor, server) == ["echo", "write"]
    fake.tools = [ECHO]
    fake.on("tools/call", answer)
    outcome = await call()
    assert (outcome.status, outcome.missing) == ("unavailable", True)
    assert outcome.text == "“S” has no tool “write” any more. Do without it, or use another one."
    assert fake.count("tools/list") == 2
    assert fake.count("initialize") == 1, "listed on the connection that there is"
    assert await names(actor, server) == ["echo"]


async def test_for_a_moment_nobody_calls_it_again(call: Any, fake: FakeMCPServer, monkeypatch: Any) -> None:
    fake.tools = [ECHO]
    fake.on("tools/call", refuse)
    await call()
    heard = len(fake.exchanges)
    assert (await call()).missing
    assert len(fake.exchanges) == heard
    soon = time.monotonic() + fetching.NEGATIVE_SECONDS + 1
    monkeypatch.setattr(fetching, "time", SimpleNamespace(monotonic=lambda: soon))
    fake.tools = [ECHO, WRITE]
    fake.on("tools/call", None)
    assert (await call()).status == "ok", "it is tried again, without anybody's word"
    assert len(fake.exchanges) > heard


async def test_many_calls_at_once_cost_few_lists(call: Any, fake: FakeMCPServer) -> None:
    together = asyncio.Event()

    async def refuse_all(exchange: Exchange) -> None:
        if fake.count("tools/call") == 20:
            together.set()
        await together.wait()
        await refuse(exchange)

    fake.tools = [ECHO]
    fake.on("tools/call", refuse_all)
    outcomes = await asyncio.gather(*(call() for _ in range(20)))
    assert all(outcome.missing for outcome in outcomes)
    assert fake.count("tools/list") <= 4


async def test_siblings_are_not_kept_waiting(call: Any, fake: FakeMCPServer) -> None:
    fake.tools = [ECHO]
    fake.on("tools/call", once(refuse))
    await call("write")
    assert (await call("echo")).status == "ok"


async def test_a_tool_that_one_credential_has_not_is_called_with_another(
    call: Any, fake: FakeMCPServer, server: MCPServer, alice: User, actor_of: Callable[[User], Actor]
) -> None:
    """Neither whose it is nor what was found out of it is shared: each has the tools of the own token."""
    headers, variables = {"Authorization": "Bearer {{TOKEN}}"}, {"TOKEN": {"title": "Token", "sensitive": True}}
    owner = await in_rows(actor_of, alice)

    def prepare() -> None:
        MCPServer.objects.as_system().filter(pk=server.pk).update(headers=headers, variables=variables)
        for user_id in (owner.user_id, User.objects.get(username="bob").pk):
            UserVariables.objects.create(server=server, user_id=user_id, values={"TOKEN": f"of-{user_id}"})

    await in_rows(prepare)
    admins = f"Bearer of-{owner.user_id}"

    async def list_own(exchange: Exchange) -> None:
        await exchange.result({"tools": [ECHO, WRITE] if exchange.headers["authorization"] == admins else [ECHO]})

    async def run(exchange: Exchange) -> None:
        await (exchange.server.usual if exchange.headers["authorization"] == admins else refuse)(exchange)

    fake.on("tools/list", list_own)
    fake.on("tools/call", run)
    assert (await call("write")).missing
    heard = fake.count("tools/call")
    assert (await call("write", owner)).status == "ok"
    assert (await call("write")).missing
    assert fake.count("tools/call") == heard + 1, "only hers was sent"


async def test_a_tool_that_the_server_lists_after_all_is_called_once_more_if_it_was_refused(
    call: Any, fake: FakeMCPServer
) -> None:
    fake.on("tools/call", once(refuse))
    assert (await call()).status == "ok"
    assert fake.count("tools/call") == 2


async def test_a_result_that_says_so_may_come_from_the_tool_itself_and_is_not_repeated(
    call: Any, fake: FakeMCPServer
) -> None:
    fake.on("tools/call", say_so)
    outcome = await call()
    assert (outcome.status, outcome.missing) == ("error", False)
    assert "Tool write not found" in outcome.text
    assert fake.count("tools/call") == 1


async def test_a_list_that_cannot_be_had_leaves_the_tool_unavailable(call: Any, fake: FakeMCPServer) -> None:
    fake.on("tools/call", refuse)
    fake.on("tools/list", lambda exchange: exchange.error(-32603, "database is down"))
    outcome = await call()
    assert (outcome.status, outcome.missing) == ("unavailable", True)
    assert "could not be asked for its tools: database is down" in outcome.text


async def test_a_tool_that_comes_back_is_called_at_once(
    call: Any, fake: FakeMCPServer, actor: Actor, server: MCPServer
) -> None:
    fake.tools = [ECHO]
    fake.on("tools/call", refuse)
    assert (await call()).missing
    fake.tools, back = [ECHO, WRITE], fake.count("tools/list") + 1
    fake.on("tools/call", None)
    await fake.until(lambda: bool(fake.open_streams))
    await fake.notify("notifications/tools/list_changed")
    await fake.heard("tools/list", back)
    assert await names(actor, server) == ["echo", "write"]
    assert (await call()).status == "ok"


async def test_a_caller_who_leaves_while_it_is_listed_keeps_nobody_from_the_list(
    call: Any, fake: FakeMCPServer, actor: Actor, server: MCPServer
) -> None:
    assert await names(actor, server) == ["echo", "write"]
    gate = asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        await gate.wait()
        await exchange.server.usual(exchange)

    fake.tools = [ECHO]
    fake.on("tools/call", refuse)
    fake.on("tools/list", slow)
    calling = asyncio.create_task(call())
    await fake.heard("tools/list", 2)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    gate.set()
    assert await names(actor, server) == ["echo"]


async def test_a_cancelled_call_is_no_missing_tool(call: Any, fake: FakeMCPServer) -> None:
    fake.on("tools/call", hang)
    calling = asyncio.create_task(call())
    await fake.heard("tools/call")
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert fake.count("tools/list") == 0


# --- What servers say ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        "Unknown tool: get_user",
        "Unknown tool: 'get_user'",
        "MCP error -32602: Tool get_user not found",
        "tool 'get_user' not found: tool not found",
        "Tool not found: get_user",
        "Tool get_user does not exist",
        "There is no tool named get_user",
        "Could not find the tool get_user",
    ],
)
def test_servers_say_it_in_many_ways(words: str) -> None:
    assert is_unknown(words, "get_user")
    assert says_unknown({"isError": True, "content": [{"type": "text", "text": words}]}, "get_user")


@pytest.mark.parametrize(
    "words",
    [
        "User get_user not found",
        "get_user: file not found",
        "Unknown tool: another",
        "The toolbox get_user is not found",
        "get_user failed",
        "Tool get_user not found. " + "x" * 1000,
    ],
)
def test_other_errors_are_not_taken_for_it(words: str) -> None:
    assert not is_unknown(words, "get_user")


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"isError": True},
        {"isError": False, "content": [{"type": "text", "text": "Unknown tool: t"}]},
        {"isError": True, "content": [{"type": "text", "text": "Unknown tool: t"}, {"type": "text", "text": "x"}]},
        {"isError": True, "content": ["Unknown tool: t"]},
        {"isError": True, "content": [{"type": "image"}]},
        {"isError": True, "content": "Unknown tool: t"},
    ],
)
def test_other_results_are_not_taken_for_it(raw: Any) -> None:
    assert not says_unknown(raw, "t")
