"""The toolbox of a turn: what is offered, how a request is prepared and decided, what a call brings back."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from accounts.actors import Actor
from accounts.models import Membership, Organization, User
from agents.mcp_toolbox import MCPToolbox, NotOfferedError, open_toolbox
from agents.models import Agent, AgentGrant, AgentServer, ModelEndpoint, ModelProfile
from agents.parts import Decision, PreparedCall, ToolRequest, ToolResult, ToolStatus
from agents.toolbox import Toolbox
from chatui.rows import in_rows
from mcpservers import catalogue, connections, entries
from mcpservers.models import MCPServer, ServerGrant, UserVariables
from tests.fakes.mcp_server import ECHO, WRITE, Exchange, FakeMCPServer, die, hang

pytestmark = pytest.mark.django_db(transaction=True)
Open = Callable[..., Any]
SEARCH: dict[str, Any] = {
    "name": "search",
    "title": "Search",
    "description": "d" * 3000,
    "inputSchema": {
        "type": "object",
        "properties": {
            "filter[name]": {"type": "string"},
            "fields": {"type": "object"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "limit": {"type": "integer"},
        },
        "required": ["filter[name]"],
    },
}


async def _close() -> None:
    await catalogue.aclose()
    await connections.aclose()


@pytest.fixture(autouse=True)
async def _clean() -> AsyncIterator[None]:
    entries.memory.clear()
    yield
    await _close()


@pytest.fixture
async def fake() -> AsyncIterator[FakeMCPServer]:
    async with FakeMCPServer(tools=[ECHO, WRITE, SEARCH]) as server:
        yield server
        await _close()


@pytest.fixture
def server(organization: Organization, fake: FakeMCPServer) -> MCPServer:
    return make_server(organization, "s", url=fake.url)


def make_server(organization: Organization, slug: str, **fields: Any) -> MCPServer:
    fields = {"title": slug.title(), "timeout": 60, "connect_timeout": 60} | fields
    made = MCPServer.objects.create(organization=organization, slug=slug, **fields)
    ServerGrant.objects.create(server=made, whole_organization=True)
    return made


@pytest.fixture
def agent(organization: Organization, server: MCPServer) -> Agent:
    endpoint = ModelEndpoint.objects.create(organization=organization, slug="e", base_url="https://example.org/v1")
    model = ModelProfile.objects.create(organization=organization, endpoint=endpoint, slug="m", name="m")
    made = Agent.objects.create(organization=organization, slug="a", name="A", model=model)
    AgentServer.objects.create(agent=made, server=server)
    AgentGrant.objects.create(agent=made, whole_organization=True)
    return made


@pytest.fixture
def actor(bob: User, actor_of: Callable[[User], Actor]) -> Actor:
    return actor_of(bob)


@pytest.fixture
def opened(actor: Actor, agent: Agent) -> Open:
    async def open_(**options: Any) -> MCPToolbox:
        return await open_toolbox(options.pop("actor", actor), agent.pk, **options)

    return open_


def change(model: Any, pk: Any, **fields: Any) -> Any:
    return in_rows(lambda: model.objects.filter(pk=pk).update(**fields))


def asked(name: str, arguments: Any = None) -> ToolRequest:
    text = arguments if isinstance(arguments, str) else json.dumps({} if arguments is None else arguments)
    return ToolRequest("c1", name, text)


async def progress(*_: object) -> None: ...


async def run(toolbox: MCPToolbox, name: str, arguments: Any = None) -> ToolResult:
    """Prepare and call, as after a person's *Allow*."""
    prepared = await toolbox.prepare(asked(name, arguments))
    return prepared.result or await toolbox.call(prepared, progress)


def sent(fake: FakeMCPServer) -> Any:
    """The arguments of the last call that the server heard."""
    return fake.exchanges_of("tools/call")[-1].params["arguments"]


def refused(prepared: PreparedCall) -> str:
    """The text of a call that was finished before it began."""
    assert prepared.result is not None
    assert prepared.decision is Decision.DENY
    return prepared.result.text


# --- What is offered --------------------------------------------------------------------------------------------


async def test_the_tools_of_the_agents_servers_are_offered(opened: Open) -> None:
    toolbox: Toolbox = await opened()
    specs = toolbox.specs()
    assert [spec.name for spec in specs] == ["s__echo", "s__write", "s__search"]
    assert specs[0].description == "[S] Say it again."
    assert specs[0].parameters == ECHO["inputSchema"]
    await toolbox.aclose()


async def test_what_is_offered_is_known_by_server_and_tool(opened: Open, server: MCPServer) -> None:
    toolbox = await opened()
    assert toolbox.offered["s__search"] == [str(server.pk), "search"]
    json.dumps(toolbox.offered)


@pytest.mark.parametrize(("dialect", "most"), [("openai", 1024), ("openai-strict", 1024), ("permissive", None)])
async def test_a_long_description_is_cut_where_the_endpoint_wants_it(
    opened: Open, dialect: str, most: int | None
) -> None:
    toolbox = await opened(dialect=dialect)
    description = toolbox.specs()[2].description
    assert len(description) == (most or len("[S] ") + 3000)
    assert description.endswith("…") is (most is not None)
    assert toolbox.offer.tools[2].description == "d" * 3000, "people are shown the whole"


async def test_an_agent_offers_only_the_tools_that_it_names(opened: Open, agent: Agent) -> None:
    await in_rows(lambda: agent.servers.update(tools=["e*"]))
    assert [spec.name for spec in (await opened()).specs()] == ["s__echo"]


async def test_a_selection_narrows_the_servers(
    opened: Open, agent: Agent, organization: Organization, fake: FakeMCPServer
) -> None:
    other = await in_rows(lambda: make_server(organization, "other", url=fake.url))
    await in_rows(lambda: agent.servers.update(position=1))
    await in_rows(lambda: AgentServer.objects.create(agent=agent, server=other))
    assert {name.partition("__")[0] for name in (await opened()).offered} == {"other", "s"}
    assert {name.partition("__")[0] for name in (await opened(servers=["s"])).offered} == {"s"}
    assert (await opened(servers=[])).specs() == []
    assert [spec.name for spec in (await opened()).specs()][:1] == ["other__echo"], "in the agent's order"


async def test_a_selection_of_a_foreign_server_is_refused(opened: Open, organization: Organization) -> None:
    await in_rows(lambda: make_server(organization, "foreign", url="https://example.org/mcp"))
    for name in ("foreign", "nonsense"):
        with pytest.raises(NotOfferedError, match=name) as caught:
            await opened(servers=["s", name])
        assert caught.value.code == "not_offered"


async def test_another_organizations_agent_offers_nothing(
    opened: Open, charlie: User, actor_of: Callable[[User], Actor], fake: FakeMCPServer
) -> None:
    toolbox = await opened(actor=await in_rows(actor_of, charlie))
    assert toolbox.specs() == []
    assert not fake.exchanges


async def test_a_server_that_cannot_be_reached_is_a_problem_and_no_failure(opened: Open, fake: FakeMCPServer) -> None:
    await fake.stop()
    toolbox = await opened()
    assert toolbox.specs() == []
    assert [(problem.title, problem.code) for problem in toolbox.problems] == [("S", "unavailable")]
    assert "no tools" in refused(await toolbox.prepare(asked("s__echo")))


# --- Preparing --------------------------------------------------------------------------------------------------


async def test_what_no_rule_allows_is_asked_with_the_servers_claims(opened: Open, server: MCPServer) -> None:
    prepared = await (await opened()).prepare(asked("s__echo", {"text": "hi"}))
    assert (prepared.decision, prepared.result, prepared.arguments) == (Decision.ASK, None, {"text": "hi"})
    assert (prepared.server_id, prepared.server, prepared.server_title) == (server.pk, "s", "S")
    assert (prepared.tool, prepared.title, dict(prepared.claims)) == ("echo", "Echo", {"readOnlyHint": True})
    assert prepared.reason


async def test_rules_are_read_again_for_each_call(opened: Open, server: MCPServer, agent: Agent) -> None:
    toolbox = await opened()
    await change(MCPServer, server.pk, rules=[{"tool": "*", "do": "allow"}])
    assert (await toolbox.prepare(asked("s__echo"))).decision is Decision.ALLOW
    await change(Agent, agent.pk, rules=[{"tool": "s__e*", "do": "deny"}])
    assert "s__e*" in refused(await toolbox.prepare(asked("s__echo")))
    assert (await toolbox.prepare(asked("s__write"))).decision is Decision.ALLOW
    await change(MCPServer, server.pk, enabled=False)
    assert "switched off" in refused(await toolbox.prepare(asked("s__write")))


async def test_a_denied_tool_is_not_shown_and_its_call_says_why(opened: Open, server: MCPServer) -> None:
    await change(MCPServer, server.pk, rules=[{"tool": "write", "do": "deny"}])
    toolbox = await opened()
    assert "s__write" not in toolbox.offered
    prepared = await toolbox.prepare(asked("s__write"))
    assert "denied" in refused(prepared)
    assert (prepared.tool, prepared.server) == ("write", "s")


async def test_without_a_person_what_would_be_asked_is_denied_at_once(
    opened: Open, server: MCPServer, fake: FakeMCPServer
) -> None:
    toolbox = await opened(present=False)
    prepared = await toolbox.prepare(asked("s__echo"))
    assert "rule" in refused(prepared), "it says how to get it allowed"
    assert prepared.result is not None
    assert prepared.result.status is ToolStatus.DENIED
    await change(MCPServer, server.pk, read_only=["echo"])
    assert (await toolbox.prepare(asked("s__echo"))).decision is Decision.ALLOW
    assert not fake.exchanges_of("tools/call")


async def test_an_unknown_tool_names_those_that_there_are_the_alike_first(opened: Open) -> None:
    toolbox = await opened()
    text = refused(await toolbox.prepare(asked("search")))
    assert "There is no tool “search”" in text
    assert text.index("s__search") < text.index("s__echo") < text.index("s__write")
    assert "s__write" in refused(await toolbox.prepare(asked("x" * 5000)))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"text": ', "line 1 column"),
        ("[1]", "array"),
        ('{"text": 7}', "text: 7 is not of type 'string'"),
        ('{"text": "a"}{"text": "b"}', "several different objects"),
    ],
)
async def test_bad_arguments_are_told_and_nothing_is_run(
    opened: Open, fake: FakeMCPServer, arguments: str, words: str
) -> None:
    prepared = await (await opened()).prepare(asked("s__echo", arguments))
    assert words in refused(prepared)
    assert prepared.result is not None
    assert prepared.result.status is ToolStatus.ERROR
    assert not fake.exchanges_of("tools/call")


@pytest.mark.parametrize("blank", ["", " \n", "{}"])
async def test_no_arguments_are_an_empty_object(opened: Open, fake: FakeMCPServer, blank: str) -> None:
    assert (await run(await opened(), "s__write", blank)).status is ToolStatus.OK
    assert sent(fake) == {}


# --- Calling ----------------------------------------------------------------------------------------------------


async def test_a_result_comes_back(opened: Open) -> None:
    result = await run(await opened(), "s__echo", {"text": "hello"})
    assert (result.status, result.text) == (ToolStatus.OK, "hello")
    assert list(result.content) == [{"type": "text", "text": "hello"}]


@pytest.mark.parametrize("dialect", ["openai", "openai-strict", "gemini", "mistral", "llama.cpp", "permissive"])
async def test_the_server_receives_its_own_names_and_types(opened: Open, fake: FakeMCPServer, dialect: str) -> None:
    toolbox = await opened(dialect=dialect)
    properties = next(spec for spec in toolbox.specs() if spec.name == "s__search").parameters["properties"]
    renamed = next(name for name in properties if name.startswith("filter_name"))
    written: dict[str, Any] = {renamed: '{"k": 1}', "fields": '{"note": "hi"}', "tags": '["a", "b"]'}
    if dialect == "openai-strict":
        written["limit"] = None
    result = await run(toolbox, "s__search", written)
    assert result.status is ToolStatus.OK, result.text
    assert sent(fake) == {"filter[name]": '{"k": 1}', "fields": {"note": "hi"}, "tags": ["a", "b"]}


async def test_a_missing_argument_is_told_by_the_servers_own_name(opened: Open) -> None:
    assert "filter[name]" in refused(await (await opened()).prepare(asked("s__search")))


async def test_a_tool_error_is_an_error(opened: Open, fake: FakeMCPServer) -> None:
    async def fail(exchange: Exchange) -> None:
        await exchange.result({"content": [{"type": "text", "text": "branch is locked"}], "isError": True})

    fake.on("tools/call", fail)
    result = await run(await opened(), "s__echo")
    assert (result.status, result.text) == (ToolStatus.ERROR, "branch is locked")


async def test_files_of_a_result_are_artifacts(opened: Open, fake: FakeMCPServer) -> None:
    async def picture(exchange: Exchange) -> None:
        await exchange.result({"content": [{"type": "image", "data": "R0lGODlhAQABAAAAACw=", "mimeType": "image/png"}]})

    fake.on("tools/call", picture)
    result = await run(await opened(images=True), "s__echo")
    (artifact,) = result.artifacts
    assert (artifact.media_type, artifact.name) == ("image/gif", "image-1.gif")
    assert "R0lGOD" not in result.text


async def test_a_server_that_dies_in_the_call_is_an_error_and_no_exception(opened: Open, fake: FakeMCPServer) -> None:
    toolbox = await opened()
    fake.on("tools/call", die)
    assert (await run(toolbox, "s__write")).status in (ToolStatus.ERROR, ToolStatus.UNAVAILABLE)
    fake.on("tools/call", None)
    assert (await run(toolbox, "s__write")).status is ToolStatus.OK


async def test_cancelling_a_call_reaches_the_server(opened: Open, fake: FakeMCPServer) -> None:
    toolbox = await opened()
    fake.on("tools/call", hang)
    calling = asyncio.create_task(run(toolbox, "s__write"))
    await fake.heard("tools/call")
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await fake.until(lambda: bool(fake.cancelled))


async def test_a_call_that_was_allowed_and_waits_its_turn_is_looked_at_again_when_it_is_made(
    opened: Open, fake: FakeMCPServer, bob: User, agent: Agent
) -> None:
    toolbox, agents = await opened(), Agent.objects.as_system().filter(pk=agent.pk)
    prepared = await toolbox.prepare(asked("s__echo"))
    member = Membership.objects.filter(user=bob)
    for changes, undone, words in (
        (lambda: member.update(is_active=False), lambda: member.update(is_active=True), "no longer a member"),
        (lambda: agent.servers.update(tools=["write"]), lambda: agent.servers.update(tools=[]), "does not offer this"),
        (
            lambda: agents.update(rules=[{"tool": "s__ec*", "do": "deny"}]),
            lambda: agents.update(rules=[]),
            "of the agent decides",
        ),
        (lambda: agents.update(enabled=False), lambda: agents.update(enabled=True), "The agent does not have"),
        (
            lambda: AgentGrant.objects.create(agent=agent, user=bob, deny=True),
            lambda: AgentGrant.objects.filter(user=bob).delete(),
            "is not yours to use any more",
        ),
    ):
        await in_rows(changes)
        result = await toolbox.call(prepared, progress)
        assert (result.status, words in result.text) == (ToolStatus.DENIED, True), result.text
        await in_rows(undone)
    assert not fake.exchanges_of("tools/call")
    assert (await toolbox.call(prepared, progress)).status is ToolStatus.OK
    await in_rows(agents.delete)
    assert (await toolbox.call(prepared, progress)).status is ToolStatus.DENIED


async def test_a_call_of_a_tool_that_is_no_longer_offered_is_no_exception(
    opened: Open, agent: Agent, fake: FakeMCPServer
) -> None:
    prepared = await (await opened()).prepare(asked("s__write"))
    await in_rows(lambda: agent.servers.update(tools=["echo"]))
    result = await (await opened()).call(prepared, progress)
    assert result.status is ToolStatus.ERROR
    assert not fake.exchanges_of("tools/call")


async def test_a_tool_that_its_server_no_longer_knows_is_offered_no_more(opened: Open, fake: FakeMCPServer) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.error(-32602, f"Unknown tool: {exchange.params['name']}")

    toolbox = await opened()
    fake.tools = [ECHO, SEARCH]
    fake.on("tools/call", refuse)
    result = await run(toolbox, "s__write")
    assert (result.status, "no tool “write” any more" in result.text) == (ToolStatus.UNAVAILABLE, True)
    assert [spec.name for spec in toolbox.specs()] == ["s__echo", "s__search"]
    assert "s__write" not in toolbox.offered
    prepared = await toolbox.prepare(asked("s__write"))
    assert refused(prepared) == result.text
    assert prepared.server == "s"
    assert fake.count("tools/call") == 1


# --- Tools that depend on the person ------------------------------------------------------------------------------


async def test_what_one_persons_token_lists_another_neither_sees_nor_calls(
    opened: Open, server: MCPServer, fake: FakeMCPServer, actor: Actor, alice: User, actor_of: Callable[[User], Actor]
) -> None:
    owner = await in_rows(actor_of, alice)
    tools = {str(owner.user_id): [ECHO, {"name": "admin_tool", "inputSchema": {}}], str(actor.user_id): [ECHO]}

    async def list_own(exchange: Exchange) -> None:
        await exchange.result({"tools": tools[exchange.headers["authorization"].removeprefix("Bearer ")]})

    def prepare() -> None:
        server.headers, server.variables = {"Authorization": "Bearer {{TOKEN}}"}, {"TOKEN": {"title": "Token"}}
        server.rules = [{"tool": "*", "do": "allow"}]
        server.save()
        for who in (owner, actor):
            UserVariables.objects.create(server=server, user_id=who.user_id, values={"TOKEN": str(who.user_id)})

    await in_rows(prepare)
    fake.on("tools/list", list_own)
    for _ in range(2):  # the second time from what is stored, which the first one has left
        hers, his = await opened(actor=owner), await opened()
        assert [spec.name for spec in hers.specs()] == ["s__echo", "s__admin_tool"]
        assert [spec.name for spec in his.specs()] == ["s__echo"]
        entries.memory.clear()
    assert (await run(hers, "s__admin_tool")).status is ToolStatus.OK
    result = await run(his, "s__admin_tool")
    assert result.status is ToolStatus.ERROR
    assert "admin_tool" not in result.text.replace("s__admin_tool", "", 1)
    (call,) = fake.exchanges_of("tools/call")
    assert call.headers["authorization"] == f"Bearer {owner.user_id}"


# --- A real server ----------------------------------------------------------------------------------------------


async def test_the_demo_server_works_from_offer_to_result(
    opened: Open, agent: Agent, organization: Organization
) -> None:
    def add() -> None:
        demo = make_server(
            organization,
            "demo",
            transport="stdio",
            command=sys.executable,
            args=["-m", "demo.mcp_server"],
            connect_timeout=50,
            rules=[{"tool": "*", "do": "allow"}],
        )
        AgentServer.objects.create(agent=agent, server=demo)

    await in_rows(add)
    toolbox = await opened(servers=["demo"], dialect="openai-strict")
    assert "demo__current_time" in toolbox.offered
    result = await run(toolbox, "demo__current_time", {"timezone": "Asia/Shanghai"})
    assert result.status is ToolStatus.OK
    assert result.text.count("+08:00") >= 1
    wrong = await run(toolbox, "demo__current_time", {"timezone": "Moon/Base"})
    assert wrong.status is ToolStatus.ERROR
    assert "Moon/Base" in wrong.text
