"""What a server says in `WWW-Authenticate` when it wants a token, or another one. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from chatui.text import clean, shorten
from mcpservers.visible import visible

LONGEST = 8192  # characters that are looked at
_MOST_SCOPES = 100
# RFC 9110, 11.2: `name = value`, the value a token or a quoted string; else a word, which begins a challenge.
_PART = re.compile(r"""([!#$%&'*+.^_`|~0-9A-Za-z-]+)(?:\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+)))?""")
# RFC 6749, 3.3
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}\Z")


@dataclass(frozen=True, slots=True)
class Challenge:
    """A bearer challenge (RFC 6750, section 3; RFC 9728, section 5.1). What the server did not say is empty."""

    error: str = ""
    scope: tuple[str, ...] = ()
    resource_metadata: str = ""
    description: str = ""


def parse_challenge(www_authenticate: str) -> Challenge:
    """The first bearer challenge of the header's value; an empty one where there is none. Never raises."""
    said = _bearer(www_authenticate[:LONGEST])
    return Challenge(
        error=shorten(visible(said.get("error", "")), 100),
        scope=scopes_in(said.get("scope", "")),
        resource_metadata=clean(said.get("resource_metadata", ""))[:2000],
        description=shorten(visible(said.get("error_description", "")), 300),
    )


def _bearer(text: str) -> dict[str, str]:
    found: dict[str, str] | None = None
    for match in _PART.finditer(text):
        name, quoted, bare = match.groups()
        if quoted is not None or bare is not None:
            if found is not None:
                value = re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) if quoted is not None else bare
                found.setdefault(name.lower(), value)
        elif found:
            break  # another challenge begins
        else:
            found = {} if name.lower() == "bearer" else None
    return found or {}


def scopes_in(value: object) -> tuple[str, ...]:
    """The scopes in `value`, a text with spaces (RFC 6749, section 3.3) or a list; each once, what is none left out."""
    words = value.split() if isinstance(value, str) else value if isinstance(value, list | tuple) else ()
    scopes = [word for word in words if isinstance(word, str) and _SCOPE.match(word)]
    return tuple(dict.fromkeys(scopes))[:_MOST_SCOPES]
