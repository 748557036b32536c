"""`{{…}}` and `${…}` in a definition, replaced once by the values of one user in one organization.

A value is never scanned again, so what somebody typed as a value is not expanded. What is unknown or has no value
makes the server *not ready*; a placeholder is never sent literally. `${NAME}` is the operator's environment, as far
as `MCP_ENV_ALLOWLIST` names it; that only a superuser writes one is seen to where definitions are saved.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from django.conf import settings

from mcpservers.errors import NotReadyError

if TYPE_CHECKING:
    from accounts.actors import Actor
    from mcpservers.requests import RequestContext

PLACEHOLDER = re.compile(r"\{\{([^{}]*)\}\}")
ENVIRONMENT = re.compile(r"\$\{([^{}]*)\}")
_ANY = re.compile(rf"{ENVIRONMENT.pattern}|{PLACEHOLDER.pattern}|\$\{{|\{{\{{(?!\{{)")  # also one that does not end
_BROKEN_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")  # RFC 9110, 5.5: and tab is the only control character
_AUTHORITY = re.compile(r"[^/?#]*//[^/?#]*")


def names_in(text: str) -> list[str]:
    """The names of the placeholders in `text`, in order, with repeats."""
    return [match.group(1).strip() for match in PLACEHOLDER.finditer(text)]


def references_in(text: str) -> list[str]:
    """The names of the operator's variables in `text`, in order, with repeats."""
    return [match.group(1) for match in ENVIRONMENT.finditer(text)]


def values_for(
    actor: Actor, declared: Mapping[str, Any], variables: Mapping[str, str], request: RequestContext | None = None
) -> dict[str, str]:
    """What each placeholder stands for, `${NAME}` under this very text.

    A name that is absent here is unknown; a blank value is a missing one.
    """
    values = {name: variables.get(name, "") for name in declared}
    if request is not None:
        values |= request.values()
    values |= {f"${{{name}}}": value for name, value in settings.MCP_ENVIRONMENT.items()}
    return values | {
        "user.id": str(actor.user_id),
        "user.username": actor.username,
        "user.email": actor.email,
        "user.name": actor.name or actor.username,
        "organization.slug": actor.organization_slug,
    }


def missing_variables(declared: Mapping[str, Any], variables: Mapping[str, str]) -> tuple[str, ...]:
    """The declared variables without a value; white space is none."""
    return tuple(name for name in declared if not variables.get(name, "").strip())


def require_variables(declared: Mapping[str, Any], variables: Mapping[str, str]) -> None:
    """Raise `NotReadyError`, naming by title every declared variable that has no value."""
    missing = missing_variables(declared, variables)
    if missing:
        titles = ", ".join(str((declared[name] or {}).get("title") or name) for name in missing)
        raise NotReadyError(f"Set up first: {titles}.", missing=missing)


def in_text(template: str, values: Mapping[str, str]) -> str:
    """`template` for an argument or an environment variable of a process. Raises `NotReadyError`, for NUL too."""
    return _replace(template, values, _without_nul)


def in_header(template: str, values: Mapping[str, str]) -> str:
    """`template` for a header's value, Latin-1. A value that is not Latin-1 is sent as `b64:` and its UTF-8 in base64.

    Raises `NotReadyError` also for line breaks, NUL and other control characters (RFC 9110, section 5.5).
    """
    text = _replace(template, values, _latin1)
    if _BROKEN_HEADER.search(text):
        raise NotReadyError("A header's value holds a line break or a control character.")
    try:
        text.encode("latin-1")
    except UnicodeEncodeError:
        raise NotReadyError("A header's value holds characters that headers cannot hold.") from None
    return text.strip(" \t")


def in_url(template: str, values: Mapping[str, str]) -> str:
    """`template` with values percent-encoded, so that a value stays within its place in path or query.

    Raises `NotReadyError`, also for a placeholder in scheme, host or port.
    """
    authority = _AUTHORITY.match(template)
    if authority is None or _ANY.search(authority.group()):
        raise NotReadyError("A placeholder may stand in the path and the query of the address only.")
    path, question, query = template.partition("?")
    return _replace(path, values, _path_segment) + question + _replace(query, values, _encoded)


def _replace(template: str, values: Mapping[str, str], encode: Callable[[str], str]) -> str:
    def value_of(match: re.Match[str]) -> str:
        reference = match.group().startswith("$")
        if match.group(2) is None and not reference:
            raise NotReadyError("A placeholder begins with {{ and does not end.")
        name = match.group() if reference else match.group(2).strip()
        shown = name if reference else f"{{{{{name}}}}}"
        if name not in values:
            raise NotReadyError(f"{shown} stands for nothing here.")
        if not values[name].strip():
            missing = () if reference or "." in name else (name,)
            raise NotReadyError(f"There is no value for {shown}.", missing=missing)
        return encode(values[name])

    return _ANY.sub(value_of, template)


def _without_nul(value: str) -> str:
    if "\0" in value:
        raise NotReadyError("A value holds NUL.")
    return value


def _latin1(value: str) -> str:
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        return "b64:" + base64.b64encode(value.encode(errors="replace")).decode()
    return value


def _encoded(value: str) -> str:
    return quote(value, safe="", errors="replace")


def _path_segment(value: str) -> str:
    # `.` and `..` survive percent-encoding and would climb.
    if value.strip(".") == "":
        raise NotReadyError("A value in the path of the address consists of dots.")
    return _encoded(value)
