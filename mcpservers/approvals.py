"""Whether a tool may run: rules and an admin's read-only list, never what the server says of itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

Rule = Mapping[str, Any]  # {"tool": glob, "do": "allow" | "ask" | "deny", "remember"?: bool}
HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


class Do(StrEnum):
    """What happens to a call. The order of `_STRICTNESS` decides between lists."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


_STRICTNESS = (Do.ALLOW, Do.ASK, Do.DENY)


@dataclass(frozen=True, slots=True)
class RuleList:
    """Rules of one origin (“the server”, “the agent”), matched against `subject`, else against the tool's name."""

    origin: str
    rules: Sequence[Rule]
    subject: str = ""


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """What happens to a call, and why, in words for a person. `remember`: a person may answer *Always allow*."""

    do: Do
    reason: str
    remember: bool = True


def verdict(tool: str, *, lists: Sequence[RuleList], read_only: Sequence[str] = ()) -> RuleVerdict:
    """Within a list the first match decides, across lists the strictest; a list without a match has no say.

    Without any match the tool is allowed if a glob of `read_only`, an admin's word, matches it; else a person is
    asked. A rule that matches and cannot be understood denies.
    """
    votes = [vote for rules in lists if (vote := _vote(tool, rules)) is not None]
    if votes:
        strictest = max(votes, key=lambda vote: _STRICTNESS.index(vote.do))
        remember = all(vote.remember for vote in votes if vote.do is Do.ASK)
        return RuleVerdict(strictest.do, strictest.reason, remember)
    glob = next((glob for glob in read_only if matches(glob, tool)), None)
    if glob is not None:
        return RuleVerdict(Do.ALLOW, f"An admin marked “{glob}” as read-only.")
    return RuleVerdict(Do.ASK, "No rule allows this tool, so a person is asked.")


def _vote(tool: str, rules: RuleList) -> RuleVerdict | None:
    for rule in rules.rules:
        glob = rule.get("tool") if isinstance(rule, Mapping) else None
        if not isinstance(glob, str):
            return RuleVerdict(Do.DENY, f"A rule of {rules.origin} cannot be understood: {rule!r}.")
        if not matches(glob, rules.subject or tool):
            continue
        if rule.get("do") not in list(Do):
            return RuleVerdict(Do.DENY, f"The rule “{glob}” of {rules.origin} cannot be understood.")
        do = Do(rule["do"])
        return RuleVerdict(do, f"The rule “{glob}: {do}” of {rules.origin} decides.", rule.get("remember") is not False)
    return None


def matches(glob: str, name: str) -> bool:
    """Whether the shell-style `glob` matches the whole of `name`, case included."""
    return fnmatchcase(name, glob)


def claims(annotations: object) -> dict[str, bool]:
    """The server's hints about a tool, to be shown as the server's claims; they never decide anything."""
    if not isinstance(annotations, Mapping):
        return {}
    return {hint: annotations[hint] for hint in HINTS if isinstance(annotations.get(hint), bool)}
