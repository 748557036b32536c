"""Whether a tool may run: rules and an admin's read-only list, never what the server says of itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from accounts.actors import GroupRules
from accounts.rules import Rule

__all__ = ["Do", "Rule", "RuleList", "RuleVerdict", "claims", "matches", "rule_lists", "verdict"]

HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


class Do(StrEnum):
    """What happens to a call. The order of `STRICTNESS` decides between lists."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


STRICTNESS = (Do.ALLOW, Do.ASK, Do.DENY)


@dataclass(frozen=True, slots=True)
class RuleList:
    """Rules of one origin (“the server”, “the agent”), matched against `subject`, else against the tool's name."""

    origin: str
    rules: Sequence[Rule]
    subject: str = ""


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """What happens to a call, and why, in words for a person.

    Of one that asks: `remember`, a person may answer *Always allow*; `edit`, a person may change the arguments;
    `approvers`, one list for each rule that names who may answer, in place of the person whose call it is.
    """

    do: Do
    reason: str
    remember: bool = True
    edit: bool = False
    approvers: tuple[tuple[str, ...], ...] = ()


def rule_lists(
    slug: str,
    tool: str,
    *,
    server: Sequence[Rule],
    groups: Sequence[GroupRules] = (),
    agent: Sequence[Rule] = (),
) -> list[RuleList]:
    """Every list that has a say in a call of `tool` of the server `slug`: the server's, each group's, the agent's."""
    subject = f"{slug}__{tool}"
    return [
        RuleList("the server", server),
        *(RuleList(f"the group “{group.slug}”", group.rules, subject) for group in groups),
        RuleList("the agent", agent, subject),
    ]


def verdict(tool: str, *, lists: Sequence[RuleList], read_only: Sequence[str] = ()) -> RuleVerdict:
    """Within a list the first match decides, across lists the strictest; a list without a match has no say.

    Without any match the tool is allowed if a glob of `read_only`, an admin's word, matches it; else a person is
    asked. A rule that matches and cannot be understood, or that another for the same pattern contradicts, denies.
    """
    votes = [vote for rules in lists if (vote := vote_of(tool, rules)) is not None]
    return strictest(votes) if votes else unruled(tool, read_only)


def strictest(votes: Sequence[RuleVerdict]) -> RuleVerdict:
    """What comes of the votes of several lists, at least one."""
    decides = max(votes, key=lambda vote: STRICTNESS.index(vote.do))
    asking = [vote for vote in votes if vote.do is Do.ASK]
    return RuleVerdict(
        decides.do,
        decides.reason,
        remember=all(vote.remember for vote in asking),
        edit=bool(asking) and all(vote.edit for vote in asking),
        approvers=tuple(names for vote in asking for names in vote.approvers),
    )


def unruled(tool: str, read_only: Sequence[str]) -> RuleVerdict:
    """What happens to a tool of which no rule says anything."""
    glob = next((glob for glob in read_only if matches(glob, tool)), None)
    if glob is not None:
        return RuleVerdict(Do.ALLOW, f"An admin marked “{glob}” as read-only.")
    return RuleVerdict(Do.ASK, "No rule allows this tool, so a person is asked.")


def vote_of(tool: str, rules: RuleList) -> RuleVerdict | None:
    """What one list says of a call; None where nothing in it matches."""
    for rule in rules.rules:
        glob = pattern_of(rule)
        if glob is None or matches(glob, rules.subject or tool):
            return said_by(rule, rules)
    return None


def pattern_of(rule: object) -> str | None:
    """What the rule is for; None of one that is for everything, since it cannot be understood."""
    glob = rule.get("tool") if isinstance(rule, Mapping) else None
    return glob if isinstance(glob, str) else None


def said_by(rule: Rule, rules: RuleList) -> RuleVerdict:
    """What a rule of `rules` says of a tool that it matches."""
    glob = pattern_of(rule)
    if glob is None:
        return RuleVerdict(Do.DENY, f"A rule of {rules.origin} cannot be understood: {rule!r}.")
    approvers = rule.get("approvers", ())
    if rule.get("do") not in list(Do) or not _are_names(approvers):
        return RuleVerdict(Do.DENY, f"The rule “{glob}” of {rules.origin} cannot be understood.")
    if any(other.get("tool") == glob and other.get("do") != rule["do"] for other in _understood(rules.rules)):
        return RuleVerdict(Do.DENY, f"Rules of {rules.origin} for “{glob}” contradict each other.")
    do = Do(rule["do"])
    return RuleVerdict(
        do,
        f"The rule “{glob}: {do}” of {rules.origin} decides.",
        remember=rule.get("remember") is not False,
        edit=rule.get("edit") is True,
        approvers=(tuple(approvers),) if approvers and do is Do.ASK else (),
    )


def _understood(rules: Sequence[Rule]) -> list[Rule]:
    return [rule for rule in rules if isinstance(rule, Mapping)]


def _are_names(approvers: object) -> bool:
    return isinstance(approvers, list | tuple) and all(isinstance(name, str) for name in approvers)


def matches(glob: str, name: str) -> bool:
    """Whether the shell-style `glob` matches the whole of `name`, case included."""
    return fnmatchcase(name, glob)


def claims(annotations: object) -> dict[str, bool]:
    """The server's hints about a tool, to be shown as the server's claims; they never decide anything."""
    if not isinstance(annotations, Mapping):
        return {}
    return {hint: annotations[hint] for hint in HINTS if isinstance(annotations.get(hint), bool)}
