"""JSON text of whatever a model or a server has made up: fast where it can be, and never a reason to fail."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

import orjson

MAX_LEVELS = 200  # of objects and arrays in what a client sends: what a form or a tool takes has fewer


def encoded(value: Any) -> bytes:
    """`value` as JSON, in UTF-8, UUIDs and times as text.

    orjson takes neither integers beyond 64 bits nor more than 254 levels: those are JSON all the same, and written by
    the standard library, which takes five times as long. Raises `ValueError` for a value that is no JSON at all.
    """
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str)
        return text.encode("utf-8", "replace")


class TooDeepError(ValueError):
    """What a client sent is nested more than `MAX_LEVELS` deep."""


def received(text: str | bytes) -> Any:
    """The value of the JSON that a client sent, whose strings are to be cleaned.

    Raises `TooDeepError`, `UnicodeDecodeError`, and `ValueError` for what is no JSON: NaN, too, and numbers beyond a
    double, which no JSON can say again.
    """
    try:
        # Not orjson: it refuses lone surrogates, which are cleaned as everywhere.
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError:
        raise TooDeepError from None
    if deeper_than(value, MAX_LEVELS):
        raise TooDeepError
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number[:40]} is too large a number")
    return value


def deeper_than(value: Any, levels: int) -> bool:
    """Whether objects and arrays are nested more than `levels` deep; without recursion."""
    layer = [value]
    for _ in range(levels):
        layer = [
            item
            for each in layer
            if isinstance(each, dict | list)
            for item in (each.values() if isinstance(each, dict) else each)
        ]
        if not layer:
            return False
    return any(isinstance(each, dict | list) for each in layer)
