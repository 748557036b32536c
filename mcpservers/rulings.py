"""Rules read once for all tools of an offer: the verdicts of `approvals.verdict`, in a fraction of its time. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

from accounts.actors import GroupRules
from mcpservers.approvals import (
    Rule,
    RuleList,
    RuleVerdict,
    pattern_of,
    rule_lists,
    said_by,
    strictest,
    unruled,
)

Matcher = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A rule: its glob (None: it is for everything), what it begins with, and what it says of what it matches."""

    glob: str | None
    head: str
    matches: Matcher
    vote: RuleVerdict

    def always(self, prefix: str) -> bool:
        """Whether it surely matches whatever begins with `prefix`: what its last star has matched may go on."""
        return self.glob is None or (self.glob.endswith("*") and bool(self.matches(prefix)))

    def never(self, prefix: str) -> bool:
        """Whether nothing that begins with `prefix` can match. Most rules are for other servers."""
        return not prefix.startswith(self.head) and not self.head.startswith(prefix)


class Rulings:
    """The rules of a person's groups and of an agent, for whatever server: `of` one, and then of its tools."""

    def __init__(self, groups: Sequence[GroupRules] = (), agent: Sequence[Rule] = ()) -> None:
        _, *lists = rule_lists("", "", server=(), groups=groups, agent=agent)
        self._lists = [_compiled(rules) for rules in lists]

    def of(
        self, slug: str, *, server: Sequence[Rule] = (), read_only: Sequence[str] = ()
    ) -> Callable[[str], RuleVerdict]:
        """Tool → what all the lists say of it on the server `slug`, whose own rules are `server`."""
        prefix = f"{slug}__"
        own = _reached(_compiled(RuleList("the server", server)), "")
        others = [reached for rules in self._lists if (reached := _reached(rules, prefix))]
        # Of most tools each list says what it says of all, and that is found out once.
        told_apart = _any_of([rule for rule in own if not rule.always("")])
        others_told_apart = _any_of([rule for rules in others for rule in rules if not rule.always(prefix)])
        usual = [rules[-1].vote for rules in others if rules[-1].always(prefix)]
        if own and own[-1].always(""):
            usual.insert(0, own[-1].vote)
        usually = strictest(usual) if usual else None
        known: dict[tuple[int, ...], RuleVerdict] = {}  # of the votes, by who they are

        def verdict(tool: str) -> RuleVerdict:
            name = prefix + tool
            if not told_apart(tool) and not others_told_apart(name):
                return usually or unruled(tool, read_only)
            votes = [vote for rules in others if (vote := _first(rules, name)) is not None]
            if (vote := _first(own, tool)) is not None:
                votes.insert(0, vote)
            if not votes:
                return unruled(tool, read_only)
            which = tuple(map(id, votes))
            found = known.get(which)
            if found is None:
                found = known[which] = strictest(votes)
            return found

        return verdict


def _first(rules: Sequence[_Compiled], name: str) -> RuleVerdict | None:
    for rule in rules:
        if rule.matches(name):
            return rule.vote
    return None


def _compiled(rules: RuleList) -> list[_Compiled]:
    compiled = []
    for rule in rules.rules:
        glob = pattern_of(rule)
        head, matcher = ("", _anything) if glob is None else _matcher(glob)
        compiled.append(_Compiled(glob, head, matcher, said_by(rule, rules)))
    return compiled


def _reached(rules: Sequence[_Compiled], prefix: str) -> list[_Compiled]:
    """Those that may decide something of what begins with `prefix`: none comes after one that always matches."""
    reached = []
    for rule in rules:
        if not rule.never(prefix):
            reached.append(rule)
            if rule.always(prefix):
                break
    return reached


def _any_of(rules: Sequence[_Compiled]) -> Matcher:
    """Whether one of the rules, each of which has a glob, matches a name."""
    globs = frozenset(rule.glob for rule in rules if rule.glob is not None)
    return _one_of(globs) if globs else _nothing


@lru_cache(maxsize=1024)
def _one_of(globs: frozenset[str]) -> Matcher:
    return re.compile("|".join(map(translate, sorted(globs)))).match


@lru_cache(maxsize=4096)
def _matcher(glob: str) -> tuple[str, Matcher]:
    """The literal beginning of `glob`, and whether a name matches it as `approvals.matches` says."""
    head = re.split(r"[*?\[]", glob, maxsplit=1)[0]
    match glob[len(head) :]:
        case "":
            return head, head.__eq__
        case "*":
            return head, lambda name: name.startswith(head)
    return head, re.compile(translate(glob)).match


def _anything(name: str) -> bool:
    return True


def _nothing(name: str) -> bool:
    return False
