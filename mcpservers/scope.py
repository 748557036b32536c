"""Which scope a definition needs, computed from what it uses, with the reason. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mcpservers.oauth.config import MACHINE_GRANTS
from mcpservers.placeholders import names_in


class Scope(StrEnum):
    """Whose connection it is: the organization's, one user's, or one turn's. Never shared between organizations."""

    APP = "app"
    USER = "user"
    REQUEST = "request"


@dataclass(frozen=True, slots=True)
class ScopeVerdict:
    """The scope, and why, in words for an admin."""

    scope: Scope
    reason: str


_SHARED = "Nothing in it depends on the user, so the organization shares one connection."
_MACHINE = "It is used with an account of the organization, so one connection is shared."
_OF_USER = ("user.", "openid.", "obo.")


def scope_of(definition: Mapping[str, Any]) -> ScopeVerdict:
    """The scope that `definition` (see `MCPServer.definition`) needs; the narrowest that any of its parts needs."""
    used = list(_used(definition))
    for field, name in used:
        if name.startswith("request."):
            return ScopeVerdict(Scope.REQUEST, f"{{{{{name}}}}} in {field} differs from turn to turn.")
    if definition.get("owner"):
        return ScopeVerdict(Scope.USER, "It is a server of one person, who alone uses it.")
    oauth = definition.get("oauth")
    if oauth is not None and oauth.get("obo"):
        return ScopeVerdict(Scope.USER, "It is called on behalf of the user, with the user's own sign-in.")
    if oauth is not None and oauth.get("grant") not in MACHINE_GRANTS:
        return ScopeVerdict(Scope.USER, "Each user signs in with an account of their own (OAuth).")
    if definition.get("variables"):
        names = ", ".join(sorted(definition["variables"]))
        return ScopeVerdict(Scope.USER, f"Each user has values of their own for {names}.")
    for field, name in used:
        if name.startswith(_OF_USER) or ("." not in name):
            return ScopeVerdict(Scope.USER, f"{{{{{name}}}}} in {field} differs from user to user.")
    return ScopeVerdict(Scope.APP, _SHARED if oauth is None else _MACHINE)


def _used(definition: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for field in ("url", "headers", "env", "args", "oauth"):
        yield from ((field, name) for text in _texts(definition.get(field)) for name in names_in(text))


def _texts(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            for item in value.values():
                yield from _texts(item)
        case list() | tuple():
            for item in value:
                yield from _texts(item)
