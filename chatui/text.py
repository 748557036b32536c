"""Text as every door lets it in: storable on SQLite and PostgreSQL, encodable as UTF-8, cut between graphemes."""

import math
import re
from typing import Any

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# A base character with what combines with it: marks, variation selectors, joiners, skin tones, flags.
_GRAPHEME = re.compile(
    "(?:[\U0001f1e6-\U0001f1ff]{2}|.[\u0300-\u036f\u0483-\u0489\u064b-\u065f\u0900-\u0903\u093a-\u094f"
    "\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f\U0001f3fb-\U0001f3ff\U000e0100-\U000e01ef]*"
    "(?:\u200d.[\ufe00-\ufe0f\U0001f3fb-\U0001f3ff]*)*)",
    re.DOTALL,
)


def clean(text: str) -> str:
    """`text` with surrogate pairs joined, and NUL and lone surrogates replaced by U+FFFD."""
    if not _UNSTORABLE.search(text):
        return text
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _UNSTORABLE.sub(REPLACEMENT, joined)


def clean_json(value: Any) -> Any:
    """`value` (anything `json.loads` returns) with every string in it cleaned, keys too; shape unchanged."""
    match value:
        case str():
            return clean(value)
        case dict():
            return {clean(str(key)): clean_json(item) for key, item in value.items()}
        case list() | tuple():
            return [clean_json(item) for item in value]
        case _:
            return value


def shorten(text: str, limit: int) -> str:
    """`text` on one line, at most `limit` characters including the ellipsis, cut between graphemes."""
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    kept, length = [], 0
    for grapheme in _GRAPHEME.findall(line):
        if length + len(grapheme) > limit - 1:
            break
        kept.append(grapheme)
        length += len(grapheme)
    return "".join(kept).rstrip() + "…"


def duration(seconds: float) -> str:
    """How long that is, for a person, in the largest unit of which it is at least two: `90 s`, `2 min`, `3 days`."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{math.ceil(seconds / size)} {unit}"
    return f"{math.ceil(seconds)} s"
