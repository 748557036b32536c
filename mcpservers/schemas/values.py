"""What schema repair takes and gives, and the JSON that it works on."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

JSONObject = dict[str, Any]
TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")


@dataclass(frozen=True, slots=True)
class RepairedSchema:
    """A schema that an endpoint accepts. `notes` say what was changed or lost, for people.

    `renames` maps each property name that was made legal to the server's own; `absent` holds the paths (of the
    server's names, `*` for “each item”) at which a null means that the argument is left out.
    """

    parameters: JSONObject
    renames: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    absent: frozenset[tuple[str, ...]] = frozenset()


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A schema that cannot be repaired, and why, in words for an admin. Only this tool is withheld."""

    reason: str


def same(value: Any) -> str:
    """A key by which two JSON values are equal as JSON: unlike Python's `==` it tells `1` from `true` and `1.0`."""
    return _encoded(value)


_encoded = json.JSONEncoder(sort_keys=True).encode  # made once: `json.dumps` makes one for each value


def distinct(values: Iterable[Any]) -> list[Any]:
    """`values` without repetitions, in order."""
    known = list(values)
    return known if len(known) < 2 else list({same(value): value for value in known}.values())


def fits(value: Any, kind: str) -> bool:
    """Whether the JSON value is of the JSON Schema type `kind`."""
    match value:
        case None:
            return kind == "null"
        case bool():
            return kind == "boolean"
        case int():
            return kind in ("integer", "number")
        case float():
            return math.isfinite(value) and (kind == "number" or (kind == "integer" and value.is_integer()))
        case str():
            return kind == "string"
        case list():
            return kind == "array"
        case dict():
            return kind == "object"
        case _:
            return False


def type_of(value: Any) -> str:
    """The narrowest JSON Schema type of a JSON value; "" for a number that JSON does not have."""
    order = ("null", "boolean", "integer", "number", "string", "array", "object")
    return next((kind for kind in order if fits(value, kind)), "")
