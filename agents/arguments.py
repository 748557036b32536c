"""The argument text of a tool call: an object, or the reason why not; no repair changes a meaning. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from agents.parts import JSONObject
from chatui.jsontext import MANY_DIGITS, RefusedError, deeper_than, finite, no_constant
from chatui.text import clean_json, shorten

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

MAX_ARGUMENTS = 4 * 2**20  # characters
MAX_LEVELS = 100  # of nesting: deeper than any schema asks for, and every parser on the way takes as much
_FENCE = re.compile(r"\A```[a-zA-Z0-9]*[ \t]*\r?\n?(.*?)\r?\n?[ \t]*```\Z", re.DOTALL)
_CLOSING_TAGS = re.compile(r"(?:\s*</[a-zA-Z_|:.-]{1,40}>)+\s*\Z")
_ONE_OBJECT = "Send the arguments as one JSON object."


@dataclass(frozen=True, slots=True)
class ParsedArguments:
    """`value` is None exactly when there is an `error`, a sentence for the model that names the place.

    `repaired` tells that the text was not plainly the object, so that what is sent back must be written anew.
    """

    value: JSONObject | None
    error: str = ""
    repaired: bool = False


# --- Text to object -----------------------------------------------------------------------------------------------


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
        reason = str(error) if isinstance(error, RefusedError) else MANY_DIGITS
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


_STRICT = json.JSONDecoder(parse_constant=no_constant, parse_float=finite)
_LENIENT = json.JSONDecoder(parse_constant=no_constant, parse_float=finite, strict=False)


def _parse(text: str) -> ParsedArguments:
    repaired = False
    for _ in range(3):
        value, lenient = _value(text)
        repaired = repaired or lenient
        if isinstance(value, dict):
            if _is_deep(text, value):
                raise RecursionError
            return ParsedArguments(clean_json(value), repaired=repaired)
        if not isinstance(value, str):
            break
        text, repaired = value.strip(), True
        if not text.startswith(("{", '"', "```")):
            break
    return _failed(f"The arguments are {_kind(value)}, not an object. {_ONE_OBJECT}")


def _is_deep(text: str, value: Any) -> bool:
    """Whether `value`, read from `text`, is nested more than `MAX_LEVELS` deep."""
    return text.count("{") + text.count("[") > MAX_LEVELS and deeper_than(value, MAX_LEVELS)


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
        raise RefusedError("there are several different objects in one call; make one call for each")
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


# --- Object against schema ----------------------------------------------------------------------------------------

MAX_VIOLATION = 300  # characters
_MAX_DEPTH = 32


def check_arguments(value: JSONObject, schema: JSONObject) -> str | None:
    """The first violations of `schema` in words that name the parameters, or None.

    Patterns are left to the server: they are of another dialect than Python's, and one made for it could take for
    ever. A schema that is itself invalid, or refers to what it does not hold (nothing is fetched), allows everything.
    """
    validator = _validator(json.dumps(schema, sort_keys=True))
    if validator is None:
        return None
    errors: list[ValidationError] = []
    with suppress(RecursionError, ArithmeticError):
        errors.extend(islice(validator.iter_errors(value), 50))
    errors.sort(key=lambda error: len(error.absolute_path))
    return "; ".join(map(_violation, errors[:3])) or None


def coerce_arguments(value: JSONObject, schema: JSONObject) -> JSONObject:
    """`value` with strings decoded where the schema wants an object or an array (and no string) and they hold one.

    A string parameter whose text looks like JSON stays that text.
    """
    coerced: JSONObject = _coerced(value, schema, schema, 0)
    return coerced


def _violation(error: ValidationError) -> str:
    path = ""
    for step in error.absolute_path:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else str(step)
    message = shorten(error.message, MAX_VIOLATION)
    return f"{path}: {message}" if path else message


@lru_cache(maxsize=256)
def _validator(schema_json: str) -> Validator | None:
    """Imported late: `jsonschema` is slow to import, and most processes check few arguments."""
    from jsonschema import Draft202012Validator, validators
    from jsonschema.exceptions import SchemaError
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import EMPTY_REGISTRY

    schema = json.loads(schema_json)
    base = validators.validator_for(schema, default=Draft202012Validator)
    try:
        base.check_schema(schema)
    except (SchemaError, RecursionError):
        return None
    original = base.VALIDATORS

    def resolvable(validator: Any, reference: Any, instance: Any, within: Any) -> Iterator[ValidationError]:
        with suppress(Unresolvable):
            yield from original["$ref"](validator, reference, instance, within) or ()

    def unpatterned(validator: Any, allowed: Any, instance: Any, within: Any) -> Iterator[ValidationError]:
        if "patternProperties" not in within:
            yield from original["additionalProperties"](validator, allowed, instance, within) or ()

    def unchecked(*_: Any) -> tuple[ValidationError, ...]:
        return ()

    names = ("pattern", "patternProperties", "unevaluatedProperties", "$dynamicRef", "$recursiveRef")
    replaced = {**dict.fromkeys(names, unchecked), "$ref": resolvable, "additionalProperties": unpatterned}
    extend: Any = validators.extend  # untyped
    registry: Registry[Any] = EMPTY_REGISTRY
    made: Validator = extend(base, replaced)(schema, registry=registry)
    return made


def _coerced(value: Any, schema: Any, root: JSONObject, depth: int) -> Any:
    branches = list(branches_of(schema, root))
    if not branches or depth > _MAX_DEPTH:
        return value
    if isinstance(value, str):
        value = _decoded(value, {name for branch in branches for name in types_of(branch)})
    if isinstance(value, dict):
        return {key: _coerced(item, property_of(branches, key), root, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        items = next((branch["items"] for branch in branches if "items" in branch), None)
        return [_coerced(item, items, root, depth + 1) for item in value]
    return value


def _decoded(text: str, types: set[str]) -> Any:
    if "string" in types or not types & {"object", "array"} or text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        value = _LENIENT.decode(text)
    except (ValueError, RecursionError):
        return text
    wanted = "object" if isinstance(value, dict) else "array"
    return clean_json(value) if wanted in types and not _is_deep(text, value) else text


def branches_of(schema: Any, root: JSONObject, depth: int = 0) -> Iterator[JSONObject]:
    """The schema and its alternatives, local references (into `root`) followed; none for what is no schema object."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        yield from branches_of(_pointed(root, reference[1:]), root, depth + 1)
    yield schema
    for keyword in ("anyOf", "oneOf", "allOf"):
        for branch in schema[keyword] if isinstance(schema.get(keyword), list) else ():
            yield from branches_of(branch, root, depth + 1)


def _pointed(root: JSONObject, pointer: str) -> Any:
    """What a JSON pointer (RFC 6901) finds, or None."""
    found: Any = root
    for step in pointer.split("/")[1:]:
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found


def types_of(schema: JSONObject) -> list[str]:
    """The names of the types that a schema without its alternatives allows; empty for any."""
    types = schema.get("type")
    if isinstance(types, list):
        return [name for name in types if isinstance(name, str)]
    if isinstance(types, str):
        return [types]
    return ["string"] if any(isinstance(value, str) for value in schema.get("enum", ())) else []


def property_of(branches: list[JSONObject], key: str) -> Any:
    """The schema of an object's property, where the branches have one."""
    for branch in branches:
        properties = branch.get("properties")
        if isinstance(properties, dict) and key in properties:
            return properties[key]
    return next((branch["additionalProperties"] for branch in branches if "additionalProperties" in branch), None)
