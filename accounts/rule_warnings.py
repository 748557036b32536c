"""What in a list of rules cannot be meant as it stands now: told in the admin where the rule is edited."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from accounts import approvers
from accounts.rules import Rule, unreached


def warnings(organization_id: UUID, rules: Sequence[Rule], names: Collection[str]) -> list[str]:
    """Rules that decide nothing, and approvers who cannot answer. `names` are the known ones that the rules match."""
    found = [f"Rule {number}: {what}" for number, what in unreached(rules, names)]
    named = [(number, name) for number, rule in enumerate(rules, start=1) for name in _names(rule)]
    lost = approvers.warnings(organization_id, {name for _, name in named}) if named else {}
    found += [f"Rule {number}: {lost[name]}" for number, name in named if name in lost]
    for number, rule in enumerate(rules, start=1):
        if _names(rule) and not set(_names(rule)) - lost.keys():
            found.append(f"Rule {number}: nobody can approve, so its calls are denied.")
    return found


def _names(rule: Any) -> Iterable[str]:
    names = rule.get("approvers") if isinstance(rule, Mapping) else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def as_list(found: Sequence[str]) -> SafeString | str:
    """`found` for a field of the admin that cannot be edited; words where there is nothing."""
    if not found:
        return "None: each rule can match, and whoever is to approve can."
    return format_html_join("", '<p class="text-orange-700 dark:text-orange-400">{}</p>', ((text,) for text in found))
