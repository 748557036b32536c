"""What a group keeps its members from: with the group it would be gone, so the group is not deleted before that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.db import models

from accounts.budgets import KEYS, ONLY
from accounts.models import Group, Organization

INSTEAD = (
    "Without the group its members would gain what these keep from them: take them away first, or keep the group "
    "and remove whoever may."
)


def denials_of(group: Group) -> list[str]:
    """Grants that deny something to the group, rules of its own that ask or deny, and budgets that name it.

    Each in words for an admin. A rule that cannot be understood denies too. One query for each kind of grant, and one.
    """
    return [*_grants(group), *_rules(group), *_budgets(group)]


def _grants(group: Group) -> Iterator[str]:
    """Of every model whose rows deny something to a group: this app does not know them by name."""
    relations: Any = Group._meta.get_fields(include_hidden=True)
    for relation in relations:
        model = relation.related_model
        if not relation.one_to_many or not any(field.name == "deny" for field in model._meta.fields):
            continue
        for grant in model._default_manager.filter(**{relation.field.name: group, "deny": True}):
            yield f"A grant of {_owner(grant)} denies “{getattr(grant, 'tool', '') or 'all of it'}” to the group."


def _owner(grant: models.Model) -> str:
    """What a grant is of: its one relation that is not whom it is for."""
    (name,) = (field.name for field in grant._meta.fields if field.is_relation and field.name not in ("group", "user"))
    owner = getattr(grant, name)
    return f"the {owner._meta.verbose_name} “{owner}”"


def _rules(group: Group) -> Iterator[str]:
    for number, rule in enumerate(group.rules if isinstance(group.rules, list) else [group.rules], start=1):
        do = rule.get("do") if isinstance(rule, Mapping) else None
        if do in ("ask", "deny"):
            yield f"Rule {number} of the group, “{rule.get('tool')}: {do}”, holds for its members."
        elif do != "allow":
            yield f"Rule {number} of the group cannot be understood, and denies its members every tool."


def _budgets(group: Group) -> Iterator[str]:
    """Those of each group, which are of no one group, are not among them."""
    stored = Organization.objects.values_list("budgets", flat=True).get(pk=group.organization_id)
    for number, budget in enumerate(stored, start=1):
        if budget["per"] == "group" and any(entry["id"] == str(group.pk) for entry in budget.get(ONLY, ())):
            amounts = ", ".join(f"{key}: {budget[key]:,}" for key in KEYS if budget.get(key) is not None)
            yield f"Budget {number} of the organization, “{amounts}”, names the group and bounds its members."
