"""Schema repair: a server's input schema → parameters that an endpoint accepts, or a visible quarantine. Pure."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from mcpservers.schemas.dialects import DIALECTS
from mcpservers.schemas.reading import Reader, TooLargeSchemaError, as_object
from mcpservers.schemas.restoring import restore_arguments
from mcpservers.schemas.values import JSONObject, Quarantined, RepairedSchema
from mcpservers.schemas.writing import Writer

MAX_CHARACTERS = 100_000
MAX_PARTS = 5_000
MAX_PASSES = 4
DEPTHS = (24, 12, 8, 5, 3)  # the first at which the repaired schema is small enough is taken

__all__ = ["DIALECTS", "Quarantined", "RepairedSchema", "repair", "restore_arguments"]


def repair(schema: Any, dialect: str = "openai") -> RepairedSchema | Quarantined:
    """Parameters for a tool whose server declares `schema`, as endpoints of `dialect` (a key of `DIALECTS`) accept it.

    Pure and idempotent (repairing the parameters again gives the same parameters); `schema` may be any JSON value and
    is not changed. No reference is fetched. Arguments are to be checked against `schema` itself, after
    `restore_arguments`.
    """
    if schema is None:
        schema = {}
    if not isinstance(schema, dict):
        return Quarantined("Its input schema is not a JSON object.")
    for depth in DEPTHS:
        try:
            repaired = _repair(schema, dialect, depth)
        except TooLargeSchemaError:
            continue
        if isinstance(repaired, Quarantined) or len(json.dumps(repaired.parameters)) <= MAX_CHARACTERS:
            return repaired
    return Quarantined(f"Its input schema is too large: more than {MAX_CHARACTERS:,} characters even when cut.")


def _repair(schema: JSONObject, dialect: str, depth: int) -> RepairedSchema | Quarantined:
    repaired = _repair_once(schema, dialect, depth)
    for _ in range(MAX_PASSES - 1):
        if isinstance(repaired, Quarantined):
            break
        # What a dialect takes away can make two alternatives alike, which the next pass makes one.
        again = _repair_once(repaired.parameters, dialect, depth)
        if isinstance(again, Quarantined) or again.parameters == repaired.parameters:
            break
        repaired = replace(repaired, parameters=again.parameters)
    return repaired


def _repair_once(schema: JSONObject, dialect: str, depth: int) -> RepairedSchema | Quarantined:
    reader = Reader(schema, max_depth=depth, max_parts=MAX_PARTS)
    node = reader.read(schema)
    if node is None:
        return Quarantined("Its input schema allows no arguments at all, not even none.")
    root = as_object(node)
    if root is None:
        kinds = sorted({branch["type"] for branch in node.get("anyOf", [node])})
        return Quarantined(f"Its input schema describes a value of type {', '.join(kinds)}; it must be an object.")
    writer = Writer(DIALECTS[dialect])
    parameters = writer.write_root(root)
    return RepairedSchema(parameters, writer.renames, reader.notes, frozenset(writer.absent))
