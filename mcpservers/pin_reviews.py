"""What an admin reviews: the versions of a server's tools with their state, flags and differences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from mcpservers.models import MCPServer, ToolSighting, ToolVersion, accepted_somewhere
from mcpservers.pin_diff import FieldDiff, differences
from mcpservers.visible import revealed

Decision = ToolVersion.Decision
PER_PAGE = 25


class Shown(StrEnum):
    """Which versions a page shows."""

    WAITING = "waiting"
    FLAGGED = "flagged"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Review:
    """One version as a page shows it. Of a waiting one `fields` tell what differs from what was accepted last."""

    id: UUID
    name: str
    state: str  # "accepted" | "accounts" (accepted at first use, for some) | "new" | "changed" | "rejected" | "gone"
    flags: Sequence[Mapping[str, Any]]
    fields: Sequence[FieldDiff]
    compared: bool
    listed_by: int  # views whose newest list has it
    accepted_by: int  # views for which first use accepted it
    first_seen_at: datetime
    decided_at: datetime | None
    decided_by: str

    @property
    def waits(self) -> bool:
        return self.state in ("new", "changed")

    @property
    def is_severe(self) -> bool:
        return any(flag.get("severe") for flag in self.flags)


def waiting(versions: QuerySet[ToolVersion]) -> QuerySet[ToolVersion]:
    """Those of `versions` that nobody decided on, that are listed somewhere, and are not accepted there."""
    sightings = ToolSighting.objects.filter(version=OuterRef("pk"), listed=True, accepted=False)
    return versions.filter(Exists(sightings), decision=Decision.NONE)


def with_waiting(servers: QuerySet[MCPServer]) -> QuerySet[MCPServer]:
    """The servers, each with `waiting`: the number of its versions that wait for an admin."""
    rows = waiting(ToolVersion.objects.filter(server=OuterRef("pk"))).order_by().values("server")
    return servers.annotate(waiting=Coalesce(Subquery(rows.annotate(number=Count("pk")).values("number")), 0))


def chosen(server: MCPServer, shown: Shown, words: str = "") -> QuerySet[ToolVersion]:
    """The versions of `server` that a page shows, by name and age; with `words` those whose name holds them."""
    versions = ToolVersion.objects.filter(server=server)
    match shown:
        case Shown.WAITING:
            versions = waiting(versions)
        case Shown.FLAGGED:
            versions = versions.exclude(flags=[])
        case Shown.ACCEPTED:
            versions = versions.filter(accepted_somewhere())
        case Shown.REJECTED:
            versions = versions.filter(decision=Decision.REJECTED)
    if words:
        versions = versions.filter(tool__icontains=words)
    return versions.order_by("tool", "-first_seen_at")


def counts(server: MCPServer) -> dict[Shown, int]:
    """How many versions each page would show."""
    return {shown: chosen(server, shown).count() for shown in Shown}


def reviews(server: MCPServer, versions: Iterable[ToolVersion]) -> list[Review]:
    """A page's versions: three queries."""
    keys = [version.pk for version in versions]
    rows = (
        ToolVersion.objects.filter(pk__in=keys)
        .select_related("decided_by")
        .annotate(
            listed_by=Count("sightings", filter=Q(sightings__listed=True)),
            accepted_by=Count("sightings", filter=Q(sightings__accepted=True)),
            unaccepted=Count("sightings", filter=Q(sightings__listed=True, sightings__accepted=False)),
        )
        .order_by("tool", "-first_seen_at")
    )
    found = list(rows)
    bases = _accepted_last(server, {version.tool for version in found})
    return [_review(version, bases.get(version.tool, ())) for version in found]


def _accepted_last(server: MCPServer, tools: set[str]) -> dict[str, list[ToolVersion]]:
    """By tool, the accepted versions: an admin's and the newest first."""
    rows = ToolVersion.objects.filter(server=server, tool__in=tools).filter(accepted_somewhere())
    bases: dict[str, list[ToolVersion]] = {}
    for version in rows.order_by(F("decided_at").desc(nulls_last=True), "-first_seen_at")[: 20 * len(tools)]:
        bases.setdefault(version.tool, []).append(version)
    return bases


def _review(version: Any, bases: Sequence[ToolVersion]) -> Review:
    base = next((each for each in bases if each.pk != version.pk), None)
    state = _state(version, base is not None)
    compared = base is not None and state in ("changed", "rejected")
    return Review(
        id=version.pk,
        name=revealed(version.definition["name"]),
        state=state,
        flags=version.flags,
        fields=differences(base.definition if base is not None and compared else None, version.definition),
        compared=compared,
        listed_by=version.listed_by,
        accepted_by=version.accepted_by,
        first_seen_at=version.first_seen_at,
        decided_at=version.decided_at,
        decided_by=version.decided_by.username if version.decided_by is not None else "",
    )


def _state(version: Any, has_base: bool) -> str:
    if version.decision:
        return str(version.decision)
    if version.unaccepted:
        return "changed" if has_base else "new"
    return "accounts" if version.accepted_by else "gone"
