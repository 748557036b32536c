"""Endpoints' validators, written from their documentation: each refuses what the endpoint would answer with a 400."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

TYPES = {"object", "array", "string", "integer", "number", "boolean", "null"}
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ROOT_COMBINATORS = ("anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref")
Check = Callable[[dict[str, Any], str], None]


def assert_accepted(parameters: dict[str, Any], dialect: str) -> None:
    """Fail with the path of the first thing that an endpoint of `dialect` would refuse."""
    assert parameters.get("type") == "object", "the root is an object"
    assert isinstance(parameters.get("properties"), dict), "the root has properties"
    assert not any(key in parameters for key in ROOT_COMBINATORS), "no combinator at the root"
    text = json.dumps(parameters, allow_nan=False)  # neither cycles nor NaN
    assert len(text) <= 100_000
    walk(parameters, "", DIALECTS[dialect])


def walk(schema: Any, path: str, check: Check) -> None:
    assert isinstance(schema, dict), f"{path}: a schema is an object, not {schema!r}"
    every_endpoint(schema, path)
    check(schema, path)
    for name, value in schema.get("properties", {}).items():
        walk(value, f"{path}.{name}", check)
    if "items" in schema:
        walk(schema["items"], f"{path}[]", check)
    if isinstance(schema.get("additionalProperties"), dict):
        walk(schema["additionalProperties"], f"{path}{{}}", check)
    for at, value in enumerate(schema.get("anyOf", [])):
        walk(value, f"{path}|{at}", check)


def every_endpoint(schema: dict[str, Any], path: str) -> None:
    known = {
        "type", "properties", "required", "items", "enum", "anyOf", "description", "default", "format", "pattern",
        "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength",
        "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "additionalProperties", "nullable",
    }  # fmt: skip
    assert schema.keys() <= known, f"{path}: {schema.keys() - known}"
    kinds = types_of(schema)
    assert set(kinds) <= TYPES, path
    if "object" in kinds:
        assert isinstance(schema.get("properties"), dict), f"{path}: an object has properties"
    else:
        assert not schema.keys() & {"properties", "required", "additionalProperties"}, (
            f"{path}: {kinds} with properties"
        )
    assert ("items" in schema) == ("array" in kinds), f"{path}: arrays have items, others do not"
    required = schema.get("required", [])
    assert len(set(required)) == len(required), path
    assert set(required) <= set(schema.get("properties", {})), f"{path}: required names exist"
    for name in schema.get("properties", {}):
        assert NAME.fullmatch(name), f"{path}: {name!r}"
    if "enum" in schema:
        assert schema["enum"], f"{path}: an enum has values"
        assert None not in schema["enum"], f"{path}: null is not a value"
    if "anyOf" in schema:
        assert len(schema["anyOf"]) >= 2, path
        assert "type" not in schema, f"{path}: one of type and anyOf"
    if "pattern" in schema:
        re.compile(schema["pattern"])
    assert schema.get("default", 0) is not None, path
    for key in ("exclusiveMinimum", "exclusiveMaximum", "minimum", "maximum"):
        assert not isinstance(schema.get(key, 0), bool), f"{path}: {key} is a number"


def types_of(schema: dict[str, Any]) -> list[str]:
    kind = schema.get("type", [])
    return [kind] if isinstance(kind, str) else list(kind)


def plain(schema: dict[str, Any], path: str) -> None:
    assert "nullable" not in schema, f"{path}: that is OpenAPI"


def strict(schema: dict[str, Any], path: str) -> None:
    plain(schema, path)
    assert not isinstance(schema.get("type"), list), f"{path}: one type"
    assert "type" in schema or "anyOf" in schema, f"{path}: a type"
    refused = schema.keys() & {
        "default", "minLength", "maxLength", "uniqueItems", "minProperties", "maxProperties", "title",
    }  # fmt: skip
    assert not refused, f"{path}: {refused}"
    if schema.get("type") == "object":
        assert schema["additionalProperties"] is False, f"{path}: closed"
        assert set(schema["required"]) == set(schema["properties"]), f"{path}: everything is required"
        assert schema["properties"] or not path, f"{path}: a free-form object"
    assert schema.get("format", "uuid") in {
        "date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid",
    }, path  # fmt: skip
    assert not re.search(r"\(\?[=!<]", schema.get("pattern", "")), f"{path}: looks around"


def gemini(schema: dict[str, Any], path: str) -> None:
    assert schema.keys() <= {
        "type", "format", "description", "nullable", "enum", "items", "maxItems", "minItems", "properties", "required",
        "minimum", "maximum", "anyOf",
    }, f"{path}: {schema.keys()}"  # fmt: skip
    assert not isinstance(schema.get("type"), list), f"{path}: one type"
    assert schema.get("type") != "null", path
    if "anyOf" in schema:
        assert schema.keys() == {"anyOf"}, f"{path}: anyOf stands alone"
        return
    assert "type" in schema, f"{path}: a type"
    if "enum" in schema:
        assert schema["type"] == "string", f"{path}: only strings are listed"
        assert all(isinstance(value, str) for value in schema["enum"]), path
    if schema["type"] == "object":
        assert schema["properties"] or not path, f"{path}: an object has some property"
    formats = {"string": {"date-time"}, "integer": {"int32", "int64"}, "number": {"float", "double"}}
    assert "format" not in schema or schema["format"] in formats[schema["type"]], path


def llama_cpp(schema: dict[str, Any], path: str) -> None:
    plain(schema, path)
    assert "pattern" not in schema, path
    assert not isinstance(schema.get("type"), list), f"{path}: templates read one type"
    for key in ("minLength", "maxLength", "minItems", "maxItems"):
        assert schema.get(key, 0) <= 2000, f"{path}: {key} is written out in the grammar"


def permissive(schema: dict[str, Any], path: str) -> None:
    plain(schema, path)
    assert "pattern" not in schema, path


DIALECTS: dict[str, Check] = {
    "openai": plain,
    "openai-strict": strict,
    "gemini": gemini,
    "mistral": plain,
    "llama.cpp": llama_cpp,
    "permissive": permissive,
}
