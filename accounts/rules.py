"""Tool rules as people write them: what is wrong with a list, and what in it cannot have been meant. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

Rule = Mapping[str, Any]  # {"tool": glob, "do": "allow" | "ask" | "deny", "remember"?, "edit"?, "approvers"?}
DECISIONS = ("allow", "ask", "deny")
KEYS = frozenset({"tool", "do", "remember", "edit", "approvers"})
GROUP = "group:"
# As rules are stored: before the id of somebody, and before a name that was nobody's. No user name has a colon.
USER, NOBODY = "user:", "nobody:"
_GROUP_NAME = re.compile(r"group:[a-z0-9-]+\Z")
_USER_ID = re.compile(r"user:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


def rule_findings(rules: Any) -> Iterator[str]:
    """What is wrong with a list of rules `{tool, do, remember?, edit?, approvers?}`, each named by its place."""
    if not isinstance(rules, list):
        yield "The rules are a list of {tool, do}."
        return
    decided: dict[str, tuple[int, str]] = {}
    for number, rule in enumerate(rules, start=1):
        problem = _problem(rule)
        if problem:
            yield f"Rule {number} {problem}"
            continue
        first, do = decided.setdefault(rule["tool"], (number, rule["do"]))
        if do != rule["do"]:
            yield f"Rule {number} contradicts rule {first}, which is for “{rule['tool']}” too: keep one of them."


def _problem(rule: Any) -> str:
    if not isinstance(rule, dict) or not {"tool", "do"} <= rule.keys() <= KEYS:
        return "has the keys tool and do, and may have remember, edit and approvers."
    if not isinstance(rule["tool"], str) or not rule["tool"]:
        return "needs as tool a pattern such as “get_*”."
    if rule["do"] not in DECISIONS:
        return f"needs as do one of {', '.join(DECISIONS)}."
    for name in ("remember", "edit"):
        if not isinstance(rule.get(name, True), bool):
            return f"needs true or false as {name}."
    if "approvers" in rule:
        return _approvers_problem(rule)
    return ""


def _approvers_problem(rule: Mapping[str, Any]) -> str:
    names = rule["approvers"]
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name.strip() for name in names):
        return "needs as approvers a list of user names and group:name, or none at all."
    wrong = next((name for name in names if name.startswith(GROUP) and not _GROUP_NAME.match(name)), None)
    if wrong is not None:
        return f"names “{wrong}”: a group is written as group:name, with the name that it has in the groups."
    wrong = next((name for name in names if name.startswith(USER) and not _USER_ID.match(name)), None)
    if wrong is not None:
        return f"names “{wrong}”: people are written by their user names."
    if rule["do"] != "ask":
        return "names approvers, whom only a rule with ask has use for."
    return ""


def unreached(rules: Sequence[Rule], names: Collection[str]) -> Iterator[tuple[int, str]]:
    """Rules that decide nothing: (number, why). `names` are the known names that the rules match; none: not known."""
    left = set(names)
    for number, rule in enumerate(rules, start=1):
        glob = rule.get("tool") if isinstance(rule, Mapping) else None
        if not isinstance(glob, str):
            continue
        matching = {name for name in names if fnmatchcase(name, glob)}
        covering = next(
            (at for at, other in enumerate(rules[: number - 1], start=1) if _covers(other.get("tool"), glob)), None
        )
        if names and not matching:
            yield number, f"“{glob}” matches no tool that is known."
        elif covering is not None:
            yield number, f"“{glob}” decides nothing: rule {covering} comes first."
        elif matching and not matching & left:
            yield number, f"“{glob}” decides nothing: rules before it match the same tools."
        left -= matching


def _covers(glob: object, other: str) -> bool:
    """Whether all that `other` matches is surely matched by `glob`."""
    return glob in ("*", other)
