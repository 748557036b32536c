"""Repairing tools' schemas for an endpoint: a thousand of those that real servers list."""

from __future__ import annotations

import json
import time
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from mcpservers.schemas import DIALECTS, Quarantined, repair

# Package and version → tool → its schema, as listed, without the descriptions of its parts.
LISTED = Path(__file__).with_name("real_schemas.json")


def measure() -> dict[str, float]:
    """Seconds for a thousand, by dialect; every one of another name, so that nothing is remembered."""
    servers: dict[str, dict[str, Any]] = json.loads(LISTED.read_text("utf-8"))
    schemas = [schema for tools in servers.values() for schema in tools.values()]
    found = {}
    for dialect in DIALECTS:
        named = [
            {**schema, "title": f"{dialect} {number}"} for number, schema in enumerate(islice(cycle(schemas), 1000))
        ]
        began = time.perf_counter()
        repaired = [repair(schema, dialect) for schema in named]
        found[dialect] = time.perf_counter() - began
        assert not any(isinstance(each, Quarantined) for each in repaired)
    return found
