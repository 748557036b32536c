"""Whether a text keeps to a regular expression that a stranger wrote, without ever taking long to say so. Pure."""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from math import prod
from typing import Any

MAX_PATTERN = 500  # characters
MAX_STEPS = 2_000_000  # of the matcher, estimated: what it may take is multiplied


def keeps_to(pattern: str, text: str) -> bool | None:
    """Whether `pattern` is found in `text` (unanchored, as in JSON Schema); None where that is not for us to say.

    That is: a pattern of another dialect than Python's, and one that could take for ever (repeats or alternatives
    within a repeat, references back, or simply too much text for what it repeats).
    """
    known = _compiled(pattern)
    if known is None:
        return None
    compiled, choices = known
    length = len(text) + 1
    if length * prod(min(choice, length) for choice in choices) > MAX_STEPS:
        return None
    return compiled.search(text) is not None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> tuple[re.Pattern[str], tuple[int, ...]] | None:
    """The pattern, and in how many ways each of its parts can match; None for one that is not run."""
    if len(pattern) > MAX_PATTERN:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what will mean something else one day means it in JavaScript now
        try:
            parsed = re._parser.parse(pattern, re.ASCII)  # type: ignore[attr-defined]  # the parser has no public name
            return re.compile(pattern, re.ASCII), tuple(_choices(parsed))
        except (re.error, RecursionError, OverflowError, Warning, _Explosive):
            return None


class _Explosive(ValueError):
    """Matching it may take exponential time, or is not understood."""


def _choices(parsed: Any) -> list[int]:
    """The number of ways of each repeat and alternative, one after the other. Raises `_Explosive`."""
    found: list[int] = []
    for operation, argument in parsed:
        match str(operation):
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, most, inner = argument
                within = _choices(inner)
                if within and int(most) > 1:
                    raise _Explosive
                found += [*within, int(most) - int(least) + 1]
            case "SUBPATTERN":
                found += _choices(argument[-1])
            case "BRANCH":
                for alternative in argument[1]:
                    found += _choices(alternative)
                found.append(len(argument[1]))
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN" | "AT":
                pass
            case _:  # references, assertions, conditions
                raise _Explosive
    return [choice for choice in found if choice > 1]
