"""What each kind of endpoint accepts in the schema of a tool's parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class Nullability(Enum):
    """How a value that may be null is written."""

    TYPE_LIST = "type list"  # {"type": ["string", "null"]}
    ANY_OF = "any of"  # {"anyOf": [{"type": "string"}, {"type": "null"}]}
    FLAG = "flag"  # {"type": "string", "nullable": true}


_BOUNDS = {"minimum", "maximum", "minItems", "maxItems"}
_EXACT_BOUNDS = _BOUNDS | {"exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
_JSON_SCHEMA = _EXACT_BOUNDS | {
    "format", "pattern", "minLength", "maxLength", "uniqueItems", "minProperties", "maxProperties", "default",
    "additionalProperties",
}  # fmt: skip
_STRICT_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}


@dataclass(frozen=True, slots=True)
class SchemaDialect:
    """`keywords` are those kept beside type, properties, required, items, enum, anyOf and description.

    `formats`: those kept, None for all. `typed`: every node names a type, so that “anything” and free-form objects are
    written as text (which is read back as JSON where the server's schema wants an object or an array). `all_required`:
    each property is required and an optional one may be null. `string_enums`: only strings are listed in an enum.
    `lone_any_of`: nothing may stand beside `anyOf`. `lookaround`: patterns
    may look around and refer back. `max_length`: a
    higher bound on lengths is left out, for grammars that write repetitions out. `max_description`: the most
    characters of a tool's description.
    """

    keywords: frozenset[str]
    nullability: Nullability = Nullability.TYPE_LIST
    formats: frozenset[str] | None = None
    typed: bool = False
    all_required: bool = False
    string_enums: bool = False
    lone_any_of: bool = False
    lookaround: bool = True
    max_length: int | None = None
    max_description: int | None = None


_PLAIN = SchemaDialect(frozenset(_JSON_SCHEMA))

DIALECTS = {
    "openai": replace(_PLAIN, max_description=1024),
    # https://platform.openai.com/docs/guides/structured-outputs: supported properties and limits
    "openai-strict": SchemaDialect(
        frozenset(_EXACT_BOUNDS | {"format", "pattern"}),
        nullability=Nullability.ANY_OF,
        formats=frozenset(_STRICT_FORMATS),
        typed=True,
        all_required=True,
        lookaround=False,
        max_description=1024,
    ),
    # https://ai.google.dev/api/caching#Schema: a subset of OpenAPI 3.0's schema object
    "gemini": SchemaDialect(
        frozenset(_BOUNDS | {"format"}),
        nullability=Nullability.FLAG,
        formats=frozenset({"date-time", "int32", "int64", "float", "double"}),
        typed=True,
        string_enums=True,
        lone_any_of=True,
    ),
    "mistral": _PLAIN,
    # json-schema-to-grammar: patterns must be anchored, repetitions are written out
    "llama.cpp": SchemaDialect(
        frozenset(_JSON_SCHEMA - {"pattern", "uniqueItems", "multipleOf"}),
        nullability=Nullability.ANY_OF,
        formats=frozenset({"date", "time", "date-time", "uuid"}),
        max_length=256,
    ),
    # what stands behind is not known, so patterns, which some servers' grammars refuse, are told in words
    "permissive": SchemaDialect(frozenset(_JSON_SCHEMA - {"pattern"})),
}
