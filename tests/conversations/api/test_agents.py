"""The picker: the agents that one may use, each server's state, and the tools as this agent may use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.utils import timezone

from accounts.models import Organization, Role, User
from agents.models import Agent, AgentGrant, AgentServer, ModelEndpoint, ModelProfile
from chatui.rows import in_rows
from mcpservers.models import CatalogueEntry, MCPServer, ServerGrant
from tests.conversations.api.conftest import Enter, World

TOOLS = [
    {"name": name, "title": name.title(), "description": f"Does {name}.", "inputSchema": {"type": "object"}}
    for name in ("search", "get_one", "delete_one")
]


def make_server(world: World, slug: str, tools: list[dict[str, Any]] | None = None, **fields: Any) -> MCPServer:
    """A server of the agent, granted to all, with a stored tool list."""
    server = MCPServer.objects.create(
        organization=world.organization, slug=slug, title=slug.title(), url="http://127.0.0.1:9/mcp", **fields
    )
    ServerGrant.objects.create(server=server, whole_organization=True)
    AgentServer.objects.create(agent=world.agent, server=server, position=1)
    CatalogueEntry.objects.create(
        server=server, definition_hash=server.definition_hash(), tools=tools or TOOLS, fetched_at=timezone.now()
    )
    return server


async def servers(world: World, as_user: Enter, user: User | None = None) -> dict[str, Any]:
    answer = await (await as_user(user or world.bob)).get("/api/v1/agents")
    (agent,) = answer.json()["items"]
    return {server["slug"]: server for server in agent["servers"]}


def offer_others(organization: Organization) -> None:
    """Two models besides the agent's own, of which the endpoint of one is switched off."""
    agent = Agent.objects.as_system().select_related("model__endpoint").get()
    off = ModelEndpoint.objects.create(
        organization=organization, slug="off", base_url="http://127.0.0.1:9", enabled=False
    )
    for endpoint, more in ((agent.model.endpoint, {"title": "Big", "images": True}), (off, {"title": "Off"})):
        of_model: dict[str, Any] = {"organization": organization, "slug": "big", "name": "b"} | more
        agent.other_models.add(ModelProfile.objects.create(endpoint=endpoint, **of_model))


async def test_an_agent_is_described_for_the_picker(world: World, as_user: Enter) -> None:
    await in_rows(
        Agent.objects.as_system().update, description="Knows tickets.", starters=["What is open?"], name="The Helper"
    )
    await in_rows(offer_others, world.organization)
    answer = await (await as_user(world.bob)).get("/api/v1/agents")
    (agent,) = answer.json()["items"]
    servers = agent.pop("servers")
    assert agent == {
        "slug": "helper",
        "name": "The Helper",
        "description": "Knows tickets.",
        "starters": ["What is open?"],
        "model": {"name": "helper-endpoint/gpt", "title": "test-model", "images": False, "tools": True},
        "other_models": [{"name": "helper-endpoint/big", "title": "Big", "images": True, "tools": True}],
    }
    (tickets,) = servers
    assert (tickets["slug"], tickets["title"], tickets["state"], tickets["tools"]) == (
        "tickets",
        "Tickets",
        "needs_setup",
        [],
    )
    assert "Token" in tickets["message"]
    assert [variable["name"] for variable in tickets["variables"]] == ["TOKEN", "REGION"]


async def test_only_what_is_granted_and_enabled_is_there(
    world: World, as_user: Enter, alice: User, make_agent: Callable[..., Agent], make_member: Callable[..., User]
) -> None:
    await in_rows(make_agent, world.organization, "denied", granted=False)
    off = await in_rows(make_agent, world.organization, "off")
    await in_rows(Agent.objects.as_system().filter(pk=off.pk).update, enabled=False)
    mine = await in_rows(make_agent, world.organization, "mine", granted=False)
    await AgentGrant.objects.acreate(agent=mine, user=world.bob)

    async def agents(user: User) -> list[str]:
        answer = await (await as_user(user)).get("/api/v1/agents")
        return [agent["slug"] for agent in answer.json()["items"]]

    assert await agents(world.bob) == ["helper", "mine"]
    assert await agents(alice) == ["helper"]
    assert await agents(await in_rows(make_member, "gus", world.organization, Role.GUEST)) == []
    assert await servers(world, as_user, alice) == {}  # the server is Bob's alone


async def test_tools_are_those_that_the_agent_takes_with_the_decision_of_all_rules(
    world: World, as_user: Enter
) -> None:
    server = await in_rows(make_server, world, "docs", read_only=["get_*"], rules=[{"tool": "delete_*", "do": "deny"}])
    found = (await servers(world, as_user))["docs"]
    assert found["state"] == "ready"
    assert {tool["name"]: (tool["decision"], bool(tool["withheld"])) for tool in found["tools"]} == {
        "search": ("ask", False),
        "get_one": ("allow", False),
        "delete_one": ("deny", True),
    }
    assert {tool["pin"] for tool in found["tools"]} == {"accepted"}
    assert found["tools"][0]["title"] == "Search"
    assert found["tools"][0]["description"] == "Does search."
    await in_rows(AgentServer.objects.filter(server=server).update, tools=["s*", "get_*"])
    await in_rows(Agent.objects.as_system().update, rules=[{"tool": "docs__get_*", "do": "ask"}])
    found = (await servers(world, as_user))["docs"]
    assert {tool["name"]: tool["decision"] for tool in found["tools"]} == {"search": "ask", "get_one": "ask"}


async def test_what_was_repaired_and_what_could_not_be_is_told_tool_by_tool(world: World, as_user: Enter) -> None:
    never: dict[str, Any] = {"type": "object", "properties": {"no": False, "q": {"type": "string"}}}
    listed = [
        {"name": "whole", "inputSchema": {"type": "object"}},
        {"name": "repaired", "inputSchema": never},
        {"name": "broken", "inputSchema": {"type": "string"}},
    ]
    await in_rows(make_server, world, "odd", listed)
    tools = {tool["name"]: tool for tool in (await servers(world, as_user))["odd"]["tools"]}
    assert {name: (tool["withheld"], tool["notes"]) for name, tool in tools.items()} == {
        "whole": ("", []),
        "repaired": ("", ["The property 'no', for which no value is allowed, was left out."]),
        "broken": ("Its input schema describes a value of type string; it must be an object.", []),
    }


async def test_a_server_that_is_off_says_so_and_one_that_is_denied_is_not_shown(world: World, as_user: Enter) -> None:
    await in_rows(make_server, world, "off", enabled=False)
    denied = await in_rows(make_server, world, "denied")
    await ServerGrant.objects.acreate(server=denied, user=world.bob, deny=True)
    found = await servers(world, as_user)
    assert found.keys() == {"tickets", "off"}
    assert found["off"]["state"] == "off"


async def test_a_grant_or_a_denial_of_single_tools_leaves_the_server(world: World, as_user: Enter) -> None:
    some = await in_rows(make_server, world, "some")
    await ServerGrant.objects.acreate(server=some, tool="delete_*", user=world.bob, deny=True)
    one = await in_rows(make_server, world, "one")
    await ServerGrant.objects.filter(server=one).adelete()
    await ServerGrant.objects.acreate(server=one, tool="search", user=world.bob)
    found = await servers(world, as_user)
    assert {tool["name"] for tool in found["some"]["tools"] if not tool["withheld"]} == {"search", "get_one"}
    assert {tool["name"] for tool in found["one"]["tools"] if not tool["withheld"]} == {"search"}


async def test_the_number_of_queries_does_not_grow_with_agents_and_servers(
    world: World, as_user: Enter, make_agent: Callable[..., Agent], count_queries: Callable[[], Any]
) -> None:
    client = await as_user(world.bob)
    counts = []
    for round_ in range(2):
        for number in range(1 + 5 * round_):
            server = await in_rows(make_server, world, f"s{round_}{number}")
            await in_rows(make_agent, world.organization, f"a{round_}{number}", servers=[server])
        await client.get("/api/v1/agents")  # the first time what is listed is taken down
        with count_queries() as seen:
            assert (await client.get("/api/v1/agents")).status_code == 200
        counts.append(len(seen))
    assert counts[0] == counts[1] <= 17
