"""A server's tools as the admin shows them: what is stored, repaired, quarantined, and decided by the rules."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef

from chatui.text import shorten
from mcpservers.approvals import claims
from mcpservers.catalogue import decide
from mcpservers.entries import Address, Definition, Entry
from mcpservers.models import CatalogueEntry, MCPServer, ToolSighting, ToolVersion, is_accepted
from mcpservers.visible import revealed

DESCRIPTION = 200  # characters


@dataclass(frozen=True, slots=True)
class ToolRow:
    """One tool. `notes` are repairs of its schema and warnings; `quarantined` is why it is not offered, or empty."""

    name: str
    exposed: str
    title: str
    description: str
    decision: str
    reason: str
    claims: tuple[str, ...]
    notes: tuple[str, ...]
    quarantined: str
    shown_name: str  # with what nobody sees written out
    state: str  # of its version: "accepted", "rejected", or "waiting"
    flags: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class ToolList:
    tools: tuple[ToolRow, ...]
    warnings: tuple[str, ...]  # of the list as a whole, or of what could not be read as a tool
    fetched_at: datetime
    complete: bool
    of_one_user: bool  # the server's list may differ from user to user
    outdated: bool  # of an older definition


def stored_tools(server: MCPServer) -> ToolList | None:
    """The newest stored list of `server`, of its present definition if there is one; None if there is none at all."""
    row = _newest(server)
    if row is None:
        return None
    notes = _notes(row.warnings)
    definitions = _definitions(server, row)
    pins = _versions(server, [tool.pin for tool in definitions])
    tools = tuple(_row(server, tool, notes.pop(tool.name, ()), pins.get(tool.pin)) for tool in definitions)
    return ToolList(
        tools=tools,
        warnings=tuple(
            revealed(f"{name}: {text}" if name else text) for name, texts in notes.items() for text in texts
        ),
        fetched_at=row.fetched_at,
        complete=row.complete,
        of_one_user=bool(row.owner_key),
        outdated=row.definition_hash != server.definition_hash(),
    )


def stored_definition(server: MCPServer, tool: str) -> Definition | None:
    """The stored definition of one tool; None if it is not known."""
    row = _newest(server)
    found = _definitions(server, row) if row is not None else ()
    return next((each for each in found if each.name == tool), None)


def _newest(server: MCPServer) -> CatalogueEntry | None:
    rows = server.catalogue_entries.order_by("-fetched_at")
    row: CatalogueEntry | None = rows.filter(definition_hash=server.definition_hash()).first() or rows.first()
    return row


def _definitions(server: MCPServer, row: CatalogueEntry) -> tuple[Definition, ...]:
    address = Address(server.pk, row.definition_hash, row.owner_key)
    entry = Entry(address, server.slug, row.tools, [], "", row.complete, row.revision, row.fetched_at)
    return entry.definitions("openai")


def _versions(server: MCPServer, pins: list[str]) -> dict[str, ToolVersion]:
    """The stored versions by hash, each with whether its first use accepted it."""
    accepted = ToolSighting.objects.filter(version=OuterRef("pk"), accepted=True)
    rows = ToolVersion.objects.filter(server=server, hash__in=pins).annotate(at_first_use=Exists(accepted))
    return {row.hash: row for row in rows}


def _row(server: MCPServer, tool: Definition, notes: tuple[str, ...], version: Any) -> ToolRow:
    decided = decide(server, tool.name)
    return ToolRow(
        name=tool.name,
        exposed=tool.exposed_name,
        title=tool.title,
        description=shorten(tool.description, DESCRIPTION),
        decision=decided.do.value,
        reason=decided.reason,
        claims=tuple(
            f"{hint.removesuffix('Hint')}: {'yes' if value else 'no'}"
            for hint, value in claims(tool.annotations).items()
        ),
        notes=(*notes, *tool.notes),
        quarantined=tool.quarantined,
        shown_name=revealed(tool.name),
        state=_state(version),
        flags=tuple(version.flags) if version is not None else (),
    )


def _state(version: Any) -> str:
    if version is None:
        return "waiting"
    if is_accepted(version.decision, version.at_first_use):
        return "accepted"
    return str(version.decision) or "waiting"


def _notes(warnings: list[dict[str, str]]) -> dict[str, tuple[str, ...]]:
    """`[{tool, message}]` by tool; those without one under the empty name."""
    notes: dict[str, tuple[str, ...]] = {}
    for warning in warnings:
        name = warning.get("tool") or ""
        notes[name] = (*notes.get(name, ()), warning.get("message") or "")
    return notes
