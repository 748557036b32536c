"""The names under which models see tools: legal everywhere, unique by construction, the same in every conversation."""

from __future__ import annotations

import hashlib
import re

from mcpservers.visible import visible

SEPARATOR = "__"
MAX_LENGTH = 64
_LEGAL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
_ILLEGAL_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")
_SUFFIX = re.compile(r"_[0-9a-f]{8}\Z")


def exposed_name(server_slug: str, tool: str) -> str:
    """The name under which a model is offered `tool` of the server: `<slug>__<tool>`, 64 characters at most.

    It depends on these two alone. A name that must be changed or cut ends in a hash of both; a name that merely looks
    as if it did is changed too, so that the two kinds never meet. The slug (which has no underscore) always stays
    whole, so that two servers never meet. A first digit, which Gemini refuses, gets an underscore before it.
    """
    plain = f"{server_slug}{SEPARATOR}{tool}"
    if _LEGAL.fullmatch(plain) and not _SUFFIX.search(plain):
        return plain
    digest = hashlib.sha256(f"{server_slug}\0{tool}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    legal = _ILLEGAL_CHARACTER.sub("_", f"{server_slug}{SEPARATOR}{visible(tool)}")
    if legal[0].isdigit():
        legal = f"_{legal}"
    return f"{legal[: MAX_LENGTH - 9]}_{digest}"


def is_own(name: str) -> bool:
    """Whether `name` is one of our own tools' names: those are the names without `__`."""
    return SEPARATOR not in name
