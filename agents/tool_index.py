"""Full-text search over tools, for words of any script; the same words always find the same tools (pure)."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

_CHARACTERS = 1_000  # of a description
_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])")
# Scripts that are written without spaces: Thai to Khmer, Japanese, Chinese, and Korean, whose words have endings.
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+)"
)
_ENDING = re.compile(r"(?<=\w{4})(?:ing|ed)\Z")
_FUNCTION_WORDS = frozenset(
    {"a", "an", "and", "any", "are", "as", "at", "be", "by", "can", "do", "does", "for", "from", "give", "how", "i"}
    | {"in", "into", "is", "it", "me", "my", "of", "on", "or", "please", "some", "that", "the", "this", "to", "tool"}
    | {"use", "using", "want", "what", "which", "with", "you"}
)
_PREFIX, _SHORTEST_PREFIX = 0.5, 3  # what a match of a word's beginning counts, and how long it must be
_WEAK = 0.2  # what scores less than this part of the best is not what was looked for


@dataclass(frozen=True, slots=True)
class Described:
    """A tool as it is found: by its names, and less by its server and by what it says of itself."""

    name: str  # as the model calls it
    tool: str
    title: str = ""
    description: str = ""
    server: str = ""


def terms(text: str) -> list[str]:
    """The words of `text` as they are compared: without case, accents and endings, compound names also in parts;
    characters of scripts without spaces in pairs, or one that stands alone.
    """
    found: list[str] = []
    for word in _WORD.findall(unicodedata.normalize("NFKC", text)):
        for run in _UNSPACED.split(word):
            if _UNSPACED.fullmatch(run):
                found += [run] if len(run) == 1 else [run[at : at + 2] for at in range(len(run) - 1)]
            else:
                parts = [part for part in _HUMP.split(run) if part]
                found += map(_plain, parts if len(parts) < 2 else [*parts, run])
    return found


@lru_cache(maxsize=20_000)
def _plain(word: str) -> str:
    word = word.casefold()
    if not word.isascii():
        word = "".join(char for char in unicodedata.normalize("NFKD", word) if not unicodedata.combining(char))
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
        return word[:-1]
    return _ENDING.sub("", word)


class ToolIndex:
    """Finds tools by words. Building one takes some milliseconds for a hundred tools."""

    def __init__(self, tools: Sequence[Described]) -> None:
        self._tools = tools
        self._places: dict[str, dict[int, float]] = {}  # term → tool → weight
        for place, tool in enumerate(tools):
            for term, weight in _weighted(tool):
                places = self._places.setdefault(term, {})
                places[place] = max(weight, places.get(place, 0.0))

    def search(self, query: str, limit: int) -> list[str]:
        """The names of the tools that fit best, the best first; of equals the one listed first."""
        wanted = list(dict.fromkeys(terms(query)))
        wanted = [term for term in wanted if term not in _FUNCTION_WORDS] or wanted
        scores: dict[int, float] = {}
        hits: dict[int, int] = {}
        for term in wanted:
            matches = self._matches(term)
            rarity = math.log(1 + len(self._tools) / (1 + len(matches)))
            for place, weight in matches.items():
                scores[place] = scores.get(place, 0.0) + rarity * weight
                hits[place] = hits.get(place, 0) + 1
        for place, count in hits.items():
            scores[place] *= count / len(wanted)
        for place, tool in enumerate(self._tools):
            if query.strip() in (tool.name, tool.tool):
                scores[place] = math.inf
        ranked = sorted(scores, key=lambda place: (-scores[place], place))
        least = _WEAK * max((score for score in scores.values() if score < math.inf), default=0.0)
        return [self._tools[place].name for place in ranked if scores[place] >= least][:limit]

    def _matches(self, wanted: str) -> dict[int, float]:
        """Tools with the term, or with one that begins with it or is its beginning; and how much that counts."""
        found = dict(self._places.get(wanted, {}))
        for term in self._alike(wanted):
            for place, weight in self._places[term].items():
                found[place] = max(weight * _PREFIX, found.get(place, 0.0))
        return found

    def _alike(self, wanted: str) -> Iterable[str]:
        if _UNSPACED.fullmatch(wanted):
            return [term for term in self._places if term != wanted and wanted in term] if len(wanted) == 1 else []
        if len(wanted) < _SHORTEST_PREFIX:
            return []
        return [
            term
            for term in self._places
            if term != wanted
            and (term.startswith(wanted) or (len(term) >= _SHORTEST_PREFIX and wanted.startswith(term)))
        ]


def _weighted(tool: Described) -> Iterator[tuple[str, float]]:
    for text, weight in (
        (tool.tool, 4.0),
        (tool.title, 3.0),
        (tool.server, 1.5),
        (tool.description[:_CHARACTERS], 1.0),
    ):
        for term in terms(text):
            yield term, weight
