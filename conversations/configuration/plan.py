"""What applying a file would change, as values that can be printed: a secret is named, never shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from chatui.text import shorten
from conversations.configuration.problems import Path, dotted

Action = Literal["create", "change", "delete"]
_SIGNS: dict[Action, str] = {"create": "+", "change": "~", "delete": "-"}
_SHOWN = 80  # characters of a value


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field of one object. Of a secret neither value is kept."""

    name: str
    before: Any = None
    after: Any = None
    secret: bool = False

    def describe(self, action: Action) -> str:
        if self.secret:
            return f"{self.name}: «{'set' if action == 'create' else 'changed'}»"
        after = _shown(self.after)
        return f"{self.name}: {after}" if action == "create" else f"{self.name}: {_shown(self.before)} → {after}"


def _shown(value: Any) -> str:
    return shorten(json.dumps(value, ensure_ascii=False, default=str, sort_keys=True), _SHOWN)


@dataclass(frozen=True, slots=True)
class Change:
    action: Action
    path: Path
    fields: tuple[FieldChange, ...] = ()

    def lines(self) -> Iterator[str]:
        yield f"{_SIGNS[self.action]} {dotted(self.path)}"
        for change in self.fields:
            yield f"    {change.describe(self.action)}"


@dataclass(slots=True)
class Plan:
    """The changes in the order in which they are made, and notes for the operator."""

    changes: list[Change] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def count(self, action: Action) -> int:
        return sum(change.action == action for change in self.changes)

    def lines(self) -> Iterator[str]:
        for change in self.changes:
            yield from change.lines()
        for note in self.notes:
            yield f"Note: {note}"

    def __bool__(self) -> bool:
        return bool(self.changes)
