"""Texts that are cut for a model, and the note at their end by which it reads on. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

READ_RESULT = "read_result"  # the tool that reads on
_NAME = r"result-[0-9a-f]{10}\.txt"
_NOTE = re.compile(rf"\n\[[^\[\]]*\b{READ_RESULT} with result “({_NAME})” and offset (\d+) reads on[^\[\]]*\]\Z")
_LONGEST_NOTE = 400


@dataclass(frozen=True, slots=True)
class Cut:
    """Of a text that was cut: the name of the whole, and by how much places in the text are ahead of the whole's."""

    name: str
    ahead: int = 0


def whole_name(text: str) -> str:
    """The name of a whole text: made of its content, so that it means the same in every turn and process."""
    return f"result-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:10]}.txt"


def find_name(text: str) -> str:
    """The name of a whole text within `text`, as a model may write it; "" if there is none."""
    found = re.search(_NAME.removesuffix(r"\.txt"), text)
    return f"{found[0]}.txt" if found else ""


def read_cut(text: str) -> Cut | None:
    """How `text` was cut, from the note with which it ends; None if it is whole, or cannot be read on."""
    start = max(0, len(text) - _LONGEST_NOTE)
    found = _NOTE.search(text[start:])
    return Cut(found[1], start + found.start() - int(found[2])) if found else None


def cut(text: str, limit: int, before: str, whole: Cut | None, after: str = "") -> str:
    """The beginning of `text` and a note, together `limit` characters: `before`, how to read on in `whole`, `after`.

    Where `whole` is None nothing is said of reading on.
    """
    kept = max(0, limit - len(_note(before, whole, limit, after)))
    return (text[:kept] + _note(before, whole, kept, after))[:limit]


def _note(before: str, whole: Cut | None, kept: int, after: str) -> str:
    reading = ""
    if whole is not None:
        offset = max(0, kept - whole.ahead)
        reading = f"{READ_RESULT} with result “{whole.name}” and offset {offset} reads on."
    return f"\n[{' '.join(sentence for sentence in (before, reading, after) if sentence)}]"
