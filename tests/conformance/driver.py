"""Our client as the suite drives it: a server's row, the catalogue, and the door through which agents call tools."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from accounts.actors import Actor
from chatui.rows import in_rows
from mcpservers import catalogue, connections
from mcpservers.calls import call_tool
from mcpservers.catalogue import OfferedTool, WantedServer, offered_to
from mcpservers.elicitation import Answer
from mcpservers.live_questions import Person
from mcpservers.models import MCPServer, ServerGrant
from mcpservers.outcomes import ToolOutcome

Calls = Sequence[tuple[str, dict[str, Any]]]
Play = Callable[..., Awaitable[str]]
_VALUES = {"string": "x", "integer": 1, "number": 1, "boolean": True, "object": {}, "array": [], "null": None}


@asynccontextmanager
async def driving(actor: Actor, play: Play) -> AsyncIterator[Path]:
    """A socket on which `play` answers for `actor` what the suite's client command asks."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        scenario = json.loads(await reader.readline())
        try:
            reply = {"ok": True, "output": await play(actor, **scenario)}
        except Exception:  # the boundary: the suite is told that its client failed, and a reader why
            reply = {"ok": False, "output": traceback.format_exc()}
        writer.write(json.dumps(reply).encode() + b"\n")
        await writer.drain()
        writer.close()

    with TemporaryDirectory(prefix="mcp-") as directory:  # the path of a socket must be short
        socket = Path(directory) / "client"
        server = await asyncio.start_unix_server(answer, socket)
        try:
            yield socket
        finally:
            server.close()
            await server.wait_closed()


async def drive(actor: Actor, url: str, name: str, context: Mapping[str, Any], revision: str) -> str:
    """Play one scenario: list the tools of the server at `url`, make the calls it wants, disconnect."""
    # Each user has a connection of their own, so that a session may ask.
    headers = {"X-User": "{{user.id}}"} if name.startswith("elicitation") else {}
    server = await in_rows(lambda: make_server(actor, url, headers=headers))
    try:
        offer = await offered_to(actor, [WantedServer(server.pk)])
        lines = [f"offered: {[tool.name for tool in offer.tools]}; problems: {[p.message for p in offer.problems]}"]
        tools = {tool.name: tool for tool in offer.tools}
        for tool, arguments in _calls(name, context, tools):
            outcome = await call(actor, server, tool, arguments, tools.get(tool))
            lines.append(f"{tool}: {outcome.status}: {outcome.text}")
        return "\n".join(lines)
    finally:
        await catalogue.aclose()
        await connections.aclose()


def make_server(actor: Actor, url: str, **fields: Any) -> MCPServer:
    """A server that everybody in the actor's organization may use, without being asked."""
    server = MCPServer.objects.create(
        organization_id=actor.organization_id,
        slug="suite",
        title="Suite",
        url=url,
        timeout=15,
        connect_timeout=15,
        rules=[{"tool": "*", "do": "allow"}],
        **fields,
    )
    ServerGrant.objects.create(server=server, whole_organization=True)
    return server


async def call(actor: Actor, server: MCPServer, tool: str, arguments: Any, known: OfferedTool | None) -> ToolOutcome:
    """Make one call as an agent's turn does, for somebody who accepts whatever the server asks, as it stands."""

    async def progress(*_: object) -> None: ...

    async def accept(_: object) -> Answer:
        return Answer("accept")

    definition = known.definition if known is not None else None
    person = Person(accept)
    while True:
        outcome = await call_tool(
            actor,
            server.pk,
            tool,
            arguments,
            turn_id=uuid4(),
            progress=progress,
            input_schema=definition.input_schema if definition else None,
            output_schema=definition.output_schema if definition else None,
            annotations=definition.annotations if definition else None,
            person=person,
        )
        if outcome.asked is None:
            return outcome
        person = Person(accept, outcome.asked.kept, Answer("accept"))


def _calls(name: str, context: Mapping[str, Any], tools: Mapping[str, OfferedTool]) -> Calls:
    """The calls that a scenario waits for."""
    match name:
        case "tools_call":
            return [("add_numbers", {"a": 5, "b": 3})]
        case "http-custom-headers":
            return [(call["name"], call.get("arguments") or {}) for call in context.get("toolCalls", ())]
        case "json-schema-2020-12-preservation":
            schema = tools["json_schema_2020_12_tool"].definition.input_schema
            return [("json_schema_echo", {"schema": schema})]
        case "sep-2322-client-request-state":
            tests = ("echo_state", "unrelated", "no_state", "no_result_type")
            return [(f"test_mrtr_{test}", {}) for test in tests]
    return [(tool.name, arguments_of(tool.definition.input_schema)) for tool in tools.values()]


def arguments_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A value for everything that the schema requires."""
    properties = schema.get("properties") or {}
    return {
        name: _VALUES.get(str((properties.get(name) or {}).get("type")), "x") for name in schema.get("required") or ()
    }
