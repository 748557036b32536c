"""A tool that its server does not know when it is called: the tools are listed anew, once, and then it is gone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from chatui.errors import ChatUIError
from mcpservers import fetching
from mcpservers.errors import ToolMissingError
from mcpservers.transports import ConnectionTarget

_LONGEST = 500  # characters of what servers say then; a tool that speaks of a missing tool says more
_UNKNOWN = re.compile(
    r"\b(?:unknown|unregistered|unrecognised|unrecognized|undefined|no such|non-?existent) tool\b"
    r"|\btool\b.*\b(?:not found|not registered|unknown|does not exist|doesn't exist|no longer exists|not available)\b"
    r"|\b(?:could not|couldn't|cannot|can't) find (?:the )?tool\b"
    r"|\b(?:no|not a) tool (?:named|called|with)\b",
    re.IGNORECASE | re.DOTALL,
)


def is_unknown(words: str, tool: str) -> bool:
    """Whether a server's error says that it has no tool of this name."""
    return len(words) <= _LONGEST + len(tool) and tool in words and bool(_UNKNOWN.search(words))


def says_unknown(raw: Mapping[str, Any], tool: str) -> bool:
    """Likewise for the result of a call: many servers answer so."""
    content = raw.get("content")
    if raw.get("isError") is not True or not isinstance(content, list) or len(content) != 1:
        return False
    words = content[0].get("text") if isinstance(content[0], Mapping) else None
    return isinstance(words, str) and is_unknown(words, tool)


def check(target: ConnectionTarget, tool: str) -> None:
    """Raise `ToolMissingError` for a tool that was found missing a moment ago, for the same values: no network."""
    if fetching.fetches().is_missing(target, tool):
        raise _gone(target, tool)


async def look_for(target: ConnectionTarget, tool: str) -> None:
    """List the server's tools anew, on the connection that there is. Raises `ToolMissingError` unless `tool` is there.

    The catalogue has the new list from then on.
    """
    found = fetching.fetches()
    try:
        entry = await found.list_anew(target)
    except ChatUIError as error:
        found.miss(target, tool)
        raise ToolMissingError(
            f"“{target.title}” does not know its tool “{tool}” at the moment, and could not be asked for its tools: "
            f"{error.public_message}"
        ) from error
    if not any(item["name"] == tool for item in entry.tools):
        found.miss(target, tool)
        raise _gone(target, tool)


def _gone(target: ConnectionTarget, tool: str) -> ToolMissingError:
    return ToolMissingError(f"“{target.title}” has no tool “{tool}” any more. Do without it, or use another one.")
