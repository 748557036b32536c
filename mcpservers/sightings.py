"""What a server lists is taken down: new versions, who sees which, and what its first use accepts.

One transaction per list that says anything new, in which the server's row is locked: of two processes that list a
server for the first time, one is first, and what the other one saw differently waits.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from accounts import audit
from accounts.models import AuditAction
from mcpservers import pins
from mcpservers.doubles import Looks, content_of, doubles, renamed
from mcpservers.models import MCPServer, ToolSighting, ToolVersion, ToolView
from mcpservers.pins import Owner, Pins, pinned_part, tool_key
from mcpservers.suspicions import Flag, suspicions
from mcpservers.visible import revealed

if TYPE_CHECKING:
    from mcpservers.entries import Entry

logger = logging.getLogger(__name__)
KEPT_PER_TOOL = 20  # versions that nobody decided on and no list has any more
NAMES_AUDITED = 50
Decision = ToolVersion.Decision


@dataclass(slots=True)
class _Tool:
    """A listed tool whose version is not in the view yet."""

    key: str
    hash: str
    definition: dict[str, Any]
    flags: list[Flag]

    @property
    def is_severe(self) -> bool:
        return any(flag.severe for flag in self.flags)

    def version(self, server_id: Any) -> ToolVersion:
        looks = Looks.of(self.definition)
        return ToolVersion(
            server_id=server_id,
            tool=self.key,
            hash=self.hash,
            definition=self.definition,
            flags=[flag.as_json() for flag in self.flags],
            name_skeleton=looks.name,
            title_skeleton=looks.title,
        )


def observed(owners: Mapping[Owner, Entry]) -> dict[Owner, Pins]:
    """The pins of each owner, once what its entry lists is taken down. A constant number of queries if it was."""
    found = pins.find(owners)
    unseen = [owner for owner, entry in owners.items() if not found[owner].has_seen(entry)]
    for owner in unseen:
        try:
            _take_down(owner, owners[owner], found[owner])
        except IntegrityError:  # the server or the user was deleted meanwhile; nothing of it is accepted
            logger.info("What server %s lists could not be taken down", owner.server_id)
    return found | pins.find(unseen) if unseen else found


def _take_down(owner: Owner, entry: Entry, known: Pins) -> None:
    tools = _unseen(owner, entry, known)  # the slow part, before the lock
    with transaction.atomic():
        server = MCPServer.objects.as_system().select_for_update(no_key=True).filter(pk=owner.server_id).first()
        if server is None:
            return
        view, _made = ToolView.objects.get_or_create(
            server=server, owner_key=owner.key, defaults={"user_id": owner.user_id}
        )
        _Taking(server, view, owner, entry).take(tools)


def _unseen(owner: Owner, entry: Entry, known: Pins) -> list[_Tool]:
    listed = [
        _Tool(tool_key(tool["name"]), hash, pinned_part(tool), [])
        for tool, hash in zip(entry.tools, entry.hashes, strict=True)
        if hash not in known.sightings
    ]
    if not listed:
        return []
    rows = ToolVersion.objects.filter(server=owner.server_id, hash__in=[tool.hash for tool in listed])
    stored = dict(rows.values_list("hash", "flags"))
    new = [tool for tool in listed if tool.hash not in stored]
    related = doubles(owner.server_id, [tool.definition for tool in new], (tool["name"] for tool in entry.tools))
    for tool, flags in zip(new, related, strict=True):
        tool.flags = [*suspicions(tool.definition), *flags]
    for tool in listed:
        if tool.hash in stored:
            tool.flags = [Flag(**flag) for flag in stored[tool.hash]]
    return listed


class _Taking:
    """One list being taken down, with the server's row locked."""

    def __init__(self, server: MCPServer, view: ToolView, owner: Owner, entry: Entry) -> None:
        self.server, self.view, self.owner, self.entry = server, view, owner, entry
        self.rows = list(view.sightings.select_related("version"))
        self.is_newest = entry.revision >= view.list_revision
        self.now = timezone.now()
        self.pending: set[str] = set()  # versions that wait for an admin in some view, and are accepted in none

    def take(self, tools: Sequence[_Tool]) -> None:
        present = {row.version.hash for row in self.rows}
        tools = [tool for tool in tools if tool.hash not in present]  # another process may have been faster
        self._flag_renames(tools)
        moved = self._mark_listed() if self.is_newest else False
        added = self._add(tools)
        settles = self.view.settled_at is None and (self.entry.complete or bool(self.rows))
        if settles:
            self.view.settled_at = self.now
        if self.is_newest:
            self.view.list_revision = self.entry.revision
        if moved or added or settles:
            self.view.revision += 1
        self.view.save(update_fields=["settled_at", "list_revision", "revision"])
        if tools:
            self._drop_forgotten({tool.key for tool in tools})

    def _flag_renames(self, tools: Sequence[_Tool]) -> None:
        listed = set(self.entry.hashes)
        gone = {}
        for row in self.rows:
            version = row.version
            rejected = version.decision == Decision.REJECTED
            if rejected or (self.entry.complete and row.listed and version.hash not in listed):
                content = content_of(version.definition)
                if content is not None:
                    gone[content] = (version.definition["name"], not rejected and row.is_accepted)
        names = {tool["name"] for tool in self.entry.tools}
        gone = {content: found for content, found in gone.items() if found[0] not in names or not found[1]}
        for tool in tools if gone else ():
            flag = renamed(tool.definition, gone)
            if flag is not None:
                tool.flags.append(flag)

    def _mark_listed(self) -> bool:
        """Whether anything changed. An incomplete list says nothing of tools that are not in it."""
        listed = set(self.entry.hashes)
        keys = {tool_key(tool["name"]) for tool in self.entry.tools}
        changed = []
        for row in self.rows:
            has = row.version.hash in listed
            if has != row.listed and (has or self.entry.complete or row.version.tool in keys):
                row.listed = has
                changed.append(row)
        ToolSighting.objects.bulk_update(changed, ["listed"], batch_size=500)
        return bool(changed)

    def _add(self, tools: Sequence[_Tool]) -> bool:
        if not tools:
            return False
        versions = self._versions(tools)
        seen = {row.version.tool for row in self.rows}
        sightings, accepted, waiting = [], [], []
        for tool in tools:
            version = versions[tool.hash]
            accepts = not version.decision and tool.key not in seen and self._accepts(tool)
            sightings.append(ToolSighting(view=self.view, version=version, accepted=accepts, listed=self.is_newest))
            if accepts:
                accepted.append(version)
            elif not version.decision:
                waiting.append(version)
        if not self.owner.key:  # the organization's own list: for everybody
            ToolVersion.objects.filter(pk__in=[version.pk for version in accepted]).update(
                decision=Decision.ACCEPTED, decided_at=self.now
            )
        ToolSighting.objects.bulk_create(sightings, batch_size=500)
        self._record(AuditAction.PIN_ACCEPTED, accepted, "first use")
        self._record(AuditAction.PIN_DRIFT, waiting, "waits for an admin")
        return True

    def _accepts(self, tool: _Tool) -> bool:
        """Whether a tool that this view has never had is accepted without an admin."""
        if self.server.trust != MCPServer.Trust.FIRST_USE or tool.hash in self.pending:
            return False
        if self.view.settled_at is None:
            return True
        return not self.server.reviews_new_tools and not tool.is_severe

    def _versions(self, tools: Sequence[_Tool]) -> dict[str, ToolVersion]:
        """The rows of the tools' versions by hash, made where there are none."""
        sightings = ToolSighting.objects.filter(version=OuterRef("pk"))
        rows = ToolVersion.objects.filter(server=self.server, hash__in=[tool.hash for tool in tools]).annotate(
            is_seen=Exists(sightings.filter(listed=True)), is_used=Exists(sightings.filter(accepted=True))
        )
        found: dict[str, ToolVersion] = {}
        for version in rows:
            found[version.hash] = version
            if version.is_seen and not version.is_used:
                self.pending.add(version.hash)
        made = [tool.version(self.server.pk) for tool in tools if tool.hash not in found]
        ToolVersion.objects.bulk_create(made, batch_size=200)
        return found | {version.hash: version for version in made}

    def _record(self, action: AuditAction, versions: Sequence[ToolVersion], reason: str) -> None:
        if versions:
            names = [revealed(version.tool) for version in versions]
            audit.record(
                action,
                organization_id=self.server.organization_id,
                target=audit.Target("server", self.server.pk, self.server.slug),
                server_id=self.server.pk,
                server=self.server.slug,
                tool=names[0] if len(names) == 1 else "",
                person_id=self.owner.user_id,
                reason=reason,
                details={"number": len(names), "tools": names[:NAMES_AUDITED]},
            )

    def _drop_forgotten(self, keys: set[str]) -> None:
        """Versions that nobody decided on, nobody accepted and nobody lists, but for the newest of each tool."""
        used = ToolSighting.objects.filter(version=OuterRef("pk"), listed=True)
        accepted = ToolSighting.objects.filter(version=OuterRef("pk"), accepted=True)
        rows = (
            ToolVersion.objects.filter(server=self.server, tool__in=keys, decision=Decision.NONE)
            .exclude(Exists(used))
            .exclude(Exists(accepted))
            .order_by("tool", "-first_seen_at")
            .values_list("tool", "pk")
        )
        kept: dict[str, int] = {}
        forgotten = []
        for tool, pk in rows:
            kept[tool] = kept.get(tool, 0) + 1
            if kept[tool] > KEPT_PER_TOOL:
                forgotten.append(pk)
        if forgotten:
            ToolVersion.objects.filter(pk__in=forgotten).delete()
