"""Values of a server's variables go in, are encrypted, and never come out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection

from accounts.models import AuditRecord, User
from chatui.rows import in_rows
from mcpservers.models import MCPServer, ServerGrant, UserVariables
from tests.conversations.api.conftest import Enter, World

ADDRESS = "/api/v1/servers/tickets/variables"


async def put(client: Any, body: Any) -> Any:
    return await client.put(ADDRESS, json.dumps(body), content_type="application/json")


def state(answer: Any) -> dict[str, bool]:
    return {variable["name"]: variable["set"] for variable in answer.json()["variables"]}


async def test_what_is_asked_for_is_described_and_never_shown(world: World, as_user: Enter) -> None:
    client = await as_user(world.bob)
    answer = await put(client, {"TOKEN": "s3cret-value", "REGION": " eu "})
    assert state(answer) == {"TOKEN": True, "REGION": True}
    assert answer.json()["variables"][0] == {
        "name": "TOKEN",
        "title": "Token",
        "description": "",
        "sensitive": True,
        "set": True,
    }
    agents = await client.get("/api/v1/agents")
    for response in (answer, await client.get(ADDRESS), agents):
        assert b"s3cret" not in response.content
    stored = await UserVariables.objects.aget()
    assert stored.values == {"TOKEN": "s3cret-value", "REGION": "eu"}

    def column() -> str:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT values FROM mcpservers_uservariables"
                if connection.vendor != "sqlite"
                else 'SELECT "values" FROM mcpservers_uservariables'
            )
            return str(cursor.fetchone()[0])

    assert "s3cret" not in await in_rows(column)


async def test_values_that_are_not_named_stay_and_null_clears(world: World, as_user: Enter) -> None:
    client = await as_user(world.bob)
    await put(client, {"TOKEN": "a", "REGION": "eu"})
    first = (await UserVariables.objects.aget()).version
    assert state(await put(client, {"REGION": None})) == {"TOKEN": True, "REGION": False}
    stored = await UserVariables.objects.aget()
    assert stored.values == {"TOKEN": "a"}
    assert stored.version > first
    assert (await client.delete(ADDRESS)).status_code == 204
    cleared = await UserVariables.objects.aget()
    assert cleared.values == {}
    assert cleared.version > stored.version


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"OTHER": "x"}, "OTHER: this server has no such variable; it has TOKEN, REGION"),
        ({"TOKEN": 5}, "TOKEN: a text"),
        ({"TOKEN": {"a": "b"}}, "TOKEN: a text"),
        ({"TOKEN": "x" * 9000}, "TOKEN: at most"),
        ({"REGION": "eu", "OTHER": "x"}, "OTHER: "),
    ],
)
async def test_what_cannot_be_stored_is_named_and_nothing_is(
    world: World, as_user: Enter, body: Any, words: str
) -> None:
    response = await put(await as_user(world.bob), body)
    assert response.status_code == 400
    assert words in response.json()["error"]["message"]
    assert not await UserVariables.objects.aexists()


async def test_a_variable_that_is_no_longer_declared_is_dropped(world: World, as_user: Enter) -> None:
    client = await as_user(world.bob)
    await put(client, {"TOKEN": "a", "REGION": "eu"})
    await in_rows(MCPServer.objects.as_system().filter(slug="tickets").update, variables={"TOKEN": None})
    assert state(await put(client, {"TOKEN": "b"})) == {"TOKEN": True}
    assert (await UserVariables.objects.aget()).values == {"TOKEN": "b"}


async def test_every_user_has_values_of_ones_own(world: World, as_user: Enter, alice: User) -> None:
    server = await MCPServer.objects.as_system().aget(slug="tickets")
    await ServerGrant.objects.acreate(server=server, user=alice)
    await put(await as_user(world.bob), {"TOKEN": "bob's"})
    client = await as_user(alice)
    assert state(await client.get(ADDRESS)) == {"TOKEN": False, "REGION": False}
    await put(client, {"TOKEN": "alice's"})
    assert (await UserVariables.objects.aget(user=world.bob)).values == {"TOKEN": "bob's"}


async def test_a_server_that_is_off_or_denied_does_not_exist(world: World, as_user: Enter) -> None:
    client = await as_user(world.bob)
    server = await MCPServer.objects.as_system().aget(slug="tickets")
    denied = await ServerGrant.objects.acreate(server=server, user=world.bob, deny=True)
    assert (await put(client, {"TOKEN": "x"})).status_code == 404
    await denied.adelete()
    await in_rows(MCPServer.objects.as_system().filter(pk=server.pk).update, enabled=False)
    assert (await put(client, {"TOKEN": "x"})).status_code == 404


async def test_what_is_set_and_cleared_is_recorded_by_name(world: World, as_user: Enter) -> None:
    client = await as_user(world.bob)
    await put(client, {"TOKEN": "s3cret-value", "REGION": None})
    await client.delete(ADDRESS)

    def entries() -> list[AuditRecord]:
        return list(AuditRecord.objects.as_system().filter(action="variables.changed").order_by("at"))

    changed, cleared = await in_rows(entries)
    assert (changed.actor_id, changed.server, changed.via) == (world.bob.pk, "tickets", "web")
    assert changed.details == {"set": ["TOKEN"], "cleared": ["REGION"]}
    assert set(cleared.details["cleared"]) == {"TOKEN", "REGION"}
