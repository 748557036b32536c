"""What is said to be recorded of the API and of pages is done, and its entries are there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from accounts.models import AuditAction, AuditRecord
from chatui.rows import in_rows
from mcpservers.models import ToolVersion
from tests.architecture.doors_world import World, make_world, things_of
from tests.architecture.test_audit import API, PAGES
from tests.architecture.test_doors import API_BODIES, client_of, filled

pytestmark = pytest.mark.deadline(120)  # many doors

DEFINITION = {"title": "Notes", "url": "https://notes.example.org/mcp"}
SENT: dict[str, list[dict[str, Any]]] = {
    "POST connections/servers": [DEFINITION],
    "PATCH connections/servers/<uuid:own_server>": [DEFINITION],
    "PATCH connections/accounts/<uuid:account>": [{"name": "Work"}],
}
FORMS: dict[str, list[dict[str, str]]] = {
    "o/<slug:organization>/connections/accounts/<uuid:account>/": [
        {"action": "rename", "name": "Work"},
        {"action": "disconnect"},
    ],
    "o/<slug:organization>/connections/<slug:server>/variables/": [{"v-REGION": "eu"}],
    "o/<slug:organization>/usage/export/": [{}],
}


def expected_of(table: dict[str, Any]) -> dict[str, list[AuditAction]]:
    recorded = {name: found for name, found in table.items() if isinstance(found, (AuditAction, tuple))}
    return {name: list(found) if isinstance(found, tuple) else [found] for name, found in recorded.items()}


def bodies_of(name: str, things: dict[str, Any]) -> Iterator[Any]:
    """What is sent, one after the other."""
    if name.endswith("/tools"):
        for verb in ("accept", "reject"):
            version = {"tool": verb, "hash": verb, "definition": {"name": verb}}
            yield {verb: [str(ToolVersion.objects.create(server_id=things["own_server"], **version).pk)]}
        return
    method, _, route = name.partition(" ")
    usual = API_BODIES[route, method].body if (route, method) in API_BODIES else None
    yield from SENT.get(name, [usual or {}])


async def entries_since(seen: set[UUID]) -> list[AuditRecord]:
    return [row async for row in AuditRecord.objects.as_system().order_by("at", "id") if row.pk not in seen]


async def prepared() -> tuple[World, Any, UUID]:
    world = await in_rows(make_world)
    return world, await client_of(world, "owner"), world.users["owner"].pk


async def test_every_write_of_the_api_that_is_to_be_recorded_is(transactional_db: None, house: Any) -> None:
    world, client, owner = await prepared()
    for name, expected in expected_of(API).items():
        things = await in_rows(things_of, world.users["owner"], world.acme)
        seen = {row.pk for row in await entries_since(set())}
        method, _, route = name.partition(" ")
        for body in await in_rows(lambda name=name, things=things: list(bodies_of(name, things))):
            address = filled("api/v1/" + route, things) + "?organization=acme"
            response = await getattr(client, method.lower())(address, json.dumps(body), content_type="application/json")
            assert response.status_code < 300, (name, response.content)
            if response.streaming:
                response.close()
        made = await entries_since(seen)
        assert [entry.action for entry in made] == expected, name
        assert {(entry.actor_id, entry.organization_id) for entry in made} == {(owner, world.acme.organization.pk)}
        assert {entry.via for entry in made} == {"web"}, name


async def test_every_form_of_a_page_that_is_to_be_recorded_is(transactional_db: None, house: Any) -> None:
    world, client, owner = await prepared()
    for address, forms in FORMS.items():
        things = await in_rows(things_of, world.users["owner"], world.acme)
        seen = {row.pk for row in await entries_since(set())}
        for form in forms:
            response = await client.post(filled(address, things), form)
            assert response.status_code in (200, 302), address
        made = await entries_since(seen)
        assert [entry.action for entry in made] == expected_of(PAGES)[address], address
        assert {(entry.actor_id, entry.organization_id) for entry in made} == {(owner, world.acme.organization.pk)}
