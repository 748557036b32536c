"""What a server says in `WWW-Authenticate` when it wants a token, or another one. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from chatui.text import clean, shorten
from mcpservers.oauth.dpop import ALGORITHM, PROOF_ERRORS
from mcpservers.visible import visible

LONGEST = 8192  # characters that are looked at
_MOST_SCOPES = 100
# RFC 9110, 11.2: `name = value`, the value a token or a quoted string; else a word, which begins a challenge.
_PART = re.compile(r"""([!#$%&'*+.^_`|~0-9A-Za-z-]+)(?:\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+)))?""")
# RFC 6749, 3.3
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}\Z")


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a server wants (RFC 6750, section 3; RFC 9728, section 5.1). What it did not say is empty.

    `dpop`: it takes tokens that are bound to a key of the kind that we have; `refused_proof`: the token may be good,
    its proof was not, and why (RFC 9449, sections 7.1 and 9).
    """

    error: str = ""
    scope: tuple[str, ...] = ()
    resource_metadata: str = ""
    description: str = ""
    dpop: bool = False
    refused_proof: str = ""


def parse_challenge(www_authenticate: str) -> Challenge:
    """The first bearer and the first DPoP challenge of the header's value, in one: what the former does not say the
    latter does. An empty one where there is neither. Never raises.
    """
    found = _challenges(www_authenticate[:LONGEST])
    proofs = found.get("dpop")
    said = {**(proofs or {}), **found.get("bearer", {})}
    return Challenge(
        error=shorten(visible(said.get("error", "")), 100),
        scope=scopes_in(said.get("scope", "")),
        resource_metadata=clean(said.get("resource_metadata", ""))[:2000],
        description=shorten(visible(said.get("error_description", "")), 300),
        dpop=proofs is not None and ALGORITHM in proofs.get("algs", ALGORITHM).split(),
        refused_proof=proofs["error"] if proofs and proofs.get("error") in PROOF_ERRORS else "",
    )


def _challenges(text: str) -> dict[str, dict[str, str]]:
    """The parameters of the first challenge of each scheme, by its name in lower case."""
    found: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    for match in _PART.finditer(text):
        name, quoted, bare = match.groups()
        if quoted is not None or bare is not None:
            value = re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) if quoted is not None else bare
            current.setdefault(name.lower(), value)
        else:
            current = {}
            if not found.get(name.lower()):
                found[name.lower()] = current
    return found


def scopes_in(value: object) -> tuple[str, ...]:
    """The scopes in `value`, a text with spaces (RFC 6749, section 3.3) or a list; each once, what is none left out."""
    words = value.split() if isinstance(value, str) else value if isinstance(value, list | tuple) else ()
    scopes = [word for word in words if isinstance(word, str) and _SCOPE.match(word)]
    return tuple(dict.fromkeys(scopes))[:_MOST_SCOPES]
