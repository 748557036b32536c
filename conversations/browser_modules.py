"""The browser's modules: which there are, under what names they are imported, and which a page loads ahead."""

from __future__ import annotations

import json
from functools import cache

from django.conf import settings
from django.templatetags.static import static


@cache
def _vendored() -> dict[str, str]:
    names: dict[str, str] = json.loads((settings.BASE_DIR / "static/vendor/importmap.json").read_text())
    return names


@cache
def _modules() -> list[str]:
    """The chat's modules, by name. What is no module, and what one page alone has (`pages/`), is left out."""
    names = (path.name for path in (settings.BASE_DIR / "static/js").glob("*.js"))
    return sorted(name for name in names if name != "theme-boot.js")


def import_map() -> dict[str, str]:
    """Bare names of vendored modules, and our own addresses where the storage gives files hashed names.

    Modules import each other by relative address; the map leads that address to the file of this release, so one
    changed module does not change the name of every module that imports it.
    """
    imports = {specifier: static(f"vendor/{name}") for specifier, name in _vendored().items()}
    for name in _modules():
        plain, served = f"{settings.STATIC_URL}js/{name}", static(f"js/{name}")
        if plain != served:
            imports[plain] = served
    return imports


def preloads() -> list[str]:
    """Every module that the page needs, so that they load side by side and not one import after the other."""
    vendored = [static(f"vendor/{name}") for specifier, name in _vendored().items() if "highlight" not in specifier]
    return [static(f"js/{name}") for name in _modules()] + vendored
