"""A server's tools as the admin shows them: what is stored, repaired, quarantined, and decided by the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from chatui.text import shorten
from mcpservers.approvals import RuleList, claims, verdict
from mcpservers.models import CatalogueEntry, MCPServer
from mcpservers.naming import exposed_name
from mcpservers.schemas import Quarantined, repair

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


@dataclass(frozen=True, slots=True)
class ToolList:
    tools: tuple[ToolRow, ...]
    warnings: tuple[str, ...]  # of the list as a whole
    fetched_at: datetime
    complete: bool
    of_one_user: bool  # the server's list may differ from user to user
    outdated: bool  # of an older definition


def stored_tools(server: MCPServer) -> ToolList | None:
    """The newest stored list of `server`, of its present definition if there is one; None if there is none at all."""
    entries = server.catalogue_entries.order_by("-fetched_at")
    current = server.definition_hash()
    entry: CatalogueEntry | None = entries.filter(definition_hash=current).first() or entries.first()
    if entry is None:
        return None
    notes = _notes(entry.warnings)
    tools = [tool for tool in entry.tools if isinstance(tool, Mapping) and isinstance(tool.get("name"), str)]
    return ToolList(
        tools=tuple(_row(server, tool, notes.pop(tool["name"], ())) for tool in tools),
        warnings=tuple(f"{name}: {text}" if name else text for name, texts in notes.items() for text in texts),
        fetched_at=entry.fetched_at,
        complete=entry.complete,
        of_one_user=bool(entry.owner_key),
        outdated=entry.definition_hash != current,
    )


def _row(server: MCPServer, tool: Mapping[str, Any], notes: tuple[str, ...]) -> ToolRow:
    name = str(tool["name"])
    repaired = repair(tool.get("inputSchema"))
    decided = verdict(name, lists=[RuleList("this server", server.rules)], read_only=server.read_only)
    quarantined = repaired.reason if isinstance(repaired, Quarantined) else ""
    return ToolRow(
        name=name,
        exposed=exposed_name(server.slug, name),
        title=shorten(str(tool.get("title") or ""), DESCRIPTION),
        description=shorten(str(tool.get("description") or ""), DESCRIPTION),
        decision=decided.do.value,
        reason=decided.reason,
        claims=tuple(f"{hint}: {'yes' if value else 'no'}" for hint, value in claims(tool.get("annotations")).items()),
        notes=notes if isinstance(repaired, Quarantined) else (*notes, *repaired.notes),
        quarantined=quarantined,
    )


def _notes(warnings: Any) -> dict[str, tuple[str, ...]]:
    """`[{tool, message}]` by tool; those without one under the empty name."""
    notes: dict[str, tuple[str, ...]] = {}
    for warning in warnings if isinstance(warnings, list) else ():
        if isinstance(warning, Mapping):
            name = str(warning.get("tool") or "")
            notes[name] = (*notes.get(name, ()), str(warning.get("message") or ""))
    return notes
