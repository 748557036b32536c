"""What a server says in `WWW-Authenticate` when it wants a token, or another one. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Challenge:
    """A bearer challenge (RFC 6750, section 3; RFC 9728, section 5.1). What the server did not say is empty."""

    error: str = ""
    scope: tuple[str, ...] = ()
    resource_metadata: str = ""
    description: str = ""


def parse_challenge(www_authenticate: str) -> Challenge:
    """The first bearer challenge of the header's value; an empty one where there is none. Never raises."""
    raise NotImplementedError
