"""The admin's health page and *Try this tool*: what they show, to whom, and that the call goes through the one door."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from django.test import AsyncClient
from django.utils import timezone

from accounts import audit
from accounts.models import AuditRecord, Role
from chatui.rows import in_rows
from mcpservers import connections
from mcpservers.admin_try import TryForm, record_trial
from mcpservers.approvals import Do, RuleVerdict
from mcpservers.entries import Address, Entry
from mcpservers.fetching import system_actor
from mcpservers.health import Troubles, troubles
from mcpservers.models import CatalogueEntry, MCPServer, ServerGrant
from mcpservers.outcomes import ToolOutcome
from mcpservers.transports import target_of
from tests.accounts.test_tenant_admin import url
from tests.fakes.admin_world import CANARY, World
from tests.fakes.mcp_server import Exchange, FakeMCPServer, status
from tests.fakes.mcp_targets import actor, definition, target
from tests.mcpservers.pinning import see

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "What to say <b>loud</b>."},
        "times": {"type": "integer", "default": 2, "minimum": 1},
        "loud": {"type": "boolean"},
        "tone": {"enum": ["kind", 3]},
        "more": {"type": "object"},
    },
    "required": ["text"],
}
EVIL = '<script>alert("1")</script>'


def form(data: dict[str, str] | None = None, schema: Any = SCHEMA) -> TryForm:
    one = definition("https://a.example")
    entry = Entry(Address(one.pk, ""), "s", [{"name": "say", "inputSchema": schema}], [], "", True, 1, timezone.now())
    return TryForm(entry.definitions("openai")[0], data)


# --- The form -----------------------------------------------------------------------------------------------------


def test_each_property_is_a_field_of_its_kind_and_what_is_empty_is_not_sent() -> None:
    filled = form(
        {
            "argument:text": " hi ",
            "argument:times": "3",
            "argument:loud": "1",
            "argument:tone": "1",
            "argument:more": "{}",
        }
    )
    assert filled.is_valid(), filled.errors
    assert filled.arguments() == {"text": " hi ", "times": 3, "loud": False, "tone": 3, "more": {}}
    sparse = form({"argument:text": "hi"})
    assert sparse.is_valid()
    assert sparse.arguments() == {"text": "hi"}


@pytest.mark.parametrize(
    ("data", "where"),
    [
        ({}, "argument:text"),
        ({"argument:text": "x", "argument:times": "many"}, "argument:times"),
        ({"argument:text": "x", "argument:more": "{"}, "argument:more"),
        ({"argument:text": "x", "argument:times": "0"}, "__all__"),  # what only the schema knows
    ],
)
def test_what_breaks_the_schema_is_said_before_anything_is_called(data: dict[str, str], where: str) -> None:
    assert where in form(data).errors


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"type": "object", "properties": []}, None])
def test_a_schema_that_says_too_little_takes_json(schema: Any) -> None:
    filled = form({"arguments": '{"a": [1]}'}, schema)
    assert filled.is_valid(), filled.errors
    assert filled.arguments() == {"a": [1]}
    assert form({"arguments": "[1]"}, schema).errors
    assert form({"arguments": ""}, schema).is_valid()


def test_odd_schemas_make_a_form_all_the_same() -> None:
    odd = {"type": "object", "properties": {"a": True, "b": {"enum": []}, "c": {"type": ["string", "null"]}, "d": 5}}
    filled = form({"argument:a": "1", "argument:c": '"x"'}, odd | {"required": "a"})
    filled.is_valid()
    assert str(filled)


# --- The pages ----------------------------------------------------------------------------------------------------


@pytest.fixture
async def fake() -> AsyncIterator[FakeMCPServer]:
    async with FakeMCPServer() as server:
        yield server
        await connections.aclose()


@pytest.fixture
def cafe(transactional_db: None, fake: FakeMCPServer, world: World) -> MCPServer:
    server: MCPServer = world.acme[MCPServer]
    server.url, server.variables, server.oauth = fake.url, {}, None
    server.save()
    CatalogueEntry.objects.filter(server=server).update(
        definition_hash=server.definition_hash(), tools=[{"name": "echo", "inputSchema": SCHEMA}]
    )
    see(server, {"name": "echo", "inputSchema": SCHEMA})
    troubles.forget(server.pk)
    return server


async def client_of(user: Any) -> AsyncClient:
    client = AsyncClient()
    await client.aforce_login(user)
    return client


async def test_a_tool_is_called_as_the_admin_and_its_result_is_text(
    cafe: MCPServer, world: World, fake: FakeMCPServer
) -> None:
    admin = world.acme.people[Role.ADMIN]
    client = await client_of(admin)
    page = (await client.get(url(MCPServer, "try", cafe) + "?tool=echo")).content.decode()
    assert "What to say &lt;b&gt;loud&lt;/b&gt;." in page
    assert fake.count("tools/call") == 0
    data = {"tool": "echo", "argument:text": EVIL}
    refused = await client.post(url(MCPServer, "try", cafe), data)  # an admin without a grant has none
    assert refused.context["outcome"].status == "denied"
    assert fake.count("tools/call") == 0
    await in_rows(lambda: ServerGrant.objects.create(server=cafe, user=admin))
    answer = await client.post(url(MCPServer, "try", cafe), data)
    assert answer.context["outcome"].status == "ok", answer.context["outcome"].text
    assert (await fake.heard("tools/call")).params["arguments"] == {"text": EVIL}
    entries = [entry async for entry in AuditRecord.objects.as_system().filter(action="tool.call").order_by("at")]
    assert [(entry.tool, entry.actor_id, entry.via, entry.status) for entry in entries] == [
        ("echo", admin.pk, "admin", "denied"),
        ("echo", admin.pk, "admin", "ok"),
    ]
    assert [entry.verdict for entry in entries] == ["deny", "ask"]  # no rule says anything: a person is asked
    assert [entry.body for entry in entries] == [None, None]
    text = answer.content.decode()
    assert EVIL not in text
    assert "&lt;script&gt;" in text


async def test_a_denied_tool_and_one_of_another_organization_are_not_called(
    cafe: MCPServer, world: World, fake: FakeMCPServer
) -> None:
    admin = world.acme.people[Role.ADMIN]
    await in_rows(lambda: ServerGrant.objects.create(server=cafe, user=admin))
    await in_rows(lambda: MCPServer.objects.as_system().filter(pk=cafe.pk).update(rules=[{"tool": "*", "do": "deny"}]))
    data = {"tool": "echo", "argument:text": "x"}
    answer = await (await client_of(admin)).post(url(MCPServer, "try", cafe), data)
    assert answer.context["outcome"].status == "denied"
    for other in (world.globex.people[Role.OWNER], world.acme.people[Role.AUDITOR]):
        assert (await (await client_of(other)).post(url(MCPServer, "try", cafe), data)).status_code in (302, 403, 404)
    operator = await (await client_of(world.root)).post(url(MCPServer, "try", cafe), data)  # no member
    assert operator.context["outcome"] is None
    assert fake.count("tools/call") == 0


@pytest.mark.django_db
def test_a_trial_is_recorded_as_a_call_of_a_chat_is(world: World) -> None:
    server = world.acme[MCPServer]
    server.organization.audit_bodies = True
    outcome = ToolOutcome("ok", "x" * 70_000, account_id=uuid4(), duration_ms=7)
    record_trial(server, "echo", {"text": EVIL}, RuleVerdict(Do.ALLOW, "It only reads."), outcome)
    entry = AuditRecord.objects.as_system().get(action="tool.call")
    assert (entry.account_id, entry.verdict, entry.status) == (outcome.account_id, "allow", "ok")
    assert entry.body == {"arguments": {"text": EVIL}, "result": "x" * audit.BODY_CHARACTERS, "cut": ["result"]}


async def test_a_tool_that_is_not_stored_is_named_by_hand(cafe: MCPServer, world: World, fake: FakeMCPServer) -> None:
    admin = world.acme.people[Role.ADMIN]
    await in_rows(lambda: ServerGrant.objects.create(server=cafe, user=admin))
    client = await client_of(admin)
    assert b'name="tool"' in (await client.get(url(MCPServer, "try", cafe))).content
    answer = await client.post(url(MCPServer, "try", cafe), {"tool": "write", "arguments": '{"a": 1}'})
    assert answer.context["outcome"].status == "ok", answer.context["outcome"].text
    assert (await fake.heard("tools/call")).params == {"name": "write", "arguments": {"a": 1}} | {
        key: value for key, value in (await fake.heard("tools/call")).params.items() if key == "_meta"
    }


async def test_the_health_page_shows_connections_pauses_and_troubles_without_secrets(
    cafe: MCPServer, world: World, fake: FakeMCPServer
) -> None:
    manager = connections.manager()
    where = await in_rows(lambda: target_of(cafe, system_actor(cafe), {}))
    client = await client_of(world.acme.people[Role.ADMIN])

    async def refuse(exchange: Exchange) -> None:
        await exchange.error(-32000, f"no entry with {exchange.headers['authorization']} {EVIL}")

    fake.on("tools/call", refuse)
    async with manager.borrow(where) as connection:
        with pytest.raises(Exception, match="no entry"):
            await connection.request_raw("tools/call", {"name": "echo", "arguments": {}})
        page = (await client.get(url(MCPServer, "health", cafe))).content.decode()
        assert "no entry with" in page
        assert CANARY not in page
        assert EVIL not in page
    manager.drop(cafe.pk)
    fake.on("POST", status(503))
    for _ in range(3):
        with pytest.raises(Exception, match="HTTP 503"):
            async with manager.borrow(where):
                pass
    page = (await client.get(url(MCPServer, "health", cafe))).content.decode()
    assert "Left alone until" in page
    assert page.count("it answers with HTTP 503") >= 4  # the pause and three troubles
    fake.on("POST", None)
    assert (await client.post(url(MCPServer, "reconnect", cafe))).status_code == 302
    await asyncio.sleep(0)
    async with manager.borrow(where):
        pass
    for other in (world.globex.people[Role.OWNER],):
        assert (await (await client_of(other)).get(url(MCPServer, "health", cafe))).status_code == 302
    auditor = await client_of(world.acme.people[Role.AUDITOR])
    assert (await auditor.get(url(MCPServer, "health", cafe))).status_code == 200
    assert (await auditor.post(url(MCPServer, "reconnect", cafe))).status_code in (302, 403)


# --- The memory of troubles ---------------------------------------------------------------------------------------


def test_the_memory_is_short_masked_and_newest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpservers.health.SERVERS", 2)
    memory = Troubles()
    one = definition("https://a.example", headers={"Authorization": "Bearer {{TOKEN}}"}, variables={"TOKEN": {}})
    where = target_of(one, actor(), {"TOKEN": "hunter22"})
    for number in range(50):
        memory.note(where, "connection_lost", f"{number} with hunter22")
    assert [trouble.message for trouble in memory.of(one.pk)[:2]] == ["49 with •••", "48 with •••"]
    assert len(memory.of(one.pk)) == 20
    for _ in range(2):
        memory.note(target("https://b.example"), "x", "y")
    assert memory.of(one.pk) == []
