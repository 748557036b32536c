"""Lists of tools as servers send them, for the tests of pins."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from django.utils import timezone

from mcpservers import pin_decisions
from mcpservers.entries import Address, Entry
from mcpservers.models import MCPServer, ToolVersion
from mcpservers.pins import Owner, Pins, State
from mcpservers.sightings import observed

_revisions = count(1)


def tool(name: str = "look", **fields: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    return {"name": name, "description": f"The {name} tool.", "inputSchema": schema} | fields


def listing(server: MCPServer, *tools: Mapping[str, Any], complete: bool = True, revision: int = 0) -> Entry:
    """A list, newer than those before unless `revision` says otherwise."""
    revision = revision or next(_revisions)
    items = [dict(item) for item in tools]
    return Entry(Address(server.pk, "hash"), server.slug, items, [], "", complete, revision, timezone.now())


def see(server: MCPServer, *tools: Mapping[str, Any], owner: Owner | None = None, **how: Any) -> dict[str, State]:
    """Take down a list, of the organization's own view or of `owner`'s, and say of each tool what it is now."""
    owner = owner or Owner(server.pk)
    entry = listing(server, *tools, **how)
    return states(observed({owner: entry})[owner], entry)


def states(pins: Pins, entry: Entry) -> dict[str, State]:
    hashes = zip(entry.tools, entry.hashes, strict=True)
    return {item["name"]: pins.state(item["name"], hash) for item, hash in hashes}


def decide(server: MCPServer, name: str, decision: ToolVersion.Decision) -> None:
    """An admin's decision on every version of a tool that is not decided."""
    rows = ToolVersion.objects.filter(server=server, tool=name, decision="")
    pin_decisions.decide(server, list(rows.values_list("pk", flat=True)), decision)


def flags(server: MCPServer, name: str) -> dict[str, dict[str, Any]]:
    """The flags of the newest version of a tool, by kind."""
    version = ToolVersion.objects.filter(server=server, tool=name).latest("first_seen_at")
    return {flag["kind"]: flag for flag in version.flags}
