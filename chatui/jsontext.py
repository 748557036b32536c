"""JSON text of whatever a model or a server has made up: fast where it can be, and never a reason to fail."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

import orjson

MAX_LEVELS = 200  # of objects and arrays in what a client sends: what a form or a tool takes has fewer

MANY_DIGITS = "a number has too many digits"


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


class RefusedError(ValueError):
    """JSON by grammar, or nearly, but no value that may be passed on: the message says what."""


class TooDeepError(ValueError):
    """What a client sent is nested more than `MAX_LEVELS` deep."""


def received(text: str | bytes) -> Any:
    """The value of the JSON that a client sent, whose strings are to be cleaned.

    Raises `TooDeepError`, `UnicodeDecodeError`, and `ValueError` for what is no JSON: NaN, too, and numbers beyond a
    double, which no JSON can say again.
    """
    try:
        # Not orjson: it refuses lone surrogates, which are cleaned as everywhere.
        value = json.loads(text, parse_constant=no_constant, parse_float=finite)
    except RecursionError:
        raise TooDeepError from None
    except (json.JSONDecodeError, UnicodeDecodeError, RefusedError):
        raise
    except ValueError:  # Python's own bound of digits, in words about Python
        raise RefusedError(MANY_DIGITS) from None
    if deeper_than(value, MAX_LEVELS):
        raise TooDeepError
    return value


def no_constant(name: str) -> NoReturn:
    """For `parse_constant`: NaN and the infinities are Python's. Raises `RefusedError`."""
    raise RefusedError(f"{name} is not a JSON value")


def finite(digits: str) -> float:
    """For `parse_float`: what no JSON can say again is refused. Raises `RefusedError`."""
    number = float(digits)
    if not math.isfinite(number):
        raise RefusedError(f"the number {digits[:40]} is too large")
    return number


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
