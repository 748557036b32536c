"""The normal form of a schema → JSON Schema as one dialect accepts it."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from mcpservers.schemas.dialects import Nullability, SchemaDialect
from mcpservers.schemas.nodes import Node, allows_null, branches, is_any
from mcpservers.schemas.values import JSONObject, same
from mcpservers.visible import visible

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_LENGTHS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_SCALARS = ("string", "number", "boolean")
ANY_VALUE = "Any value."
JSON_OBJECT = "A JSON object, written as text."

Path = tuple[str, ...]


class Writer:
    """Writes one schema. `renames` and `absent` are as in `RepairedSchema`."""

    def __init__(self, dialect: SchemaDialect) -> None:
        self._dialect = dialect
        self._names: dict[str, str] = {}  # the server's name → the name sent
        self.absent: set[Path] = set()

    @property
    def renames(self) -> dict[str, str]:
        return {sent: name for name, sent in self._names.items() if sent != name}

    def write_root(self, node: Node) -> JSONObject:
        """The parameters of a tool: an object with properties, whatever the dialect does with free-form objects."""
        self._claim_legal_names(node)
        result = self._object(node, (), node.get("description", ""))
        if self._dialect.all_required:
            result["additionalProperties"] = False
        return result

    def _claim_legal_names(self, node: Node) -> None:
        """Names that need no change keep theirs, wherever they stand, before any other gets a new one."""
        for name, value in node.get("properties", {}).items():
            if _LEGAL_NAME.fullmatch(name):
                self._names[name] = name
            self._claim_legal_names(value)
        additional = node.get("additionalProperties")
        inner = [node.get("items"), additional if isinstance(additional, dict) else None, *node.get("anyOf", ())]
        for value in inner:
            if value is not None:
                self._claim_legal_names(value)

    def _sent_name(self, name: str) -> str:
        if name not in self._names:
            cleaned = re.sub(r"[^a-zA-Z0-9-]+", "_", visible(name)).strip("_-")[:48] or "p"
            salt, taken = 0, set(self._names.values())
            while (sent := f"{cleaned}_{_short_hash(f'{salt}{name}')}") in taken:
                salt += 1
            self._names[name] = sent
        return self._names[name]

    # --- nodes ----------------------------------------------------------------------------------------------------

    def write(self, node: Node, path: Path, *, nullable: bool = False) -> JSONObject:
        """`node` as JSON Schema. `nullable` adds null to what it allows."""
        words = node.get("description", "")
        if is_any(node):
            return self._anything(node, words)
        nullable = nullable or allows_null(node)
        if "anyOf" in node:
            return self._alternatives(node, path, words, nullable)
        if node["type"] == "null":
            return self._only_null(words)
        return self._with_null(self._typed(node, path, words), nullable)

    def _anything(self, node: Node, words: str) -> JSONObject:
        if not self._dialect.typed:
            return self._with_default({"description": words} if words else {}, node)
        words = _sentences(words, ANY_VALUE)
        if self._dialect.nullability is Nullability.FLAG:
            return {"type": "string", "description": words}
        return {"anyOf": [{"type": kind} for kind in (*_SCALARS, "null")], "description": words}

    def _only_null(self, words: str) -> JSONObject:
        flag = self._dialect.nullability is Nullability.FLAG
        result: JSONObject = {"type": "string", "nullable": True} if flag else {"type": "null"}
        return result | ({"description": words} if words else {})

    def _alternatives(self, node: Node, path: Path, words: str, nullable: bool) -> JSONObject:
        written = [self._typed(branch, path, branch.get("description", "")) for branch in branches(node)]
        written = list({same({**each, "description": ""}): each for each in reversed(written)}.values())[::-1]
        if len(written) == 1:
            words = words or written[0].get("description", "")
            return self._with_null({**written[0], **({"description": words} if words else {})}, nullable)
        if self._dialect.lone_any_of:
            first = (
                {**written[0], "description": _sentences(words, written[0].get("description", ""))}
                if words
                else written[0]
            )
            written = [first, *written[1:]]
            return {"anyOf": [{**each, "nullable": True} if nullable else each for each in written]}
        if nullable:
            written.append({"type": "null"})
        result: JSONObject = {"anyOf": written}
        if words:
            result["description"] = words
        return self._with_default(result, node)

    def _with_null(self, written: JSONObject, nullable: bool) -> JSONObject:
        if not nullable:
            return written
        match self._dialect.nullability:
            case Nullability.FLAG:
                return {**written, "nullable": True}
            case Nullability.TYPE_LIST:
                return {**written, "type": [written["type"], "null"]}
            case Nullability.ANY_OF:
                whole: JSONObject = {key: written[key] for key in ("description", "default") if key in written}
                part = {key: value for key, value in written.items() if key not in whole}
                return {"anyOf": [part, {"type": "null"}], **whole}

    def _with_default(self, written: JSONObject, node: Node) -> JSONObject:
        if "default" in node and "default" in self._dialect.keywords:
            return {**written, "default": node["default"]}
        return written

    # --- typed nodes ----------------------------------------------------------------------------------------------

    def _typed(self, node: Node, path: Path, words: str) -> JSONObject:
        if node["type"] == "object" and self._dialect.typed and not node.get("properties"):
            return {"type": "string", "description": _sentences(words, JSON_OBJECT)}
        if node["type"] == "object":
            return self._with_default(self._object(node, path, words), node)
        result: JSONObject = {"type": node["type"]}
        extra = [words]
        if "enum" in node:
            if self._dialect.string_enums and node["type"] != "string":
                extra.append(f"One of {', '.join(same(value) for value in node['enum'][:100])}.")
            else:
                result["enum"] = node["enum"]
        if node["type"] == "array":
            result["items"] = self.write(node["items"], (*path, "*"))
        result |= self._constraints(node, extra)
        description = _sentences(*extra)
        if description:
            result["description"] = description
        return self._with_default(result, node)

    def _constraints(self, node: Node, words: list[str]) -> JSONObject:
        """The keywords that the dialect takes; of the others a pattern and a format are told in `words`."""
        result: JSONObject = {}
        for key, value in node.items():
            if key in ("type", "enum", "items", "properties", "required", "additionalProperties", "nullable", "anyOf"):
                continue
            if key in ("description", "title", "default"):
                continue
            if self._takes(key, value):
                result[key] = value
            elif key in ("pattern", "format"):
                words.append(f"{key.capitalize()}: {value}")
        return result

    def _takes(self, key: str, value: Any) -> bool:
        dialect = self._dialect
        if key not in dialect.keywords:
            return False
        if key == "format":
            return dialect.formats is None or value in dialect.formats
        if key == "pattern":
            return dialect.lookaround or re.search(r"\(\?[=!<]|\\[1-9]", value) is None
        return not (key in _LENGTHS and dialect.max_length is not None and value > dialect.max_length)

    def _object(self, node: Node, path: Path, words: str) -> JSONObject:
        required = node.get("required", [])
        properties: JSONObject = {}
        for name, value in node.get("properties", {}).items():
            optional = self._dialect.all_required and name not in required
            if optional and not allows_null(value):
                self.absent.add((*path, name))
            properties[self._sent_name(name)] = self._property(name, value, (*path, name), nullable=optional)
        result: JSONObject = {"type": "object", "properties": properties}
        if words:
            result["description"] = words
        if self._dialect.all_required:
            return result | {"required": list(properties), "additionalProperties": False}
        if required:
            result["required"] = [self._sent_name(name) for name in required]
        additional = node.get("additionalProperties")
        if additional is not None and "additionalProperties" in self._dialect.keywords:
            result["additionalProperties"] = additional if additional is False else self.write(additional, (*path, "*"))
        return result | self._constraints(node, [])

    def _property(self, name: str, node: Node, path: Path, *, nullable: bool) -> JSONObject:
        title = node.get("title", "")
        words = node.get("description", "") or ("" if _says_no_more(title, name) else title)
        if self._sent_name(name) != name:
            words = _sentences(words, f"Known as “{visible(name)[:200]}”.")
        return self.write({**node, "description": words} if words else node, path, nullable=nullable)


def _says_no_more(title: str, name: str) -> bool:
    """Whether the title is only the name again, as generators write it (`userId` → “User Id”)."""
    return re.sub(r"\W|_", "", title).casefold() == re.sub(r"\W|_", "", name).casefold()


def _sentences(*texts: str) -> str:
    """The texts one after the other, each once, with a full stop between them."""
    result = ""
    for text in texts:
        if not text or text in result:
            continue
        result = f"{result}{'' if result.endswith(('.', '!', '?', ':', '。')) else '.'} {text}" if result else text
    return result


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:6]
