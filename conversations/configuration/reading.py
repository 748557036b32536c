"""YAML text → a plain document: strictly, with `${NAME}` expanded once from the operator's environment."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import yaml

from chatui.text import clean
from conversations.configuration.problems import ConfigurationError, Path, Problem

MAX_CHARACTERS = 2**20
# `$${NAME}` stands for the text `${NAME}`; anything else between braces is a mistake worth telling.
_REFERENCE = re.compile(r"(\$?)\$\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Unquoted between braces (`{password: ${PASSWORD}}`) YAML would read a reference's braces as its own: they are
# exchanged for these characters of the private use area before parsing, so that line and column stay true.
_BRACES = {"{": "\ue9c2", "}": "\ue9c3"}
_EXPANDED_LATER = re.compile(r"\$\{|\{\{")


@dataclass(frozen=True, slots=True)
class Document:
    """A file as read: `value` with references expanded; `expanded` are the paths of the texts that held one.

    `expanded_again` are those whose environment value itself holds `${` or `{{`: where a text is a template
    (a server's definition) that would be expanded a second time.
    """

    value: Any
    expanded: frozenset[Path] = frozenset()
    expanded_again: frozenset[Path] = frozenset()

    def came_from_environment(self, path: Path) -> bool:
        """Whether the text at `path`, or any text under it, held a reference."""
        return any(place[: len(path)] == path for place in self.expanded)


class _Loader(yaml.SafeLoader):
    """Refuses what YAML silently allows: a key that is given twice, of which the last one would win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = (key_node.tag, key_node.value) if isinstance(key_node, yaml.ScalarNode) else id(key_node)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key “{key_node.value}” is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def _hide_braces(text: str) -> str:
    return re.sub(r"\$\{(\w*)\}", "$" + _BRACES["{"] + r"\1" + _BRACES["}"], text)


def _show_braces(text: str) -> str:
    return text.replace(_BRACES["{"], "{").replace(_BRACES["}"], "}")


def parse_yaml(text: str) -> Any:
    """The value of `text`, one YAML document, the braces of its references hidden.

    Raises `ConfigurationError` with line and column; the file's text is never quoted.
    """
    if len(text) > MAX_CHARACTERS:
        raise ConfigurationError([Problem((), f"The file is longer than {MAX_CHARACTERS} characters.")])
    try:
        return yaml.load(_hide_braces(text), Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        # str(error) quotes the line, which may hold a secret.
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        message = _show_braces(error.problem or "this is not valid YAML")
        raise ConfigurationError([Problem((), where + message)]) from None
    except yaml.YAMLError:
        raise ConfigurationError([Problem((), "This is not valid YAML (a character that YAML forbids).")]) from None
    except (ValueError, RecursionError):
        # A date that does not exist, or nesting without end.
        raise ConfigurationError([Problem((), "The file holds a value that YAML cannot express.")]) from None


@dataclass
class _Expansion:
    environment: Mapping[str, str]
    problems: list[Problem] = field(default_factory=list)
    expanded: set[Path] = field(default_factory=set)
    expanded_again: set[Path] = field(default_factory=set)
    open: list[int] = field(default_factory=list)

    def walk(self, value: Any, path: Path) -> Any:
        match value:
            case str():
                return self.text(value, path)
            case dict() | list():
                return self.container(value, path)
            case None | bool() | int():
                return value
            case float() if isfinite(value):
                return value
            case _:
                self.problems.append(
                    Problem(path, "is a date or another value that JSON does not know: put it into quotes")
                )
                return None

    def container(self, value: dict[Any, Any] | list[Any], path: Path) -> Any:
        if id(value) in self.open:
            self.problems.append(Problem(path, "this refers to itself"))
            return None
        self.open.append(id(value))
        try:
            if isinstance(value, list):
                return [self.walk(item, (*path, index)) for index, item in enumerate(value)]
            return {
                self.key(key, path): self.walk(item, (*path, _show_braces(str(key)))) for key, item in value.items()
            }
        finally:
            self.open.pop()

    def key(self, key: object, path: Path) -> str:
        if not isinstance(key, str):
            self.problems.append(Problem((*path, str(key)), "a key is text: put it into quotes"))
        return _show_braces(str(key))

    def text(self, text: str, path: Path) -> str:
        def replace(match: re.Match[str]) -> str:
            escaped, name = match.groups()
            if escaped:
                return "${" + name + "}"
            if not _NAME.fullmatch(name):
                self.problems.append(Problem(path, f"“${{{name}}}” does not name an environment variable"))
                return ""
            if name not in self.environment:
                self.problems.append(Problem(path, f"the environment variable {name} is not set"))
                return ""
            self.expanded.add(path)
            value = self.environment[name]
            if _EXPANDED_LATER.search(value):
                self.expanded_again.add(path)
            return value

        result = _REFERENCE.sub(replace, _show_braces(text))
        if clean(result) != result:
            self.problems.append(
                Problem(path, "holds a character that cannot be stored (NUL or half a surrogate pair)")
            )
        return result


def read_document(text: str, environment: Mapping[str, str]) -> Document:
    """`text` parsed and expanded. Raises `ConfigurationError` naming every missing variable and its path."""
    expansion = _Expansion(environment)
    value = expansion.walk(parse_yaml(text), ())
    if expansion.problems:
        raise ConfigurationError(expansion.problems)
    return Document(value, frozenset(expansion.expanded), frozenset(expansion.expanded_again))


def escape(text: str) -> str:
    """`text` so that reading it gives `text` again, whatever the environment holds."""
    return _REFERENCE.sub(lambda match: "$" + match.group(), text)
