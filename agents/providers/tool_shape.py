"""Tool definitions as an endpoint takes them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agents.parts import ToolSpec
from chatui.text import clean, clean_json

MAX_DESCRIPTION = 1024  # characters; OpenAI refuses more
_OPENAI = frozenset({"openai", "openai-strict"})


def tool_definitions(dialect: str, tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """The `tools` of a request, in the order given."""
    return [{"type": "function", "function": _function(dialect, tool)} for tool in tools]


def _function(dialect: str, tool: ToolSpec) -> dict[str, Any]:
    parameters = clean_json(tool.parameters) or {"type": "object", "properties": {}}
    function: dict[str, Any] = {"name": tool.name, "parameters": parameters}
    description = clean(tool.description)
    if description:
        limit = MAX_DESCRIPTION if dialect in _OPENAI else len(description)
        function["description"] = description if len(description) <= limit else description[: limit - 1] + "…"
    if dialect == "openai-strict" and is_strict(parameters):
        function["strict"] = True
    return function


def is_strict(schema: Any) -> bool:
    """Whether OpenAI's strict mode takes the schema: every object closed, and all its properties required."""
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        properties = schema.get("properties", {})
        if schema.get("additionalProperties") is not False or set(schema.get("required", ())) != set(properties):
            return False
        return all(map(is_strict, properties.values()))
    return all(is_strict(schema[key]) for key in ("items", "anyOf", "$defs") if key in schema)
