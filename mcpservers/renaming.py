"""What a server's slug is named by: under another, rules of groups and agents would no longer hold for its tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from accounts.models import Organization
from accounts.rules import Rule
from mcpservers.approvals import STRICTNESS, Do, RuleList, RuleVerdict, pattern_of, vote_of
from mcpservers.known_tools import names_of
from mcpservers.models import MCPServer


def loosened(server: MCPServer, slug: str) -> list[str]:
    """Whose rules would ask or deny less of the tools of `server` if it were called `slug`, in words for an admin.

    One query for the known tools, and one for each kind of object that has rules.
    """
    known = names_of(server)
    return [
        f"Rules of the {row._meta.verbose_name} “{row}” are for its tools by the name “{server.slug}”, and would not "
        f"hold any more. Write them for “{slug}__…” too, and then change this."
        for row in _ruled(server)
        if _loosens(row.rules, server.slug, slug, known)
    ]


def _ruled(server: MCPServer) -> Iterator[Any]:
    """Rows of the organization with rules over `slug__tool`: this app does not know them by name."""
    relations: Any = Organization._meta.get_fields(include_hidden=True)
    for relation in relations:
        model = relation.related_model
        if relation.one_to_many and not issubclass(model, MCPServer) and _has_rules(model):
            yield from model._default_manager.filter(**{relation.field.name: server.organization_id})


def _has_rules(model: Any) -> bool:
    return any(field.name == "rules" for field in model._meta.fields)


def _loosens(rules: Sequence[Rule], old: str, new: str, known: frozenset[str]) -> bool:
    globs = [glob for rule in rules if (glob := pattern_of(rule)) is not None]
    # What a rule is for is tried even where the server's tools are not known: a pattern matches itself.
    names = known | {glob.partition("__")[2] or glob for glob in globs}
    return any(_weaker(_vote(rules, new, name), _vote(rules, old, name)) for name in names)


def _vote(rules: Sequence[Rule], slug: str, tool: str) -> RuleVerdict | None:
    return vote_of(tool, RuleList("", rules, f"{slug}__{tool}"))


def _weaker(now: RuleVerdict | None, before: RuleVerdict | None) -> bool:
    if before is None or before.do is Do.ALLOW:
        return False
    if now is None or STRICTNESS.index(now.do) < STRICTNESS.index(before.do):
        return True
    return now.do is before.do and bool(before.approvers) and now.approvers != before.approvers
