"""A model's argument text and a tool's schemas → the arguments that the tool gets, or what is wrong with them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from agents.arguments import check_arguments, coerce_arguments, parse_arguments
from agents.parts import JSONObject
from mcpservers.schemas import restore_arguments


def understand(
    text: str, schema: JSONObject, renames: Mapping[str, str], absent: frozenset[tuple[str, ...]]
) -> tuple[JSONObject | None, str]:
    """The arguments with the tool's own names, and "" or what is wrong, in words for the model.

    `schema` is the tool's own; `renames` and `absent` are of its `RepairedSchema`, which the model was shown.
    """
    parsed = parse_arguments(text)
    if parsed.value is None:
        return None, parsed.error
    arguments = coerce_arguments(restore_arguments(parsed.value, renames, absent), schema)
    return arguments, check_arguments(arguments, schema) or ""
