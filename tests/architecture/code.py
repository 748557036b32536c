"""The product's own Python files, parsed once, for the tests that walk them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
ROOMS = ("chatui", "accounts", "mcpservers", "agents", "conversations", "demo")


@cache
def sources() -> dict[str, ast.Module]:
    """Every module of the product by its path from the root, migrations left out."""
    return {
        str(path.relative_to(ROOT)): ast.parse(path.read_text())
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        if "migrations" not in path.parts
    }


def nodes(kind: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    for path, module in sources().items():
        for node in ast.walk(module):
            if isinstance(node, kind):
                yield path, node


def imported(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Every imported module's full name, with its line."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call):
            loaded = any(_named(part) in ("import_module", "__import__") for part in (node.func, *node.args))
            names = (part.value for part in node.args if isinstance(part, ast.Constant) and isinstance(part.value, str))
            yield from ((node.lineno, name) for name in names if loaded)


def _named(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
