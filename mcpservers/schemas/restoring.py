"""A model's arguments, given for a repaired schema → arguments for the server's own schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Path = tuple[str, ...]


def restore_arguments(
    arguments: Mapping[str, Any], renames: Mapping[str, str], absent: frozenset[Path] = frozenset()
) -> dict[str, Any]:
    """A copy of `arguments` with the server's own property names, and without the nulls that stand for “left out”.

    `renames` and `absent` are those of the `RepairedSchema` that the model was shown.
    """
    restored: dict[str, Any] = _restore(arguments, renames, absent, ())
    return restored


def _restore(value: Any, renames: Mapping[str, str], absent: frozenset[Path], path: Path) -> Any:
    match value:
        case Mapping():
            result: dict[str, Any] = {}
            for sent, item in value.items():
                name = renames.get(sent, sent)
                if item is None and (*path, name) in absent:
                    continue
                result[name] = _restore(item, renames, absent, (*path, name))
            return result
        case list():
            return [_restore(item, renames, absent, (*path, "*")) for item in value]
        case _:
            return value
