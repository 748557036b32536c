"""Two versions of a tool, field by field, as a person compares them: nothing in them stays invisible. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

from mcpservers.visible import revealed

Op = Literal["same", "added", "removed", "gap"]
TEXT_FIELDS = ("name", "title", "description")
FIELDS = (*TEXT_FIELDS, "inputSchema", "outputSchema", "annotations")
CONTEXT = 3  # lines around a changed one
LONGEST_TEXT = 20_000  # characters of a text that is compared word by word, and shown
MOST_LINES = 2_000  # of a schema that are compared, and shown


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of text (of words, or a line of JSON). A gap stands for lines that are the same."""

    op: Op
    text: str


@dataclass(frozen=True, slots=True)
class FieldDiff:
    """One field. `lines`: the pieces are whole lines."""

    field: str
    lines: bool
    pieces: tuple[Piece, ...]
    changed: bool
    cut: bool = False  # there is more of it than is shown


def differences(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> list[FieldDiff]:
    """The fields that differ between two definitions (see `pins.pinned_part`); of a new one (`old` None) all."""
    return [
        _texts(field, old, new) if _is_text(field, old, new) else _lines(field, old, new)
        for field in FIELDS
        if (field in new or (old is not None and field in old)) and (old is None or not _same(field, old, new))
    ]


def _same(field: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return field in old and field in new and _pretty(old[field]) == _pretty(new[field])


def _is_text(field: str, old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> bool:
    return field in TEXT_FIELDS and all(
        isinstance(version.get(field, ""), str) for version in (old, new) if version is not None
    )


def _texts(field: str, old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> FieldDiff:
    before, after = ("" if version is None else revealed(version.get(field, "")) for version in (old, new))
    cut = max(len(before), len(after)) > LONGEST_TEXT
    before, after = before[:LONGEST_TEXT], after[:LONGEST_TEXT]
    if old is None:
        return FieldDiff(field, False, (Piece("same", after),), False, cut)
    return FieldDiff(field, False, tuple(_compared(_words(before), _words(after), "")), True, cut)


def _lines(field: str, old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> FieldDiff:
    before, after = (
        [] if version is None or field not in version else _pretty(version[field]) for version in (old, new)
    )
    cut = max(len(before), len(after)) > MOST_LINES
    before, after = before[:MOST_LINES], after[:MOST_LINES]
    if old is None:
        return FieldDiff(field, True, tuple(Piece("same", line) for line in after), False, cut)
    return FieldDiff(field, True, tuple(_without_sameness(list(_compared(before, after, "\n")))), True, cut)


def _pretty(value: Any) -> list[str]:
    """JSON on lines, keys in one order: their order says nothing."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    return [revealed(line) for line in text.splitlines()]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+|\s+|[^\w\s]", text)


def _compared(before: Sequence[str], after: Sequence[str], joint: str) -> Iterator[Piece]:
    """Runs of what is in both, only in the first, only in the second; each line of its own where `joint` is one."""
    matcher = SequenceMatcher(None, before, after, autojunk=max(len(before), len(after)) > 3_000)
    for op, a1, a2, b1, b2 in matcher.get_opcodes():
        if op == "equal":
            yield from _pieces("same", before[a1:a2], joint)
        else:
            yield from _pieces("removed", before[a1:a2], joint)
            yield from _pieces("added", after[b1:b2], joint)


def _pieces(op: Op, parts: Sequence[str], joint: str) -> Iterator[Piece]:
    if joint:
        yield from (Piece(op, part) for part in parts)
    elif parts:
        yield Piece(op, "".join(parts))


def _without_sameness(pieces: list[Piece]) -> Iterator[Piece]:
    """Only the surroundings of what changed; a gap says how many lines are left out."""
    near = [False] * len(pieces)
    for at, piece in enumerate(pieces):
        if piece.op != "same":
            for place in range(max(0, at - CONTEXT), min(len(pieces), at + CONTEXT + 1)):
                near[place] = True
    left_out = 0
    for piece, shown in zip(pieces, near, strict=True):
        if shown and left_out:
            yield Piece("gap", str(left_out))
            left_out = 0
        if shown:
            yield piece
        else:
            left_out += 1
    if left_out:
        yield Piece("gap", str(left_out))
