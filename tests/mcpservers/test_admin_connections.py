"""Live connections in the admin, column by column; the health of a local process with its last words."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html import unescape
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest
from django.urls import reverse

from accounts.actors import find_actor
from accounts.models import Role
from chatui.rows import in_rows
from mcpservers import connections
from mcpservers.connections import ConnectionInfo
from mcpservers.errors import RequestTimeoutError
from mcpservers.fetching import system_actor
from mcpservers.models import CatalogueEntry, MCPServer, OwnServer
from mcpservers.scope import Scope
from mcpservers.transports import ConnectionTarget, target_of
from tests.accounts.test_tenant_admin import url
from tests.fakes.admin_world import CANARY, World
from tests.fakes.mcp_server import Exchange, FakeMCPServer, hang
from tests.fakes.mcp_targets import STDIO_FAKE
from tests.mcpservers.test_admin_try import client_of

CALL = {"name": "echo", "arguments": {"text": "hi"}}


@pytest.fixture
async def fake() -> AsyncIterator[FakeMCPServer]:
    async with FakeMCPServer() as server:
        yield server
        await connections.aclose()


@pytest.fixture
def cafe(transactional_db: None, fake: FakeMCPServer, world: World) -> MCPServer:
    """A server that each user has a connection of the own to."""
    server: MCPServer = world.acme[MCPServer]
    server.url, server.variables, server.oauth = fake.url, {}, None
    server.headers = server.headers | {"X-User": "{{user.id}}"}
    server.save()
    return server


def of_member(server: MCPServer, world: World) -> ConnectionTarget:
    who = find_actor(world.acme.people[Role.MEMBER].pk, server.organization_id)
    assert who is not None
    return target_of(server, who, {})


def rows_of(page: str) -> list[list[str]]:
    """The texts of a page's table, row by row."""

    def text(cell: str) -> str:
        return " ".join(unescape(re.sub(r"<[^>]+>", " ", cell)).split())

    rows = re.findall(r"<tr.*?</tr>", page, re.DOTALL)
    return [[text(cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)] for row in rows]


async def shown(world: World, role: Role) -> list[list[str]]:
    client = await client_of(world.acme.people[role])
    return rows_of((await client.get(reverse("admin:connections"))).content.decode())


async def test_every_column_tells_what_its_head_says(cafe: MCPServer, world: World, fake: FakeMCPServer) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.error(-32000, f"no entry with {exchange.headers['authorization']} <b>")

    member = world.acme.people[Role.MEMBER].username
    where = await in_rows(of_member, cafe, world)
    manager = connections.manager()
    async with manager.borrow(where) as connection, manager.borrow(where):
        connection.opened_at -= 3600
        connection.last_used -= 100
        head, row = await shown(world, Role.ADMIN)
        assert head == ["Server", "Scope", "Owner", "Transport", "Age", "Idle", "In use by", "State", ""]
        assert row[:4] == [cafe.title, "user", member, "streamable-http 2025-11-25"]
        assert 3600 <= int(row[4].removesuffix(" s")) < 3700
        assert row[5:] == ["0 s", "2", "ready", "Close"], "what is in use is not idle"
        fake.on("tools/call", refuse)
        with pytest.raises(Exception, match="no entry"):
            await connection.request_raw("tools/call", CALL)
        fake.on("tools/call", hang)
        assert (await shown(world, Role.ADMIN))[1][7] == "ready: no entry with ••• <b>"
        with pytest.raises(RequestTimeoutError):
            await connection.request_raw("tools/call", CALL, 0.05)
        assert (await shown(world, Role.ADMIN))[1][7].startswith("suspect: ")
        assert CANARY not in str(await shown(world, Role.ADMIN))
    connection.last_used -= 100
    (row,) = (await shown(world, Role.ADMIN))[1:]
    assert 100 <= int(row[5].removesuffix(" s")) < 200
    assert row[6] == "0"
    async with manager.borrow(where):  # proved before it is lent again
        manager.drop(cafe.pk)
        assert (await shown(world, Role.ADMIN))[1][7].startswith("closing")


async def test_an_account_and_the_organizations_are_named_and_who_only_looks_closes_nothing(
    cafe: MCPServer, world: World, fake: FakeMCPServer
) -> None:
    cafe.headers = {}
    shared = await in_rows(lambda: target_of(cafe, system_actor(cafe), {}))
    async with connections.manager().borrow(shared):
        pass
    (row,) = (await shown(world, Role.AUDITOR))[1:]
    assert (row[1], row[2], row[-1]) == ("app", "–", "")
    root = await client_of(world.root)
    head, row = rows_of((await root.get(reverse("admin:connections"))).content.decode())
    assert dict(zip(head, row, strict=True))["Organization"] == cafe.organization.name


async def test_of_a_persons_own_server_only_that_it_is_connected_to_shows(
    transactional_db: None, world: World, settings: Any
) -> None:
    """Its address is never a private one, so the connection is made up."""
    member: Any = world.acme.people[Role.MEMBER]
    own: OwnServer = world.acme[OwnServer]
    info = ConnectionInfo(
        uuid4(), own.organization_id, own.pk, own.slug, own.title, Scope.USER, member.pk, "sse", "2024-11-05",
        1.0, 0.0, 1, "ready", "no entry with secret words", "ada@elsewhere.example",
    )  # fmt: skip
    with patch.object(connections, "live_connections", lambda: [info]):
        client = await client_of(world.acme.people[Role.ADMIN])
        page = (await client.get(reverse("admin:connections"))).content.decode()
    (row,) = rows_of(page)[1:]
    assert (row[0], row[2], row[7], row[8]) == (own.title, member.username, "ready", "Close")
    assert "secret words" not in page
    assert "ada@elsewhere.example" not in page
    assert f'href="{url(OwnServer, "change", own)}"' in page


async def test_the_button_closes_the_connection(cafe: MCPServer, world: World, fake: FakeMCPServer) -> None:
    async with connections.manager().borrow(await in_rows(of_member, cafe, world)):
        pass
    client = await client_of(world.acme.people[Role.ADMIN])
    page = (await client.get(reverse("admin:connections"))).content.decode()
    action = re.search(r'<form method="post" action="([^"]+)"', page[page.index("<table") :])
    value = re.search(r'name="connection" value="([^"]+)"', page)
    assert action is not None
    assert value is not None
    await client.post(action[1], {"connection": value[1]})
    await fake.until(lambda: fake.ended == set(fake.sessions))


async def test_the_health_of_a_local_process_ends_with_its_last_words(
    transactional_db: None, world: World, settings: Any, tmp_path: Any
) -> None:
    settings.VAR_DIR = str(tmp_path)
    server: MCPServer = world.acme[MCPServer]

    def prepare() -> ConnectionTarget:
        server.transport, server.url, server.headers, server.variables, server.oauth = "stdio", "", {}, {}, None
        server.command, server.args = "python", [STDIO_FAKE, "--log", f"<b>no licence for {CANARY}-env"]
        server.env = {"LICENCE": f"{CANARY}-env"}
        server.save()
        CatalogueEntry.objects.all().delete()
        return target_of(server, system_actor(server), {})

    async with connections.manager().borrow(await in_rows(prepare)) as connection:
        await connection.request_raw("tools/call", CALL)
    await connections.aclose()
    for user, sees in ((world.root, True), (world.acme.people[Role.ADMIN], False)):
        page = (await (await client_of(user)).get(url(MCPServer, "health", server))).content.decode()
        assert ("&lt;b&gt;no licence for ••••" in page) is sees
        assert ("The end of its log" in page) is sees
        assert CANARY not in page


async def test_the_list_of_tools_tells_what_was_repaired_left_out_and_warned_of(
    transactional_db: None, world: World
) -> None:
    server: MCPServer = world.acme[MCPServer]
    never: dict[str, Any] = {"type": "object", "properties": {"no": False, "q": {"type": "string"}}}
    listed = [
        {"name": "repaired", "inputSchema": never},
        {"name": "broken", "inputSchema": {"type": "string"}},
        {"name": "hidden", "inputSchema": {"type": "object"}},
    ]
    warnings = [{"tool": "hidden", "message": "It was warned of."}, {"tool": "", "message": "The list was cut."}]
    await in_rows(CatalogueEntry.objects.filter(server=server).update, tools=listed, warnings=warnings)
    client = await client_of(world.acme.people[Role.ADMIN])
    page = (await client.get(url(MCPServer, "change", server))).content.decode()
    assert "The list was cut." in unescape(page)
    tools = {row[0].split()[0]: row for row in rows_of(page) if len(row) == 4 and row[0]}
    assert "The property 'no', for which no value is allowed, was left out." in tools["repaired"][3]
    assert tools["broken"][1] == "quarantined"
    assert "Its input schema describes a value of type string; it must be an object." in tools["broken"][3]
    assert "Try this tool" not in tools["broken"][0]
    assert "It was warned of." in tools["hidden"][3]
    assert tools["hidden"][1] == "ask"
