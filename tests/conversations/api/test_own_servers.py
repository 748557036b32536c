"""Servers of one's own over the API: added, changed, checked, reviewed and deleted, with no value ever coming out."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from accounts.models import AuditRecord, Organization, User
from agents.models import Agent
from chatui.rows import in_rows
from mcpservers.models import LinkedAccount, MCPServer
from tests.conversations.api.conftest import Enter, World
from tests.fakes.anew import served_anew
from tests.fakes.mcp_server import FakeMCPServer
from tests.fakes.own_servers import own as make_own
from tests.fakes.own_servers import within_reach  # noqa: F401  # a fixture

PATH = "/api/v1/connections/servers"
SECRET = "planted-secret"
NEW = {"title": "Notes", "url": "https://notes.example.org/mcp", "headers": {"Authorization": f"Bearer {SECRET}"}}


async def send(client: Any, method: str, path: str, body: Any = None) -> Any:
    call = getattr(client, method)
    return await call(path, json.dumps(body or {}), content_type="application/json")


@pytest_asyncio.fixture
async def allowed(world: World) -> World:
    await in_rows(Organization.objects.filter(pk=world.organization.pk).update, own_servers="members")
    return world


@pytest_asyncio.fixture
async def fake(house: Any) -> AsyncIterator[FakeMCPServer]:
    async with served_anew() as server:
        yield server


async def test_one_is_added_changed_listed_and_deleted(allowed: World, as_user: Enter, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    client = await as_user(allowed.bob)
    made = await send(client, "post", PATH, NEW)
    assert made.status_code == 201
    server = made.json()
    assert (server["slug"], server["headers"], server["enabled"], server["barred"]) == (
        "my-notes",
        ["Authorization"],
        True,
        False,
    )
    address = f"{PATH}/{server['id']}"
    changed = await send(client, "patch", address, {"title": "Better notes", "headers": {"X-Team": f"{SECRET}-2"}})
    assert (changed.json()["title"], changed.json()["headers"], changed.json()["dropped"]) == (
        "Better notes",
        ["Authorization", "X-Team"],
        [],
    )
    moved = await send(client, "patch", address, {"url": "https://other.example.org/mcp", "headers": {"X-Team": "b"}})
    assert (moved.json()["headers"], moved.json()["dropped"]) == (["X-Team"], ["Authorization"])
    listed = (await client.get(PATH)).json()
    assert (listed["allowed"], listed["limit"], [item["id"] for item in listed["items"]]) == (True, 20, [server["id"]])
    everywhere = [await client.get(path) for path in (PATH, address, "/api/v1/connections", "/api/v1/agents")]
    everywhere += [made, changed, moved, await client.get("/o/acme/connections/")]
    assert all(answer.status_code in (200, 201) for answer in everywhere)
    for answer in everywhere:
        assert SECRET.encode() not in answer.content
    assert SECRET not in caplog.text
    mine = next(item for item in (await client.get("/api/v1/connections")).json()["items"] if item["own"])
    assert (mine["slug"], mine["host"]) == ("my-notes", "other.example.org")
    assert (await client.delete(address)).json() == {"warnings": []}
    assert (await client.get(address)).status_code == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"url": "https://10.0.0.1/mcp"}, "url"),
        ({"url": "https://127.0.0.1:8000/mcp"}, "url"),
        ({"url": "https://a.example.org/${SECRET_KEY}"}, "url"),
        ({"url": ""}, "url"),
        ({"title": "  "}, "title"),
        ({"transport": "stdio"}, "transport"),
        ({"headers": {"A": "{{openid.id_token}}"}}, "headers"),
        ({"headers": {"A": 7}}, "headers.A"),
        ({"headers": {f"A{n}": "x" for n in range(31)}}, "headers"),
        ({"headers": {"A": "x" * 9000}}, "headers.A"),
        ({"variables": {"A": {"default": "x"}}}, "variables.A.default"),
        ({"rules": []}, "rules"),
        ({"read_only": ["*"]}, "read_only"),
        ({"oauth": {"client_id": "c"}}, "oauth"),
        ({"owner": "x"}, "owner"),
        ({"slug": "tickets"}, "slug"),
        ({"barred": False}, "barred"),
    ],
)
async def test_what_cannot_be_is_refused_by_the_field(allowed: World, as_user: Enter, body: Any, field: str) -> None:
    client = await as_user(allowed.bob)
    made = (await send(client, "post", PATH, NEW)).json()
    for method, path, sent in (("post", PATH, NEW | body), ("patch", f"{PATH}/{made['id']}", body)):
        response = await send(client, method, path, sent)
        assert response.status_code == 400, response.content
        assert response.json()["error"]["message"].startswith(f"{field}"), response.content
    (row,) = [row async for row in MCPServer.objects.as_system().exclude(owner=None)]
    assert row.url == NEW["url"]


async def test_nobody_else_finds_it_and_where_nobody_may_have_any_it_can_only_be_deleted(
    allowed: World, as_user: Enter, as_key: Enter, alice: User, charlie: User
) -> None:
    client = await as_user(allowed.bob)
    made = (await send(client, "post", PATH, NEW)).json()
    address = f"{PATH}/{made['id']}"
    await in_rows(Organization.objects.all().update, own_servers="members")
    for other in (await as_user(alice), await as_user(charlie), await as_key(alice, allowed.organization, ("admin",))):
        assert (await other.get(PATH)).json()["items"] == []
        for method, path in (("get", ""), ("patch", ""), ("delete", ""), ("post", "/check"), ("post", "/tools")):
            response = await (other.get(address) if method == "get" else send(other, method, address + path))
            assert response.status_code == 404, (method, path)
    assert (await (await as_key(allowed.bob, allowed.organization, ("chat",))).get(PATH)).status_code == 403
    await in_rows(Organization.objects.all().update, own_servers="nobody")
    listed = (await client.get(PATH)).json()
    assert (listed["allowed"], len(listed["items"])) == (False, 1)
    assert "organization" in listed["reason"]
    assert (await send(client, "post", PATH, NEW)).status_code == 403
    assert (await send(client, "patch", address, {"title": "x"})).status_code == 403
    assert (await send(client, "post", f"{address}/check")).status_code == 403
    page = (await client.get("/o/acme/connections/")).content.decode()
    assert 'data-own="delete"' in page
    assert 'data-own="add"' not in page
    assert (await client.delete(address)).status_code == 200


async def test_there_is_a_most_in_words(allowed: World, as_user: Enter, settings: Any) -> None:
    settings.MCP = settings.MCP | {"OWN_SERVERS": 1}
    client = await as_user(allowed.bob)
    await send(client, "post", PATH, NEW)
    refused = await send(client, "post", PATH, NEW)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "too_many_servers")
    assert "1 servers" in refused.json()["error"]["message"]


async def test_a_check_tells_the_tools_and_what_changed_in_them_waits_for_its_owner(
    allowed: World,
    as_user: Enter,
    fake: FakeMCPServer,
    within_reach: None,  # noqa: F811  # the fixture
) -> None:
    server = await in_rows(make_own, allowed.bob, allowed.organization, fake.url, headers={"X-Key": SECRET})
    client, address = await as_user(allowed.bob), f"{PATH}/{server.pk}"
    found = (await send(client, "post", f"{address}/check")).json()
    assert (found["ok"], found["state"], [tool["name"] for tool in found["tools"]]) == (
        True,
        "ready",
        ["echo", "write"],
    )
    fake.tools[0] = fake.tools[0] | {"description": "Say it to a friend."}
    found = (await send(client, "post", f"{address}/check")).json()
    (waiting,) = found["waiting"]
    assert (waiting["name"], waiting["state"], waiting["fields"][0]["field"]) == ("echo", "changed", "description")
    withheld = {tool["name"]: tool["withheld"] for tool in found["tools"]}
    assert "waits for you" in withheld["echo"]
    nothing = await send(client, "post", f"{address}/tools", {})
    assert nothing.status_code == 400
    done = await send(client, "post", f"{address}/tools", {"accept": [waiting["id"]]})
    assert done.json() == {"waiting": []}
    found = (await send(client, "post", f"{address}/check")).json()
    assert [tool["withheld"] for tool in found["tools"]] == ["", ""]
    actions = [
        row.action async for row in AuditRecord.objects.as_system().filter(actor_id=allowed.bob.pk).order_by("at")
    ]
    assert actions.count("connection.tested") == 3
    assert "pin.accepted" in actions
    assert SECRET not in str([vars(row) async for row in AuditRecord.objects.as_system()])


async def test_a_check_says_why_there_are_no_tools_and_shows_no_secret(
    allowed: World,
    as_user: Enter,
    fake: FakeMCPServer,
    within_reach: None,  # noqa: F811  # the fixture
) -> None:
    server = await in_rows(make_own, allowed.bob, allowed.organization, fake.url, headers={"X-Key": SECRET})
    client, address = await as_user(allowed.bob), f"{PATH}/{server.pk}/check"

    async def refusing(exchange: Any) -> None:
        await exchange.respond(500, f"no {SECRET}".encode(), "text/plain")

    fake.on("POST", refusing)
    found = await send(client, "post", address)
    assert (found.status_code, found.json()["ok"], found.json()["tools"]) == (200, False, [])
    assert found.json()["error"]
    assert SECRET not in found.content.decode()
    await in_rows(MCPServer.objects.as_system().filter(pk=server.pk).update, enabled=False)
    assert "switched off" in (await send(client, "post", address)).json()["error"]["message"]


async def test_a_check_does_not_reach_what_the_operator_allows_to_others(
    allowed: World, as_user: Enter, fake: FakeMCPServer
) -> None:
    """As where a public name, or a redirect, leads to such an address: the check is made at the connect."""
    server = await in_rows(make_own, allowed.bob, allowed.organization, fake.url.replace("http:", "https:"))
    found = (await send(await as_user(allowed.bob), "post", f"{PATH}/{server.pk}/check")).json()
    assert not found["ok"]
    assert "public" in found["error"]
    assert fake.connections == 0


async def test_its_accounts_are_disconnected_with_it(allowed: World, as_user: Enter) -> None:
    def prepare() -> UUID:
        server = make_own(allowed.bob, allowed.organization)
        LinkedAccount.objects.create(
            organization=allowed.organization,
            server=server,
            user=allowed.bob,
            binding=server.oauth_binding(),
            issuer="https://login.example",
            name="At notes",
        )
        key: UUID = server.pk
        return key

    key = await in_rows(prepare)
    assert (await (await as_user(allowed.bob)).delete(f"{PATH}/{key}")).status_code == 200
    assert not await LinkedAccount.objects.as_system().filter(name="At notes").aexists()
    assert await AuditRecord.objects.as_system().filter(action="link.revoked").aexists()


async def test_why_one_can_use_it_is_told_to_its_owner_alone(allowed: World, as_user: Enter, alice: User) -> None:
    await in_rows(make_own, allowed.bob, allowed.organization)
    client = await as_user(allowed.bob)

    async def steps() -> dict[str, str]:
        answer = await client.get("/api/v1/servers/my-notes/why?tool=echo&agent=helper")
        return {step["subject"]: step["answer"] for step in answer.json()["steps"]}

    assert (await steps())["Tools of the agent"] == "no"
    await in_rows(Agent.objects.as_system().update, user_servers=True)
    told = await steps()
    assert (told["Tools of the agent"], told["Decision of the rules"]) == ("yes", "ask")
    assert "no" not in told.values()
    theirs = await as_user(alice)
    assert (await theirs.get("/api/v1/servers/my-notes/why?tool=echo")).status_code == 404


async def test_the_picker_shows_it_as_ones_own_with_agents_that_use_them(allowed: World, as_user: Enter) -> None:
    await in_rows(make_own, allowed.bob, allowed.organization)
    client = await as_user(allowed.bob)

    async def shown() -> dict[str, bool]:
        (agent,) = (await client.get("/api/v1/agents")).json()["items"]
        return {server["slug"]: server["own"] for server in agent["servers"]}

    assert await shown() == {"tickets": False}
    await in_rows(Agent.objects.as_system().update, user_servers=True)
    assert await shown() == {"tickets": False, "my-notes": True}
