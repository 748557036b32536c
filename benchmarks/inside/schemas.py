"""Repairing tools' schemas for an endpoint: a thousand of the shapes that servers really send."""

from __future__ import annotations

import time
from typing import Any

from mcpservers.schemas import DIALECTS, Quarantined, repair

_SHAPES: list[dict[str, Any]] = [
    {"type": "object", "properties": {"q": {"type": "string", "description": "What to look for"}}, "required": ["q"]},
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "owner": {"type": "string"},
            "repo": {"type": "string"},
            "labels": {"type": "array", "items": {"$ref": "#/$defs/Label"}},
            "state": {"anyOf": [{"enum": ["open", "closed"]}, {"type": "null"}], "default": None},
            "page": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 1},
        },
        "$defs": {"Label": {"type": "object", "properties": {"name": {"type": "string"}, "color": {"type": "string"}}}},
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {
            "filter": {
                "oneOf": [
                    {"type": "object", "properties": {"and": {"type": "array", "items": {"$ref": "#"}}}},
                    {"type": "object", "properties": {"field": {"type": "string"}, "value": True}},
                ]
            },
            "from date": {"type": ["string", "null"], "format": "date"},
            "limit": {"type": "number", "exclusiveMinimum": True, "minimum": 0},
        },
    },
    {"properties": {f"field_{number}": {"type": "string", "title": f"Field {number}"} for number in range(25)}},
]


def measure() -> dict[str, float]:
    """Seconds for a thousand, by dialect; every one of another name, so that nothing is remembered."""
    found = {}
    for dialect in DIALECTS:
        began = time.perf_counter()
        for number in range(1000):
            shape = _SHAPES[number % len(_SHAPES)]
            repaired = repair({**shape, "title": f"{dialect} {number}"}, dialect)
            assert not isinstance(repaired, Quarantined), repaired
        found[dialect] = time.perf_counter() - began
    return found
