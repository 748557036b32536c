"""The argument text of a tool call: an object, or the reason why not; no repair changes a meaning. Pure."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, NoReturn

from agents.parts import JSONObject
from chatui.text import clean_json

MAX_ARGUMENTS = 4 * 2**20  # characters
_FENCE = re.compile(r"\A```[a-zA-Z0-9]*[ \t]*\r?\n?(.*?)\r?\n?[ \t]*```\Z", re.DOTALL)
_CLOSING_TAGS = re.compile(r"\A(?:\s*</[a-zA-Z_|:.-]{1,40}>)+\s*\Z")
_ONE_OBJECT = "Send the arguments as one JSON object."


@dataclass(frozen=True, slots=True)
class ParsedArguments:
    """`value` is None exactly when there is an `error`, a sentence for the model that names the place.

    `repaired` tells that the text was not plainly the object, so that what is sent back must be written anew.
    """

    value: JSONObject | None
    error: str = ""
    repaired: bool = False


class _Refused(ValueError):
    """JSON by grammar, but not a value that may be passed on."""


def parse_arguments(text: str) -> ParsedArguments:
    """Blank is `{}`, a JSON object is itself, anything else is an error.

    Repaired is only what cannot change the meaning: an object encoded twice, in one code fence, followed by stray
    closing tags, repeated identically, or with raw control characters in its strings. Lone surrogates and NUL become
    U+FFFD, so the value is encodable and storable everywhere.
    """
    if len(text) > MAX_ARGUMENTS:
        return _failed(f"The arguments are too large: more than {MAX_ARGUMENTS // 2**20} MiB. Send less.")
    stripped = text.strip().removeprefix("\ufeff")
    if not stripped:
        return ParsedArguments({})
    try:
        return _parse(stripped)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno} (character {error.pos})"
        return _failed(f"The arguments are not valid JSON: {error.msg} at {where}. {_ONE_OBJECT}")
    except RecursionError:
        return _failed("The arguments are nested too deeply.")
    except ValueError as error:  # a refused constant, or a number with too many digits
        reason = str(error) if isinstance(error, _Refused) else "a number has too many digits"
        return _failed(f"The arguments are not valid JSON: {reason}. {_ONE_OBJECT}")


def is_object(text: str) -> bool:
    """Whether `text` is a whole JSON object (without any repair)."""
    try:
        return isinstance(json.loads(text, strict=False), dict)
    except (ValueError, RecursionError):
        return False


def collapse_repeated(text: str) -> str:
    """`text`, or its first object when it is the same object several times over."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        first, end = _scan(text, _skip_space(text, 0))
        if not text[end:].strip():
            return text
        return text[:end].strip() if _same(first, _rest(text, end)) else text
    except (ValueError, RecursionError):
        return text


def _failed(error: str) -> ParsedArguments:
    return ParsedArguments(None, error)


def _constant(name: str) -> NoReturn:
    raise _Refused(f"{name} is not a JSON value")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise _Refused(f"the number {digits[:40]} is too large")
    return number


_STRICT = json.JSONDecoder(parse_constant=_constant, parse_float=_finite)
_LENIENT = json.JSONDecoder(parse_constant=_constant, parse_float=_finite, strict=False)


def _parse(text: str) -> ParsedArguments:
    repaired = False
    for _ in range(3):
        value, lenient = _value(text)
        repaired = repaired or lenient
        if isinstance(value, dict):
            return ParsedArguments(clean_json(value), repaired=repaired)
        if not isinstance(value, str):
            break
        text, repaired = value.strip(), True
        if not text.startswith(("{", '"', "```")):
            break
    return _failed(f"The arguments are {_kind(value)}, not an object. {_ONE_OBJECT}")


def _value(text: str) -> tuple[Any, bool]:
    """The one value of `text`, and whether it took a repair to see it. Raises `json.JSONDecodeError`."""
    fence = _FENCE.match(text)
    if fence is not None:
        text = fence[1].strip()
    try:
        return _STRICT.decode(text), fence is not None
    except json.JSONDecodeError:
        value, end = _scan(text, 0)
    if end == len(text) or _CLOSING_TAGS.match(text, end):
        return value, True
    if text[end:].lstrip().startswith("{"):
        if _same(value, _rest(text, end)):
            return value, True
        raise _Refused("there are several different objects in one call; make one call for each")
    raise json.JSONDecodeError("Extra data", text, end)


def _scan(text: str, start: int) -> tuple[Any, int]:
    value, end = _LENIENT.raw_decode(text, start)
    return value, end


def _rest(text: str, end: int) -> list[Any]:
    values = []
    while (end := _skip_space(text, end)) < len(text):
        if _CLOSING_TAGS.match(text, end):
            break
        value, end = _scan(text, end)
        values.append(value)
    return values


def _skip_space(text: str, start: int) -> int:
    while start < len(text) and text[start].isspace():
        start += 1
    return start


def _same(first: Any, others: list[Any]) -> bool:
    """Compared as JSON: Python holds 1, 1.0 and true for equal."""
    written = json.dumps(first, sort_keys=True)
    return all(json.dumps(other, sort_keys=True) == written for other in others)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names: dict[type, str] = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "an array"}
    return names[type(value)]
