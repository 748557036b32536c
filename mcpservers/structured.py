"""`structuredContent` beside a tool's text: does it say the same again, does it keep the tool's word? Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from chatui.text import shorten
from mcpservers.schemas.values import same

MAX_COMPARED = 2**20  # characters
WRAPPERS = (["result"], ["content"])  # of the official SDK, and of the official servers


def is_repeated(value: Any, texts: Sequence[str]) -> bool:
    """Whether the texts already hold the structured value, as servers repeat it for clients that know only text.

    One text that is the value as JSON; or, for the object in which servers wrap what is none (`{"result": …}`,
    `{"content": …}`), the inner value as JSON or as plain text, in one text or one for each item.
    """
    candidates = [value]
    if isinstance(value, dict) and list(value) in WRAPPERS:
        candidates += value.values()
    if any(_says(text, candidate) for candidate in candidates for text in texts):
        return True
    for candidate in candidates:
        if isinstance(candidate, list) and len(texts) == len(candidate) > 0:
            return all(_says(text, item) for text, item in zip(texts, candidate, strict=True))
    return False


def _says(text: str, value: Any) -> bool:
    if isinstance(value, str) and value.strip() and value.strip() in text:
        return True
    if value is None or isinstance(value, (bool, int, float)):
        return text.strip() in (json.dumps(value), str(value))
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if len(text) > MAX_COMPARED or len(written) > 2 * len(text) + 2:
        return False
    try:
        return same(json.loads(text)) == same(value)
    except (ValueError, RecursionError):
        return "".join(written.split()) in "".join(text.split())


def violation(value: Any, schema: Mapping[str, Any]) -> str:
    """How `value` breaks a tool's `outputSchema`, in words; "" if it does not, or if the schema is no schema.

    Nothing is fetched: a reference that leads out of the schema allows everything. Patterns are not looked at: one
    made for it could take for ever.
    """
    from referencing.exceptions import Unresolvable

    try:
        validator = _validator(json.dumps(schema, sort_keys=True))
        error = None if validator is None else next(validator.iter_errors(value), None)
    except (Unresolvable, RecursionError, ArithmeticError):
        return ""
    return "" if error is None else shorten(f"{error.json_path}: {error.message}", 300)


@lru_cache(maxsize=256)
def _validator(schema: str) -> Any:
    """None if the schema is none. Imported late: jsonschema is slow to import, and few results declare a schema."""
    from jsonschema import Draft202012Validator, validators
    from jsonschema.exceptions import SchemaError
    from referencing.jsonschema import EMPTY_REGISTRY

    parsed = json.loads(schema)
    base: Any = validators.validator_for(parsed, default=Draft202012Validator)
    try:
        base.check_schema(parsed)
    except SchemaError:
        return None
    extend: Any = validators.extend  # untyped
    unchecked = ("pattern", "patternProperties", "unevaluatedProperties", "additionalProperties")
    without = unchecked if "patternProperties" in schema else unchecked[:-1]
    return extend(base, dict.fromkeys(without, _unchecked))(parsed, registry=EMPTY_REGISTRY)


def _unchecked(*_: Any) -> tuple[()]:
    return ()
