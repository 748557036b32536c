"""Catalogue entries: one server's tools as one owner sees them, in memory and in the database."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from threading import Lock
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from mcpservers.discovery import Discovery
from mcpservers.models import CatalogueEntry
from mcpservers.naming import exposed_name
from mcpservers.pins import pin_hash
from mcpservers.schemas import DIALECTS, Quarantined, repair
from mcpservers.visible import visible

MAX_ENTRIES = 1000
ABSENT_SECONDS = 10.0  # for which a row that was not there is not looked for again
DESCRIPTION_LIMIT = 20_000  # characters


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
    renames: Mapping[str, str] = field(default_factory=dict)
    absent: frozenset[tuple[str, ...]] = frozenset()
    notes: tuple[str, ...] = ()
    quarantined: str = ""
    size: int = 0  # bytes of what a model is shown of it
    pin: str = ""  # the hash of what the server sent


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
    _hashes: list[str] = field(default_factory=list)

    @property
    def hashes(self) -> list[str]:
        """The pin of each tool (see `pins.pin_hash`), computed once."""
        if len(self._hashes) != len(self.tools):
            self._hashes = [pin_hash(tool) for tool in self.tools]
        return self._hashes

    @property
    def is_stale(self) -> bool:
        """Whether it is so old that it should be fetched again, though it still serves."""
        return self.fetched_at < timezone.now() - timedelta(seconds=settings.MCP["CATALOGUE_STORED_SECONDS"])

    def definitions(self, dialect: str) -> tuple[Definition, ...]:
        """Every tool, quarantined ones included, in the server's order. The first call for a dialect takes time."""
        found = self._definitions.get(dialect)
        if found is None:
            found = self._definitions[dialect] = tuple(self._repaired(dialect))
        return found

    def _repaired(self, dialect: str) -> Iterator[Definition]:
        names: set[str] = set()
        for tool, pin in zip(self.tools, self.hashes, strict=True):
            definition = replace(_definition(self.slug, tool, dialect), pin=pin)
            if definition.exposed_name in names:  # two names of one server with the same hash: made on purpose
                definition = replace(definition, parameters={}, quarantined="Its name cannot be told from another's.")
            names.add(definition.exposed_name)
            yield definition


def _definition(slug: str, tool: Mapping[str, Any], dialect: str) -> Definition:
    schema, output = tool.get("inputSchema"), tool.get("outputSchema")
    annotations = tool.get("annotations")
    hints = annotations if isinstance(annotations, dict) else {}
    definition = Definition(
        exposed_name=exposed_name(slug, tool["name"]),
        name=tool["name"],
        # A name with hidden characters is shown by its title, so it gets one.
        title=_words(tool.get("title") or hints.get("title"), 200) or _changed(tool["name"]),
        description=_words(tool.get("description"), DESCRIPTION_LIMIT),
        parameters={},
        input_schema=schema if isinstance(schema, dict) else {},
        output_schema=output if isinstance(output, dict) else None,
        annotations=hints,
    )
    execution = tool.get("execution")
    if isinstance(execution, dict) and execution.get("taskSupport") == "required":
        return replace(definition, quarantined="It can only be run as a task, which is not supported.")
    repaired = repair(schema, dialect)
    if isinstance(repaired, Quarantined):
        return replace(definition, quarantined=repaired.reason)
    shown = [definition.exposed_name, definition.description[: DIALECTS[dialect].max_description], repaired.parameters]
    return replace(
        definition,
        size=len(json.dumps(shown, ensure_ascii=False).encode("utf-8", "replace")),
        parameters=repaired.parameters,
        renames=repaired.renames,
        absent=repaired.absent,
        notes=repaired.notes,
    )


def _changed(name: str) -> str:
    shown = visible(name)
    return "" if shown == name else shown


def _words(text: object, limit: int) -> str:
    words = visible(text).strip() if isinstance(text, str) else ""
    return words if len(words) <= limit else words[: limit - 1] + "…"


# --- Memory -------------------------------------------------------------------------------------------------------


class _Memory:
    """The newest entries by address, least recently used out first; each is fresh for `CATALOGUE_FRESH_SECONDS`."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Address, tuple[Entry, float]] = OrderedDict()
        self._absent: OrderedDict[Address, float] = OrderedDict()  # until when there is taken to be no row
        self._lock = Lock()  # rows are read in threads

    def fresh(self, address: Address, slug: str) -> Entry | None:
        """The entry, if it may be served without a look at its row. A changed slug makes other names."""
        with self._lock:
            found = self._entries.get(address)
            if found is None or found[0].slug != slug or time.monotonic() > found[1]:
                return None
            self._entries.move_to_end(address)
            return found[0]

    def is_absent(self, address: Address) -> bool:
        """Whether there was no row a moment ago, as of a server that cannot be reached."""
        with self._lock:
            return time.monotonic() < self._absent.get(address, 0.0)

    def miss(self, addresses: Iterable[Address]) -> None:
        """There are no rows of these."""
        with self._lock:
            for address in addresses:
                self._absent[address] = time.monotonic() + ABSENT_SECONDS
                self._absent.move_to_end(address)
            while len(self._absent) > MAX_ENTRIES:
                self._absent.popitem(last=False)

    def confirm(self, address: Address, slug: str, revision: int, fetched_at: datetime) -> Entry | None:
        """The entry, fresh again, if it is of the revision that the row says."""
        with self._lock:
            known = self._entries.get(address)
            if known is None or known[0].slug != slug or known[0].revision != revision:
                return None
            known[0].fetched_at = fetched_at
            return self._put(known[0])

    def keep(self, entry: Entry) -> Entry:
        """Keep the entry, or the newer one that is kept already, and return it."""
        with self._lock:
            known = self._entries.get(entry.address)
            if known is not None and known[0].revision >= entry.revision and known[0].slug == entry.slug:
                entry = known[0]
            return self._put(entry)

    def _put(self, entry: Entry) -> Entry:
        self._absent.pop(entry.address, None)
        self._entries[entry.address] = (entry, time.monotonic() + settings.MCP["CATALOGUE_FRESH_SECONDS"])
        self._entries.move_to_end(entry.address)
        while len(self._entries) > MAX_ENTRIES:
            self._entries.popitem(last=False)
        return entry

    def forget(self, server_id: UUID) -> None:
        with self._lock:
            for known in (self._entries, self._absent):
                for address in [address for address in known if address.server_id == server_id]:
                    del known[address]

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._absent.clear()


memory = _Memory()


# --- Rows ---------------------------------------------------------------------------------------------------------


def find(wanted: Mapping[Address, str]) -> dict[Address, Entry]:
    """The known entries of `wanted` (address → server slug), in two queries at most.

    From memory where fresh; else the rows' revisions are read, and the tools of those alone that memory does not have.
    What was not there a moment ago is not looked for.
    """
    found = {address: entry for address, slug in wanted.items() if (entry := memory.fresh(address, slug)) is not None}
    missing = {
        address: slug for address, slug in wanted.items() if address not in found and not memory.is_absent(address)
    }
    if not missing:
        return found
    rows = _rows_of(missing).values_list("pk", "server_id", "definition_hash", "owner_key", "revision", "fetched_at")
    changed = []
    there = set()
    for pk, server_id, definition_hash, owner, revision, fetched_at in rows:
        address = Address(server_id, definition_hash, owner)
        if address not in missing:
            continue
        there.add(address)
        entry = memory.confirm(address, missing[address], revision, fetched_at)
        if entry is None:
            changed.append(pk)
        else:
            found[address] = entry
    memory.miss(missing.keys() - there)
    for row in CatalogueEntry.objects.filter(pk__in=changed) if changed else ():
        address = Address(row.server_id, row.definition_hash, row.owner_key)
        found[address] = memory.keep(_entry(row, missing[address]))
    return found


def of_others(wanted: Mapping[Address, str]) -> dict[Address, Entry]:
    """For each of `wanted` (address → server slug) the newest complete list that anybody has of this definition.

    Three queries at most; the entries are those of whoever has them, and remain in memory as such.
    """
    if not wanted:
        return {}
    rows = CatalogueEntry.objects.filter(
        server__in={address.server_id for address in wanted},
        definition_hash__in={address.definition_hash for address in wanted},
        complete=True,
    ).order_by("revision")
    newest = {
        address[:2]: Address(*address) for address in rows.values_list("server_id", "definition_hash", "owner_key")
    }
    theirs = {
        address: newest[address.server_id, address.definition_hash]
        for address in wanted
        if (address.server_id, address.definition_hash) in newest
    }
    known = find({other: wanted[address] for address, other in theirs.items()})
    return {address: known[other] for address, other in theirs.items() if other in known}


def _rows_of(addresses: Iterable[Address]) -> QuerySet[CatalogueEntry]:
    """The rows of the addresses, and perhaps of some more."""
    addresses = list(addresses)
    return CatalogueEntry.objects.filter(
        server__in={address.server_id for address in addresses},
        definition_hash__in={address.definition_hash for address in addresses},
        owner_key__in={address.owner for address in addresses},
    )


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


def unstored(address: Address, slug: str, found: Discovery, revision: int) -> Entry:
    """A discovery as the entry that serves its caller alone."""
    return Entry(
        address, slug, found.tools, found.warnings, found.instructions, found.complete, revision, timezone.now()
    )


def store(address: Address, slug: str, found: Discovery, revision: int) -> Entry:
    """Keep a discovery and return what serves from now on.

    A complete list is stored unless a newer one is (which is then returned); an incomplete one only serves its caller.
    """
    entry = unstored(address, slug, found, revision)
    if not found.complete:
        return entry
    where = {"server_id": address.server_id, "definition_hash": address.definition_hash, "owner_key": address.owner}
    values = {
        "revision": revision,
        "complete": True,
        "tools": found.tools,
        "warnings": found.warnings,
        "instructions": found.instructions,
        "fetched_at": entry.fetched_at,
    }
    rows = CatalogueEntry.objects.filter(**where)
    if not rows.filter(revision__lt=revision).update(**values):
        try:
            with transaction.atomic():
                _row, made = CatalogueEntry.objects.get_or_create(defaults=values, **where)
        except IntegrityError:  # the server was deleted meanwhile
            return entry
        if not made and not rows.filter(revision__lt=revision).update(**values):
            newer = rows.first()
            return entry if newer is None else memory.keep(_entry(newer, slug))
    _drop_outdated(address)
    return memory.keep(entry)


def _drop_outdated(address: Address) -> None:
    """Entries of older definitions, and of older values of the same owner (and account), serve nobody any more."""
    others = CatalogueEntry.objects.filter(server_id=address.server_id).exclude(
        definition_hash=address.definition_hash, owner_key=address.owner
    )
    others.exclude(definition_hash=address.definition_hash).delete()
    if address.owner:
        others.filter(owner_key__startswith=address.owner.rpartition(":")[0] + ":").delete()
