"""Whether one value fits one field of a server's form, in words for who entered it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import date, datetime
from typing import Any

from chatui.text import clean
from mcpservers.patterns import keeps_to

JSONObject = dict[str, Any]

LARGEST = 1e300  # of numbers: above it a float soon has no finite value
MAX_TEXT = 32 * 1024  # characters
_EMAIL = re.compile(r"[^\s@<>()]{1,64}@[^\s@<>()]{1,255}")  # RFC 5321 allows more than most who check for it
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s<>\"{}|\\^`]+")  # RFC 3986, 3
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)  # RFC 3339, 5.6


def problem_with(field: Mapping[str, Any], value: object) -> str:
    """What is wrong with `value` for `field` (see `elicitation.Elicitation.schema`), or ""."""
    match field["type"]:
        case "boolean":
            return "" if isinstance(value, bool) else "Choose yes or no."
        case "number" | "integer":
            return _number(field, value)
        case "array":
            return _several(field, value)
        case _ if "oneOf" in field:
            return "" if value in _values(field["oneOf"]) else "Choose one of the options."
        case _:
            return _text(field, value)


def _values(options: list[JSONObject]) -> list[str]:
    return [option["const"] for option in options]


def _number(field: Mapping[str, Any], value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST:
        return "Enter a number."
    if field["type"] == "integer" and value != int(value):
        return "Enter a whole number."
    least, most = field.get("minimum"), field.get("maximum")
    if (least is None or value >= least) and (most is None or value <= most):
        return ""
    if most is None:
        return f"Enter {_figure(least)} or more."
    if least is None:
        return f"Enter {_figure(most)} or less."
    return f"Enter a number from {_figure(least)} to {_figure(most)}."


def _figure(number: Any) -> str:
    return str(int(number)) if number == int(number) and abs(number) < 1e15 else f"{number:.15g}"


def _several(field: Mapping[str, Any], value: object) -> str:
    if not isinstance(value, list):
        return "Choose among the options."
    options = _values(field["items"]["anyOf"])
    if any(item not in options for item in value) or len(set(value)) < len(value):
        return "Choose among the options, each once."
    if len(value) < field.get("minItems", 0):
        return f"Choose at least {field['minItems']}."
    if len(value) > field.get("maxItems", len(options)):
        return f"Choose at most {field['maxItems']}."
    return ""


def _text(field: Mapping[str, Any], value: object) -> str:
    if not isinstance(value, str) or clean(value) != value:
        return "Enter a text."
    if len(value) < field.get("minLength", 0):
        return f"Enter at least {_characters(field['minLength'])}."
    most = min(field.get("maxLength", MAX_TEXT), MAX_TEXT)
    if len(value) > most:
        return f"Enter at most {_characters(most)}."
    if "pattern" in field and keeps_to(field["pattern"], value) is False:
        return f"This has not the form that is asked for ({field['pattern'][:80]})."
    return _format(field.get("format", ""), value)


def _characters(count: int) -> str:
    return "1 character" if count == 1 else f"{count} characters"


def _format(kind: str, value: str) -> str:
    match kind:
        case "email":
            return "" if _EMAIL.fullmatch(value) else "Enter an email address, such as name@example.org."
        case "uri":
            return "" if _URI.fullmatch(value) else "Enter a whole address, such as https://example.org/."
        case "date":
            with suppress(ValueError):
                if _DATE.fullmatch(value) and date.fromisoformat(value):
                    return ""
            return "Enter a date, such as 2026-07-28."
        case "date-time":
            with suppress(ValueError):
                if _TIME.fullmatch(value) and datetime.fromisoformat(value.upper()):
                    return ""
            return "Enter a date and time with its zone, such as 2026-07-28T12:00:00Z."
    return ""
