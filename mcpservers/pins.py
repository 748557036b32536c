"""Pinned tools: a tool is offered, and called, only in a version that was accepted for whoever asks.

A version is the hash of what the server sent. It is accepted for everybody (by an admin, or by the first list of the
organization's own connection) or for one account (by that account's first list). What the server lists instead waits.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db.models import Q

from chatui.prepared import PreparedQuery
from mcpservers.models import ToolSighting, ToolVersion, ToolView, is_accepted
from mcpservers.transports import AppPrincipal, ConnectionTarget

if TYPE_CHECKING:
    from mcpservers.entries import Entry

PINNED = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
MAX_VIEWS = 2_000  # whose pins are kept in memory
_LONGEST_NAME = 200
_EXACT = 2**53  # above it JSON's numbers are not told apart by every reader
_PECULIAR_NUMBER = re.compile(r"\d[.eE]|\d{16}")  # and some texts, which are written again as they were


# --- Hashes -------------------------------------------------------------------------------------------------------


def pinned_part(tool: Mapping[str, Any]) -> dict[str, Any]:
    """What of a tool, as its server sent it, is pinned: no `_meta`, no icons."""
    return {key: tool[key] for key in PINNED if key in tool}


def pin_hash(tool: Mapping[str, Any]) -> str:
    """SHA-256 (64 hexadecimal digits) over the canonical JSON of `pinned_part(tool)`.

    Keys are sorted, and a number is written in one way, so that a definition that a database has kept (1e5 as 100000)
    has the hash of the one that was sent.
    """
    text = _canonical(pinned_part(tool))
    if _PECULIAR_NUMBER.search(text):
        text = _canonical(json.loads(text, parse_float=_number, parse_int=_number))
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _number(text: str) -> Any:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        return text  # more than a float holds: its digits, as a text
    return int(value) if value.is_integer() and abs(value) <= _EXACT else value


def tool_key(name: str) -> str:
    """The name under which a tool's versions are stored: its own; of a longer one the beginning and a hash."""
    if len(name) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:32]
    return f"{name[: _LONGEST_NAME - 33]}…{digest}"


# --- Whose ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose view of a server it is: an account's, a user's, or (key "") the organization's own."""

    server_id: UUID
    key: str = ""
    user_id: UUID | None = None


def owner_of(target: ConnectionTarget) -> Owner:
    """The owner of what `target` lists: each linked account has a view of its own."""
    if isinstance(target.principal, AppPrincipal):
        return Owner(target.server_id)
    user_id = target.principal.user_id
    account = target.principal.account_id
    return Owner(target.server_id, user_id.hex if account is None else f"{user_id.hex}:{account.hex}", user_id)


# --- Verdicts -------------------------------------------------------------------------------------------------------


class State(StrEnum):
    """Of a version, for one owner. Only an accepted one is offered."""

    ACCEPTED = "accepted"
    NEW = "new"
    CHANGED = "changed"
    REJECTED = "rejected"


REASONS: dict[State, str] = {
    State.ACCEPTED: "",
    State.NEW: "It is new, and waits for an admin to accept it.",
    State.CHANGED: "Its server changed what it says of it. It waits for an admin to accept the change.",
    State.REJECTED: "An admin rejected what its server says of it now.",
}
OWN_REASONS: dict[State, str] = {  # of a server of one's own, to whom it is
    State.ACCEPTED: "",
    State.NEW: "It is new, and waits for you to accept it, on the page of connections.",
    State.CHANGED: "Its server changed what it says of it. It waits for you, on the page of connections.",
    State.REJECTED: "You rejected what its server says of it now.",
}


@dataclass(frozen=True, slots=True)
class Sighting:
    """One version in a view, as its rows say."""

    tool: str  # a `tool_key`
    hash: str
    decision: str  # a `ToolVersion.Decision`
    accepted: bool
    listed: bool

    @property
    def is_accepted(self) -> bool:
        return is_accepted(self.decision, self.accepted)


@dataclass(slots=True)
class Pins:
    """The versions that one view has seen. `revision` is of the view's row, -1 where there is none."""

    owner: Owner
    revision: int = -1
    settled: bool = False
    list_revision: int = 0
    sightings: Mapping[str, Sighting] = field(default_factory=dict)  # by hash
    _listed: frozenset[str] = frozenset()
    _known: frozenset[str] = frozenset()  # tools with an accepted version
    _waiting: Mapping[str, Sighting] = field(default_factory=dict)  # tools that are listed in another one

    @classmethod
    def of(
        cls, owner: Owner, sightings: Iterable[Sighting], revision: int = 0, settled: bool = True, listed_at: int = 0
    ) -> Pins:
        rows = {sighting.hash: sighting for sighting in sightings}
        return cls(
            owner,
            revision,
            settled,
            listed_at,
            rows,
            frozenset(row.hash for row in rows.values() if row.listed),
            frozenset(row.tool for row in rows.values() if row.is_accepted),
            {row.tool: row for row in rows.values() if row.listed and not row.is_accepted},
        )

    def state(self, tool: str, hash: str) -> State:
        """What is said of version `hash` of the tool named `tool`.

        A version that was accepted waits too while the server is known to list another one, which was not.
        """
        key = tool_key(tool)
        own = self.sightings.get(hash)
        said = self._waiting.get(key) or own
        if own is not None and own.decision == ToolVersion.Decision.REJECTED:
            return State.REJECTED
        if said is not None and said.is_accepted:
            return State.ACCEPTED
        if said is not None and said.decision == ToolVersion.Decision.REJECTED:
            return State.REJECTED
        return State.CHANGED if key in self._known else State.NEW

    def has_seen(self, entry: Entry) -> bool:
        """Whether the rows tell all that `entry` does: nothing of it is new to them."""
        hashes = entry.hashes
        if not all(hash in self.sightings for hash in hashes):
            return False
        if entry.complete and not self.settled:
            return False
        if entry.revision <= self.list_revision:
            return True
        listed = set(hashes)
        return listed == self._listed if entry.complete else listed <= self._listed


# --- Rows -----------------------------------------------------------------------------------------------------------


class _Memory:
    """The pins of views by owner, each at its row's revision."""

    def __init__(self) -> None:
        self._pins: OrderedDict[Owner, Pins] = OrderedDict()
        self._lock = Lock()  # rows are read in threads

    def get(self, owner: Owner, revision: int) -> Pins | None:
        with self._lock:
            found = self._pins.get(owner)
            if found is None or found.revision != revision:
                return None
            self._pins.move_to_end(owner)
            return found

    def keep(self, pins: Pins) -> None:
        with self._lock:
            self._pins[pins.owner] = pins
            self._pins.move_to_end(pins.owner)
            while len(self._pins) > MAX_VIEWS:
                self._pins.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._pins.clear()


memory = _Memory()


_COLUMNS = ("version__tool", "version__hash", "version__decision", "accepted", "listed")


def find(owners: Iterable[Owner]) -> dict[Owner, Pins]:
    """The pins of each owner, as the rows are now: one query, and one more where one of them has changed."""
    found = {owner: Pins(owner) for owner in owners}
    if not found:
        return found
    by_address = {(owner.server_id, owner.key): owner for owner in found}
    rows = ToolView.objects.filter(
        server__in={owner.server_id for owner in found}, owner_key__in={owner.key for owner in found}
    ).values_list("pk", "server_id", "owner_key", "revision", "settled_at", "list_revision")
    changed: dict[UUID, Pins] = {}
    for pk, server_id, key, revision, settled_at, list_revision in rows:
        owner = by_address.get((server_id, key))
        if owner is None:
            continue
        known = memory.get(owner, revision)
        if known is not None:
            found[owner] = known
        else:
            changed[pk] = Pins(owner, revision, settled_at is not None, list_revision)
    for pins in _read(changed) if changed else ():
        found[pins.owner] = pins
        memory.keep(pins)
    return found


def _read(views: Mapping[UUID, Pins]) -> Iterable[Pins]:
    sightings: dict[UUID, list[Sighting]] = {pk: [] for pk in views}
    rows = ToolSighting.objects.filter(view__in=list(views)).values_list("view_id", *_COLUMNS)
    for view, tool, hash, decision, accepted, listed in rows:
        sightings[view].append(Sighting(tool, hash, decision, accepted, listed))
    for pk, pins in views.items():
        yield Pins.of(pins.owner, sightings[pk], pins.revision, pins.settled, pins.list_revision)


_of_call = PreparedQuery(
    lambda server, tool, user: (
        ToolSighting.objects.filter(view__server_id=server, version__tool=tool)
        .filter(Q(view__user_id=None) | Q(view__user_id=user))
        .values_list("view__owner_key", *_COLUMNS)
    ),
    UUID,
    str,
    UUID,
)


@dataclass(frozen=True, slots=True)
class CallPins:
    """What the rows say of one tool just now, in every view that its caller could have."""

    tool: str = ""
    rows: tuple[tuple[str, Sighting], ...] = ()  # with the view's owner key
    own: bool = False  # of a server of the caller's own

    def has_view(self, owner: Owner) -> bool:
        """Whether the tool was ever seen in the owner's view."""
        return any(key == owner.key for key, _ in self.rows)

    def refusal(self, owner: Owner, hash: str) -> str:
        """Why version `hash` may not be called by `owner`; "" if it may.

        Without a hash (a tool that was never listed) all that was seen of the tool must be accepted.
        """
        own = [sighting for key, sighting in self.rows if key == owner.key]
        pins = Pins.of(owner, own)
        if not hash:
            if not own:
                return ""
            hash = next((sighting.hash for sighting in own if sighting.is_accepted), "")
        return (OWN_REASONS if self.own else REASONS)[pins.state(self.tool, hash)]


def of_call(server_id: UUID, tool: str, user_id: UUID, *, own: bool = False) -> CallPins:
    """The fresh rows for a call of `tool`: one query. `own`: the server is the caller's own."""
    rows = _of_call(server_id, tool_key(tool), user_id)
    seen = tuple((owner, Sighting(key, hash, said, mine, listed)) for owner, key, hash, said, mine, listed in rows)
    return CallPins(tool, seen, own)
