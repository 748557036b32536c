"""The normal form of a schema, and how two of them are combined.

A node is a dict with at most these keys: `type` (one name) with the keywords of that type, or `anyOf` (two or more
typed nodes), or neither (anything fits); `nullable`; and the annotations. `None` stands for a schema that nothing fits.
No function changes its arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, product
from typing import Any

from mcpservers.schemas.values import distinct, fits, same

Node = dict[str, Any]

ANNOTATIONS = ("description", "title", "default")
LOWER_BOUNDS = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
MAX_ALTERNATIVES = 256
UPPER_BOUNDS = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")


def is_any(node: Node) -> bool:
    return "type" not in node and "anyOf" not in node


def allows_null(node: Node) -> bool:
    return is_any(node) or node.get("nullable", False) or node.get("type") == "null"


def annotations_of(node: Node) -> Node:
    return {key: node[key] for key in ANNOTATIONS if key in node}


def bare(node: Node) -> Node:
    """The node without its annotations."""
    return {key: value for key, value in node.items() if key not in ANNOTATIONS}


def branches(node: Node) -> list[Node]:
    """The typed nodes of which one must fit, without annotations of the whole; not for a node that anything fits."""
    if "anyOf" in node:
        return list(node["anyOf"])
    return [{key: value for key, value in node.items() if key != "nullable"}]


def annotated(node: Node, notes: Node) -> Node:
    """`node` with the annotations of `notes` where it has none; a default that no longer fits is dropped."""
    result = {**annotations_of(notes), **node}
    if "default" in result and not admits(result, result["default"]):
        del result["default"]
    return result


def admits(node: Node, value: Any) -> bool:
    """Whether a default of this value makes sense: the type fits, the enum holds it, and it is not null."""
    if value is None:
        return False
    if is_any(node):
        return True
    return any(
        fits(value, branch["type"]) and ("enum" not in branch or same(value) in map(same, branch["enum"]))
        for branch in branches(node)
    )


def union(nodes: Iterable[Node | None]) -> Node | None:
    """The node that fits what any of `nodes` fits; annotations stay with the branches."""
    present = [node for node in nodes if node is not None]
    if not present:
        return None
    loose = next((node for node in present if is_any(node)), None)
    if loose is not None:
        return dict(loose)
    typed = _joined(branch for node in present for branch in branches(node) if branch["type"] != "null")
    if not typed:
        return {"type": "null"}
    result: Node = dict(typed[0]) if len(typed) == 1 else {"anyOf": typed}
    if any(allows_null(node) for node in present):
        result["nullable"] = True
    return result


def _joined(typed: Iterable[Node]) -> list[Node]:
    """Branches that differ only in what they require, or in the values they allow, become one."""
    known = list(typed)
    if len(known) < 2:
        return known
    result: dict[str, Node] = {}
    for node in known:
        key = same(_without(bare(node), "required", "enum")) + ("enum" if "enum" in node else "")
        result[key] = _join(result[key], node) if key in result else node
    return list(result.values())


def _join(one: Node, other: Node) -> Node:
    """One node for two that are equal but for `required`, `enum` and annotations."""
    result = bare(_without(one, "required", "enum"))
    required = [name for name in one.get("required", ()) if name in other.get("required", ())]
    if required:
        result["required"] = required
    if "enum" in one:
        result["enum"] = distinct([*one["enum"], *other["enum"]])
    notes = {key: text for key, text in annotations_of(one).items() if same(text) == same(other.get(key))}
    return annotated(result, annotations_of(one) if same(one.get("enum")) == same(other.get("enum")) else notes)


def _without(node: Node, *keys: str) -> Node:
    return {name: value for name, value in node.items() if name not in keys}


def intersect(base: Node | None, extra: Node | None) -> Node | None:
    """The node that fits what both fit. Annotations of `base` win."""
    if base is None or extra is None:
        return None
    notes = {**annotations_of(extra), **annotations_of(base)}
    if is_any(base):
        return annotated(bare(extra), notes)
    if is_any(extra):
        return annotated(bare(base), notes)
    nullable = allows_null(base) and allows_null(extra)
    result = union(_intersect_typed(one, other) for one, other in _pairs(branches(bare(base)), branches(bare(extra))))
    if result is None:
        return {"type": "null", **notes} if nullable else None
    if nullable:
        result["nullable"] = True
    return annotated(result, notes)


def _pairs(ones: list[Node], others: list[Node]) -> Iterable[tuple[Node, Node]]:
    """Each with each; so many that it would blow up are cut, which can only take alternatives away."""
    return islice(product(ones, others), MAX_ALTERNATIVES)


def _intersect_typed(one: Node, other: Node) -> Node | None:
    if {one["type"], other["type"]} == {"integer", "number"}:
        one, other = _whole(one), _whole(other)
    if one["type"] != other["type"]:
        return None
    result = {**other, **one}
    for key in LOWER_BOUNDS:
        if key in one and key in other:
            result[key] = max(one[key], other[key])
    for key in UPPER_BOUNDS:
        if key in one and key in other:
            result[key] = min(one[key], other[key])
    if "enum" in one and "enum" in other:
        allowed = {same(value) for value in other["enum"]}
        result["enum"] = [value for value in one["enum"] if same(value) in allowed]
    if "enum" in result and not result["enum"]:
        return None
    if "items" in one and "items" in other:
        result["items"] = intersect(one["items"], other["items"]) or {}
    if one["type"] == "object":
        result |= _intersect_properties(one, other)
        if result.get("additionalProperties", True) is True:
            result.pop("additionalProperties", None)
    return annotated(result, {})


def _whole(node: Node) -> Node:
    """The node of numbers, narrowed to the whole ones."""
    whole = {**node, "type": "integer"}
    if "enum" in whole:
        whole["enum"] = [value for value in whole["enum"] if fits(value, "integer")]
    return whole


def _intersect_properties(one: Node, other: Node) -> Node:
    mine, theirs = one.get("properties", {}), other.get("properties", {})
    properties = {}
    for name in [*mine, *(name for name in theirs if name not in mine)]:
        if name in mine and name in theirs:
            properties[name] = intersect(mine[name], theirs[name]) or mine[name]
        else:
            properties[name] = mine.get(name, theirs.get(name))
    # Read literally, `additionalProperties: false` in each part of an `allOf` forbids the other part's properties.
    rest = [part.get("additionalProperties", True) for part in (one, other)]
    additional = (
        rest[0] if same(rest[0]) == same(rest[1]) else next((each for each in rest if isinstance(each, dict)), True)
    )
    required = distinct([*one.get("required", ()), *other.get("required", ())])
    return {
        "properties": properties,
        "additionalProperties": additional,
        **({"required": required} if required else {}),
    }


def merge_alternatives(objects: Sequence[Node]) -> Node:
    """One object with the properties of all: what each of them requires is required, the rest may be given."""
    properties: dict[str, Node] = {}
    for node in objects:
        for name, value in node.get("properties", {}).items():
            properties[name] = (union([properties[name], value]) or {}) if name in properties else value
    required = [name for name in objects[0].get("required", ()) if all(name in o.get("required", ()) for o in objects)]
    closed = all(node.get("additionalProperties") is False for node in objects)
    return {
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        **({"additionalProperties": False} if closed else {}),
    }
