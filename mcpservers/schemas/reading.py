"""Any JSON value → the normal form of a schema: references followed, types inferred, contradictions taken out.

Nothing here fetches: a reference that leaves the document stands for “anything” (JSON Schema 2020-12, 8.2).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from mcpservers.schemas.nodes import Node, annotated, annotations_of, bare, intersect, is_any, merge_alternatives, union
from mcpservers.schemas.values import TYPES, distinct, fits, same, type_of
from mcpservers.visible import is_visible, visible

MAX_NESTING = 48  # of combinators and references, beyond the depth of properties and items

_ALIASES = {
    "str": "string", "text": "string", "int": "integer", "long": "integer", "float": "number", "double": "number",
    "decimal": "number", "bool": "boolean", "dict": "object", "map": "object", "list": "array", "none": "null",
}  # fmt: skip
_HINTS = {
    "object": ("properties", "additionalProperties", "patternProperties", "minProperties", "maxProperties",
               "propertyNames", "dependentRequired", "dependentSchemas", "unevaluatedProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains", "additionalItems"),
    "string": ("pattern", "minLength", "maxLength", "contentEncoding", "contentMediaType"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}  # fmt: skip
_LENGTHS = {
    "object": ("minProperties", "maxProperties"),
    "array": ("minItems", "maxItems"),
    "string": ("minLength", "maxLength"),
}


class TooLargeSchemaError(Exception):
    """The schema, with its references written out, has more parts than the budget allows."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the schema a part stands: how deep in the data, how deep in combinators, inside which references."""

    depth: int = 0
    nesting: int = 0
    references: tuple[str, ...] = ()

    def inner(self) -> Place:
        return replace(self, depth=self.depth + 1)

    def combined(self, reference: str | None = None) -> Place:
        references = self.references if reference is None else (*self.references, reference)
        return replace(self, nesting=self.nesting + 1, references=references)


class Reader:
    """Reads one schema. `notes` says in words what could not be kept as it was."""

    def __init__(self, root: Any, *, max_depth: int, max_parts: int) -> None:
        self._root = root
        self._max_depth = max_depth
        self._parts_left = max_parts
        self._notes: dict[str, None] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._notes)

    def note(self, text: str) -> None:
        self._notes.setdefault(text)

    def read(self, raw: Any, place: Place = Place()) -> Node | None:
        """The normal form of `raw`. Raises `TooLargeSchemaError`."""
        self._parts_left -= 1
        if self._parts_left < 0:
            raise TooLargeSchemaError
        if raw is False:
            return None
        if not isinstance(raw, dict):
            if raw is not True:
                self.note("A part that is no schema was read as “anything”.")
            return {}
        if place.nesting > MAX_NESTING:
            self.note("A part that is nested too deeply was read as “anything”.")
            return {}
        node = self._own(raw, place)
        if "$ref" in raw or "$dynamicRef" in raw:
            node = intersect(node, self._referenced(raw.get("$ref", raw.get("$dynamicRef")), place))
        for part in _schemas(raw.get("allOf")):
            node = intersect(node, self.read(part, place.combined()))
        for key in ("anyOf", "oneOf"):
            if _schemas(raw.get(key)):
                node = self._alternatives(node, _schemas(raw[key]), place)
        return self._conditional(node, raw, place)

    # --- combinators ----------------------------------------------------------------------------------------------

    def _alternatives(self, node: Node | None, parts: list[Any], place: Place) -> Node | None:
        if node is None:
            return None
        alternatives = [intersect(bare(node), self.read(part, place.combined())) for part in parts]
        joined = union(alternatives)
        if joined is None:
            self.note("Alternatives of which none can be met were left out.")
            return node
        notes = {**annotations_of(joined), **annotations_of(node)}  # the words of the whole win
        if all(isinstance(part, dict) and part.keys() <= {"required", "type", "title"} for part in parts):
            notes = _with_demands(notes, [_strings(part.get("required")) for part in parts])
        return annotated(bare(joined), notes)

    def _conditional(self, node: Node | None, raw: dict[str, Any], place: Place) -> Node | None:
        """What only some conditions bring (`then`, `else`, `dependentSchemas`) may be given, and is never required."""
        if node is None or node.get("type") != "object":
            return node
        dependent = raw.get("dependentSchemas")
        parts = [raw[key] for key in ("then", "else") if key in raw]
        parts += list(dependent.values()) if isinstance(dependent, dict) else []
        properties = dict(node.get("properties", {}))
        for part in parts:
            read = self.read(part, place.combined())
            for name, value in (read or {}).get("properties", {}).items():
                properties.setdefault(name, value)
        return {**node, "properties": properties} if len(properties) > len(node.get("properties", {})) else node

    # --- references -----------------------------------------------------------------------------------------------

    def _referenced(self, reference: Any, place: Place) -> Node | None:
        found, target = self._find(reference)
        if not found:
            self.note(
                f"The reference {str(reference)[:200]!r} leads nowhere in this schema and was read as “anything”."
            )
            return {}
        if reference in place.references or place.nesting >= MAX_NESTING:
            self.note("A schema that contains itself was cut.")
            return self._stub(target)
        return self.read(target, place.combined(str(reference)))

    def _find(self, reference: Any) -> tuple[bool, Any]:
        if not isinstance(reference, str) or not reference.startswith("#"):
            return False, None
        if reference == "#":
            return True, self._root
        if not reference.startswith("#/"):
            return self._find_anchor(reference[1:])
        target = self._root
        for token in unquote(reference[2:]).split("/"):
            key = token.replace("~1", "/").replace("~0", "~")
            if isinstance(target, dict) and key in target:
                target = target[key]
            elif isinstance(target, list) and key.isascii() and key.isdigit() and int(key) < len(target):
                target = target[int(key)]
            else:
                return False, None
        return True, target

    def _find_anchor(self, name: str) -> tuple[bool, Any]:
        for container in ("$defs", "definitions"):
            definitions = self._root.get(container) if isinstance(self._root, dict) else None
            for target in definitions.values() if isinstance(definitions, dict) else ():
                if isinstance(target, dict) and name in (target.get("$anchor"), target.get("$dynamicAnchor")):
                    return True, target
        return False, None

    def _stub(self, raw: Any) -> Node:
        kinds = _types(raw) if isinstance(raw, dict) else None
        if not kinds or len(kinds) != 1 or "enum" in raw or "const" in raw:
            return {}
        return _empty(kinds[0])

    # --- one schema's own keywords --------------------------------------------------------------------------------

    def _own(self, raw: dict[str, Any], place: Place) -> Node | None:
        notes = _annotations(raw)
        kinds = _types(raw)
        values = _enum(raw)
        nullable = raw.get("nullable") is True or (kinds is not None and "null" in kinds)
        if values is not None:
            nullable = nullable or (kinds is None and None in values)
            kinds, values = self._reconcile(kinds, [value for value in values if value is not None], nullable)
        if kinds is None:
            return annotated({}, notes)
        typed = [
            self._typed(kind, raw, values if values is None else [v for v in values if _belongs(v, kind, kinds)], place)
            for kind in kinds
            if kind != "null"
        ]
        node = union([*typed, {"type": "null"} if nullable or not typed else None])
        return None if node is None else annotated(bare(node), notes)

    def _reconcile(self, kinds: list[str] | None, values: list[Any], nullable: bool) -> tuple[list[str], list[Any]]:
        """The types and the values of an enum, each with the other: the values win over a type they contradict."""
        fitting = [value for value in values if kinds is not None and any(fits(value, kind) for kind in kinds)]
        if kinds is not None and fitting:
            if len(fitting) < len(values):
                self.note("Allowed values that contradict the type were left out.")
            return [kind for kind in kinds if any(fits(value, kind) for value in fitting)], fitting
        if kinds is not None and values:
            self.note("A type that contradicts all allowed values was replaced by theirs.")
        usable = [value for value in values if type_of(value)]
        return distinct(type_of(value) for value in usable) or ["null"], usable

    def _typed(self, kind: str, raw: dict[str, Any], values: list[Any] | None, place: Place) -> Node:
        node: Node = {"type": kind}
        match kind:
            case "object":
                node |= self._object(raw, place)
            case "array":
                node |= self._array(raw, place)
            case "string":
                node |= _string(raw)
            case "integer" | "number":
                node |= _number(raw, kind)
        for key in _LENGTHS.get(kind, ()):
            length: Any = raw.get(key)
            if fits(length, "integer") and length >= 0:
                node[key] = int(length)
        if values:
            node["enum"] = distinct(values)
            if any(isinstance(value, str) and visible(value) != value for value in values):
                self.note("An allowed value contains invisible characters.")
        return node

    def _object(self, raw: dict[str, Any], place: Place) -> Node:
        declared = raw.get("properties")
        declared = declared if isinstance(declared, dict) else {}
        if declared and place.depth >= self._max_depth:
            self.note("Parts deeper than the limit were cut.")
            return {"properties": {}}
        properties: dict[str, Node] = {}
        required = _strings(raw.get("required"))
        impossible = set()
        for name, part in declared.items():
            node = self.read(part, place.inner())
            if node is None:
                self.note(f"The property {visible(name)!r}, for which no value is allowed, was left out.")
                impossible.add(name)
                continue
            properties[name] = node
            if isinstance(part, dict) and part.get("required") is True:  # draft 3
                required.append(name)
        required = [name for name in distinct(required) if name not in impossible]
        for name in required if place.depth < self._max_depth else ():
            properties.setdefault(name, {})
        result: Node = {"properties": properties}
        if required and place.depth < self._max_depth:
            result["required"] = required
        return result | self._additional(raw, place)

    def _additional(self, raw: dict[str, Any], place: Place) -> Node:
        additional = raw.get("additionalProperties", True)
        if additional is False:
            return {} if raw.get("patternProperties") else {"additionalProperties": False}
        if not isinstance(additional, dict) or place.depth >= self._max_depth:
            return {}
        node = self.read(additional, place.inner())
        if node is None:
            return {"additionalProperties": False}
        return {} if is_any(node) else {"additionalProperties": node}

    def _array(self, raw: dict[str, Any], place: Place) -> Node:
        items, prefix = raw.get("items"), raw.get("prefixItems")
        parts = prefix if isinstance(prefix, list) else items if isinstance(items, list) else []
        if isinstance(items, dict):
            parts = [*parts, items]
        if not parts or place.depth >= self._max_depth:
            if parts and parts != [{}]:
                self.note("Parts deeper than the limit were cut.")
            return {"items": {}}
        read = [self.read(part, place.inner()) for part in parts]
        node: Node = {"items": (read[0] if len(read) == 1 else union(read)) or {}}
        if raw.get("uniqueItems") is True:
            node["uniqueItems"] = True
        return node


def as_object(node: Node) -> Node | None:
    """The root as one object, whatever alternatives it has; None if it cannot be an object."""
    if is_any(node):
        return {"type": "object", "properties": {}, **annotations_of(node)}
    objects = [branch for branch in node.get("anyOf", [node]) if branch["type"] == "object"]
    if not objects:
        return None
    if len(objects) == 1:
        return annotated({key: value for key, value in objects[0].items() if key != "nullable"}, node)
    demands = [list(each.get("required", ())) for each in objects]
    return annotated(merge_alternatives(objects), _with_demands(annotations_of(node), demands))


def _with_demands(notes: Node, demands: list[list[str]]) -> Node:
    """The annotations, with a sentence on which sets of properties are wanted, if any one of several will do."""
    sets = distinct(demands)
    if len(sets) < 2 or not all(sets):
        return notes
    words = " or ".join(f"({', '.join(map(visible, names))})" for names in sets[:20])
    return {**notes, "description": f"{notes.get('description', '')} Give one of these sets: {words}.".strip()}


def _schemas(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _strings(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _annotations(raw: dict[str, Any]) -> Node:
    notes: Node = {}
    for key in ("description", "title"):
        if isinstance(raw.get(key), str) and (text := visible(raw[key]).strip()):
            notes[key] = text
    default = raw.get("default")
    if default is not None and type_of(default) and len(same(default)) <= 2000 and _is_visible(default):
        notes["default"] = default
    return notes


def _is_visible(value: Any) -> bool:
    """Whether nothing is hidden in the texts of a small JSON value."""
    match value:
        case str():
            return is_visible(value)
        case dict():
            return all(is_visible(key) and _is_visible(item) for key, item in value.items())
        case list():
            return all(_is_visible(item) for item in value)
        case _:
            return True


def _types(raw: dict[str, Any]) -> list[str] | None:
    """The types that a schema declares, else those that its keywords speak of; None for any type."""
    declared = raw.get("type")
    names = [declared] if isinstance(declared, str) else _strings(declared)
    lowered = [name.lower() for name in names]
    known = distinct(kind for name in lowered if (kind := _ALIASES.get(name, name)) in TYPES)
    if known:
        return ["number"] + [k for k in known if k not in ("number", "integer")] if "number" in known else known
    hinted = next((kind for kind, keys in _HINTS.items() if any(key in raw for key in keys)), None)
    if hinted is None and isinstance(raw.get("required"), list):  # draft 3 has a boolean there, in any schema
        hinted = "object"
    return None if hinted is None else [hinted]


def _enum(raw: dict[str, Any]) -> list[Any] | None:
    if "const" in raw:
        return [raw["const"]]
    values = raw.get("enum")
    return distinct(values) if isinstance(values, list) and values else None


def _belongs(value: Any, kind: str, kinds: list[str]) -> bool:
    return fits(value, kind) and not (kind == "number" and "integer" in kinds and fits(value, "integer"))


def _empty(kind: str) -> Node:
    """A node of this type that says nothing more."""
    extra: dict[str, Node] = {"object": {"properties": {}}, "array": {"items": {}}}
    return {"type": kind, **extra.get(kind, {})}


def _string(raw: dict[str, Any]) -> Node:
    node: Node = {}
    pattern, form = raw.get("pattern"), raw.get("format")
    if isinstance(pattern, str) and len(pattern) <= 1000 and _compiles(pattern):
        node["pattern"] = pattern
    if isinstance(form, str) and re.fullmatch(r"(?!(?:u?int\d*|float|double)$)[a-z][a-z0-9-]{0,40}", form):
        node["format"] = form
    return node


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def _number(raw: dict[str, Any], kind: str) -> Node:
    node: Node = {}
    for key, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        bound, strict = raw.get(key), raw.get(exclusive)
        if fits(bound, "number"):
            node[exclusive if strict is True else key] = bound  # draft 4 has a boolean there
        if fits(strict, "number"):
            node[exclusive] = strict
    multiple: Any = raw.get("multipleOf")
    if fits(multiple, "number") and multiple > 0:
        node["multipleOf"] = multiple
    form = raw.get("format")
    if isinstance(form, str) and form in (("int32", "int64") if kind == "integer" else ("float", "double")):
        node["format"] = form
    return node
