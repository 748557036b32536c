"""Tools that could be taken for others: of the same name, of one that looks alike, renamed, or speaking of others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Q

from mcpservers.confusables import same_but_for_writing, skeleton
from mcpservers.models import MCPServer, ToolVersion
from mcpservers.naming import SEPARATOR
from mcpservers.suspicions import Flag, Kind, excerpt_of
from mcpservers.visible import revealed

Definition = Mapping[str, Any]  # see `pins.pinned_part`
_SHORTEST = 3  # characters of a skeleton; shorter ones meet by chance
_NAME_IN_TEXT = re.compile(r"\b[A-Za-z0-9]+(?:[_-]{1,2}[A-Za-z0-9]+)+\b")
_MOST_NAMES = 200  # looked up of one description
_MOST_ROWS = 2_000


@dataclass(frozen=True, slots=True)
class Looks:
    """What a definition's name and title look like; "" for what is too short to be mistaken."""

    name: str
    title: str

    @classmethod
    def of(cls, definition: Definition) -> Looks:
        return cls(_looks(definition.get("name")), _looks(title_of(definition)))

    def both(self) -> set[str]:
        return {self.name, self.title} - {""}


def title_of(definition: Definition) -> str:
    """The title as people are shown it: the tool's own, else the one of its annotations."""
    annotations = definition.get("annotations")
    hinted = annotations.get("title") if isinstance(annotations, Mapping) else None
    title = definition.get("title") or hinted
    return title if isinstance(title, str) else ""


def _looks(text: object) -> str:
    found = skeleton(text) if isinstance(text, str) else ""
    return found if len(found) >= _SHORTEST else ""


@dataclass(frozen=True, slots=True)
class _Other:
    """A tool that is known already."""

    server_id: UUID
    server: str
    name: str
    title: str
    looks: Looks

    def __str__(self) -> str:
        return f"“{revealed(self.name)}” of “{self.server}”"


def doubles(server_id: UUID, new: Sequence[Definition], listed: Iterable[str]) -> list[list[Flag]]:
    """The flags of each of the `new` definitions of a server which lists tools of the names `listed`.

    One query. Tools of other servers of the same organization count, and this server's own under other names.
    """
    looks = [Looks.of(definition) for definition in new]
    mentioned = [_names_in(definition.get("description")) for definition in new]
    own_names = set(listed)
    found = _others(server_id, set().union(*(look.both() for look in looks)), set().union(*mentioned) - own_names)
    own = [
        _Other(server_id, "this server", name, "", Looks(_looks(name), "")) for name in sorted(own_names)
    ]  # of the same list: two names that look alike
    by_look: dict[str, list[_Other]] = {}
    for other in (*found, *own):
        for text in other.looks.both():
            by_look.setdefault(text, []).append(other)
    by_name = {other.name: other for other in found if other.server_id != server_id}
    flags = []
    for definition, look, names in zip(new, looks, mentioned, strict=True):
        alike = [other for each in sorted(look.both()) for other in by_look.get(each, ())]
        flags.append(
            [
                *_alike(definition, alike, server_id),
                *_mentions(definition, names - own_names, by_name),
            ]
        )
    return flags


def _others(server_id: UUID, looks: set[str], names: set[str]) -> list[_Other]:
    this = MCPServer.objects.as_system().filter(pk=server_id)
    owners = this.exclude(owner=None).values("owner")
    tools = {name.rpartition(SEPARATOR)[2] for name in names} | names
    rows = (
        ToolVersion.objects.filter(server__organization__in=this.values("organization"))
        .filter(Q(server__owner=None) | Q(server__owner__in=owners))  # nobody else's own
        .filter(Q(name_skeleton__in=looks) | Q(title_skeleton__in=looks) | Q(tool__in=tools))
        .exclude(decision=ToolVersion.Decision.REJECTED)
        .values_list("server_id", "server__slug", "server__title", "definition", "name_skeleton", "title_skeleton")
    )
    found: dict[tuple[UUID, str, str], _Other] = {}
    for other_id, slug, server, definition, name_look, title_look in rows[:_MOST_ROWS]:
        other = _Other(other_id, server, definition["name"], title_of(definition), Looks(name_look, title_look))
        found[other_id, other.name, other.title] = other
        if f"{slug}{SEPARATOR}{other.name}" in names:  # as models know it
            exposed = f"{slug}{SEPARATOR}{other.name}"
            found[other_id, exposed, ""] = _Other(other_id, server, exposed, "", Looks("", ""))
    return list(found.values())


def _alike(definition: Definition, others: Sequence[_Other], server_id: UUID) -> Iterable[Flag]:
    """At most one flag: the worst."""
    own_texts = [text for text in (definition.get("name"), title_of(definition)) if text]
    same: Flag | None = None
    for other in others:
        if other.server_id == server_id and other.name == definition.get("name"):
            continue  # an earlier version of itself
        theirs = [text for text in (other.name, other.title) if text]
        pairs = [(mine, their) for mine in own_texts for their in theirs if skeleton(mine) == skeleton(their)]
        if all(same_but_for_writing(mine, their) for mine, their in pairs):
            if other.server_id != server_id:
                same = same or Flag(Kind.SAME_NAME, f"It has the name or title of {other}.", severe=False)
            continue
        message = f"Its name or title can be taken for {other}, and is not the same."
        yield Flag(Kind.LOOKALIKE, message, excerpt_of(" / ".join(own_texts), 0))
        return
    if same is not None:
        yield same


def _names_in(description: object) -> set[str]:
    if not isinstance(description, str):
        return set()
    found = dict.fromkeys(match[0] for match in _NAME_IN_TEXT.finditer(description[:50_000]))
    return set(list(found)[:_MOST_NAMES])


def _mentions(definition: Definition, names: set[str], others: Mapping[str, _Other]) -> Iterable[Flag]:
    for name in sorted(names & others.keys()):
        description = str(definition.get("description"))
        message = f"Its description speaks of {others[name]}: it may be meant to change how that one is used."
        yield Flag(Kind.MENTIONS, message, excerpt_of(description, description.find(name)))
        return


def content_of(definition: Definition) -> tuple[str, str] | None:
    """What stays the same when a tool is renamed; None where that is too little to tell."""
    description, schema = definition.get("description"), definition.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not description and not properties:
        return None
    return str(description), repr(schema)


def renamed(definition: Definition, gone: Mapping[tuple[str, str], tuple[str, bool]]) -> Flag | None:
    """The flag of a definition that is another tool's under a new name.

    `gone`: `content_of` of tools that are no longer listed, or that were rejected, with (name, whether accepted).
    """
    content = content_of(definition)
    found = gone.get(content) if content is not None else None
    if found is None or found[0] == definition.get("name"):
        return None
    name, accepted = found
    if accepted:
        return Flag(Kind.RENAMED, f"It is “{revealed(name)}” under a new name.", severe=False)
    return Flag(Kind.RENAMED, f"It is “{revealed(name)}”, which was not accepted, under a new name.")
