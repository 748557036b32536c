"""Catalogue entries: one server's tools as one owner sees them, in memory and in the database (SPEC C3)."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from mcpservers.discovery import Discovery
from mcpservers.models import CatalogueEntry, MCPServer
from mcpservers.naming import exposed_name
from mcpservers.schemas import Quarantined, repair
from mcpservers.visible import visible

MAX_ENTRIES = 1000
DESCRIPTION_LIMIT = 4000  # characters


@dataclass(frozen=True, slots=True)
class Address:
    """What an entry is stored under. `owner` is "" for the organization's own view, else tells whose values it has."""

    server_id: UUID
    definition_hash: str
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Definition:
    """A tool as a dialect's models may be shown it; `quarantined` says why it may not, and then has no parameters."""

    exposed_name: str
    name: str  # as the server calls it
    title: str
    description: str
    parameters: dict[str, Any]
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    annotations: Mapping[str, Any]
    renames: Mapping[str, str]
    absent: frozenset[tuple[str, ...]]
    notes: tuple[str, ...] = ()
    quarantined: str = ""


@dataclass(eq=False, slots=True)
class Entry:
    """A tool list at one revision. `definitions` repairs it once per dialect and keeps the result."""

    address: Address
    slug: str
    tools: list[dict[str, Any]]
    warnings: list[dict[str, str]]
    instructions: str
    complete: bool
    revision: int
    fetched_at: datetime
    _definitions: dict[str, tuple[Definition, ...]] = field(default_factory=dict)

    @property
    def is_stale(self) -> bool:
        """Whether it is so old that it should be fetched again, though it still serves."""
        return self.fetched_at < timezone.now() - timedelta(seconds=settings.MCP["CATALOGUE_STORED_SECONDS"])

    def definitions(self, dialect: str) -> tuple[Definition, ...]:
        """Every tool, quarantined ones included, in the server's order."""
        found = self._definitions.get(dialect)
        if found is None:
            found = self._definitions[dialect] = tuple(_definition(self.slug, tool, dialect) for tool in self.tools)
        return found


def _definition(slug: str, tool: Mapping[str, Any], dialect: str) -> Definition:
    repaired = repair(tool.get("inputSchema"), dialect)
    schema = tool.get("inputSchema")
    output = tool.get("outputSchema")
    annotations = tool.get("annotations")
    hints = annotations if isinstance(annotations, dict) else {}
    title = tool.get("title") or hints.get("title") or ""
    quarantined = isinstance(repaired, Quarantined)
    return Definition(
        exposed_name=exposed_name(slug, tool["name"]),
        name=tool["name"],
        title=visible(str(title)).strip()[:200],
        description=visible(str(tool.get("description") or "")).strip()[:DESCRIPTION_LIMIT],
        parameters={} if isinstance(repaired, Quarantined) else repaired.parameters,
        input_schema=schema if isinstance(schema, dict) else {},
        output_schema=output if isinstance(output, dict) else None,
        annotations=hints,
        renames={} if isinstance(repaired, Quarantined) else repaired.renames,
        absent=frozenset() if isinstance(repaired, Quarantined) else repaired.absent,
        notes=() if isinstance(repaired, Quarantined) else repaired.notes,
        quarantined=repaired.reason if isinstance(repaired, Quarantined) and quarantined else "",
    )


# --- Memory -------------------------------------------------------------------------------------------------------


class _Memory:
    """The newest entries by address, least recently used out first; each is fresh for `CATALOGUE_FRESH_SECONDS`."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Address, tuple[Entry, float]] = OrderedDict()
        self._lock = Lock()  # rows are read in threads

    def fresh(self, address: Address) -> Entry | None:
        with self._lock:
            found = self._entries.get(address)
            if found is None or time.monotonic() > found[1]:
                return None
            self._entries.move_to_end(address)
            return found[0]

    def keep(self, entry: Entry) -> Entry:
        """Keep the entry (or the same revision that is kept already, with its repaired tools) and return it."""
        until = time.monotonic() + settings.MCP["CATALOGUE_FRESH_SECONDS"]
        with self._lock:
            known = self._entries.get(entry.address)
            if known is not None and known[0].revision >= entry.revision:
                entry = known[0]
            self._entries[entry.address] = (entry, until)
            self._entries.move_to_end(entry.address)
            while len(self._entries) > MAX_ENTRIES:
                self._entries.popitem(last=False)
            return entry

    def forget(self, server_id: UUID) -> None:
        with self._lock:
            for address in [address for address in self._entries if address.server_id == server_id]:
                del self._entries[address]


memory = _Memory()


# --- Rows ---------------------------------------------------------------------------------------------------------


def find(wanted: Mapping[Address, str]) -> dict[Address, Entry]:
    """The known entries of `wanted` (address → server slug): from memory where fresh, the rest in one query."""
    found = {address: entry for address in wanted if (entry := memory.fresh(address)) is not None}
    missing = {address: slug for address, slug in wanted.items() if address not in found}
    if missing:
        rows = CatalogueEntry.objects.filter(
            server__in={address.server_id for address in missing},
            definition_hash__in={address.definition_hash for address in missing},
            owner_key__in={address.owner for address in missing},
        )
        for row in rows:
            address = Address(row.server_id, row.definition_hash, row.owner_key)
            if address in missing:
                found[address] = memory.keep(_entry(row, missing[address]))
    return found


def _entry(row: CatalogueEntry, slug: str) -> Entry:
    return Entry(
        Address(row.server_id, row.definition_hash, row.owner_key),
        slug,
        row.tools,
        row.warnings,
        row.instructions,
        row.complete,
        row.revision,
        row.fetched_at,
    )


def new_revision() -> int:
    """Taken before a fetch, so that a list that was fetched earlier never overwrites one fetched later."""
    return time.time_ns() // 1000


def store(address: Address, slug: str, found: Discovery, revision: int) -> Entry:
    """Keep a discovery. A complete list is stored unless a newer one is; an incomplete one only serves its caller."""
    entry = Entry(
        address, slug, found.tools, found.warnings, found.instructions, found.complete, revision, timezone.now()
    )
    if not found.complete:
        return entry
    values = {
        "revision": revision,
        "complete": True,
        "tools": found.tools,
        "warnings": found.warnings,
        "instructions": found.instructions,
        "fetched_at": entry.fetched_at,
    }
    where = {
        "server_id": address.server_id,
        "definition_hash": address.definition_hash,
        "owner_key": address.owner,
    }
    rows = CatalogueEntry.objects.filter(**where)
    if not rows.filter(revision__lt=revision).update(**values) and not rows.exists():
        try:
            with transaction.atomic():
                CatalogueEntry.objects.create(**where, **values)
        except IntegrityError:  # stored by another meanwhile, or the server is deleted
            rows.filter(revision__lt=revision).update(**values)
    _drop_outdated(address)
    return memory.keep(entry)


def _drop_outdated(address: Address) -> None:
    """Entries of older definitions, and of older values of the same owner, serve nobody any more."""
    others = CatalogueEntry.objects.filter(server_id=address.server_id).exclude(
        definition_hash=address.definition_hash, owner_key=address.owner
    )
    others.exclude(definition_hash=address.definition_hash).delete()
    if address.owner:
        others.filter(owner_key__startswith=address.owner.partition(":")[0] + ":").delete()


def outdate(server: MCPServer) -> None:
    """Make what is known of a server stale: it serves until it has been fetched again."""
    CatalogueEntry.objects.filter(server=server).update(fetched_at=timezone.now() - timedelta(days=3650))
    memory.forget(server.pk)
