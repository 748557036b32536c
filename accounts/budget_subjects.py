"""Whom a budget names: by name where people read and write it, by id where it is stored, so that nobody inherits it.

A stored budget has `only: [{id, name}]`, of people `[{id}]`: what is stored and audited knows no names of theirs. Who
is renamed keeps the budget; of who is gone it stays, and bounds nobody, until somebody changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from accounts.budgets import ONLY, Per, Violation, violations
from accounts.models import Group, Membership, User

Budget = Mapping[str, Any]
Named = Iterable[tuple[UUID, str]]

_GONE = " (gone "  # in what stands for who is gone: no name has a space
_WHAT = {"group": "group", "user": "member", "agent": "agent"}


def _groups(organization_id: UUID) -> Named:
    return Group.objects.filter(organization=organization_id).values_list("pk", "slug")


def _users(organization_id: UUID) -> Named:
    members = Membership.objects.filter(organization=organization_id, is_active=True, user__is_active=True)
    return members.values_list("user_id", "user__username")


# Who can be named, by whose: (id, name) pairs of an organization. Set by who knows agents.
known: dict[Per, Callable[[UUID], Named]] = {"group": _groups, "user": _users, "agent": lambda organization_id: ()}


def resolved(
    organization_id: UUID, budgets: Any, *, kept: Sequence[Budget] = (), leaving: Iterable[UUID] = ()
) -> tuple[list[dict[str, Any]], list[Violation]]:
    """Budgets as they are entered → as they are stored, with all that is wrong with them, as (path, words) pairs.

    `kept` are the stored ones, whose gone subjects may be entered again with their mark; `leaving` are the ids of who
    cannot be named any more. One query for each kind of subject that is named.
    """
    found = violations(budgets)
    if found:
        return [], found
    left, marked = frozenset(leaving), _marked(organization_id, kept)
    stored = []
    ids: dict[Per, dict[str, UUID]] = {}
    for number, budget in enumerate(budgets):
        stored.append(dict(budget))
        if ONLY not in budget:
            continue
        per: Per = budget["per"]
        if per not in ids:
            ids[per] = {name: id for id, name in known[per](organization_id) if id not in left}
        stored[-1][ONLY] = []
        for position, name in enumerate(budget[ONLY]):
            entry = marked.get((per, name)) or _entry(per, ids[per].get(name), name)
            if entry is None:
                found.append(((number, ONLY, position), f"there is no {_WHAT[per]} “{name}” in this organization"))
            else:
                stored[-1][ONLY].append(entry)
    return stored, found


def _entry(per: Per, id: UUID | None, name: str) -> dict[str, str] | None:
    if id is None:
        return None
    return {"id": str(id)} if per == "user" else {"id": str(id), "name": name}


def _marked(organization_id: UUID, budgets: Sequence[Budget]) -> dict[tuple[Per, str], dict[str, str]]:
    """The entries of who is gone, by what they are shown as."""
    return {
        (budget["per"], name): entry
        for budget, names in zip(budgets, _names(organization_id, budgets), strict=True)
        for entry, name in zip(budget.get(ONLY, ()), names, strict=True)
        if is_gone(name)
    }


def shown(organization_id: UUID, budgets: Sequence[Budget]) -> list[dict[str, Any]]:
    """Stored budgets as people read them: names as they are now, with a mark of who is gone."""
    return [
        {**budget, ONLY: names} if ONLY in budget else dict(budget)
        for budget, names in zip(budgets, _names(organization_id, budgets), strict=True)
    ]


def present(organization_id: UUID, budgets: Sequence[Budget]) -> list[dict[str, Any]]:
    """As `shown`, without who is gone, and without budgets that bound nobody else: as a file can tell them."""
    told = []
    for budget in shown(organization_id, budgets):
        if ONLY in budget:
            budget[ONLY] = [name for name in budget[ONLY] if not is_gone(name)]
        if budget.get(ONLY, True):
            told.append(budget)
    return told


def switched_off(organization_id: UUID, budgets: Sequence[Budget]) -> list[dict[str, Any]]:
    """Of stored budgets what bounds members who are switched off: no file tells of them, and they may come back."""
    members = Membership.objects.filter(organization=organization_id)
    off = {str(id) for id in members.exclude(is_active=True, user__is_active=True).values_list("user_id", flat=True)}
    own = ((budget, [entry for entry in budget.get(ONLY, ()) if entry["id"] in off]) for budget in budgets)
    return [{**budget, ONLY: entries} for budget, entries in own if entries]


def is_gone(name: str) -> bool:
    """Whether a name that `shown` has given is of somebody who is not there any more."""
    return _GONE in name


def _names(organization_id: UUID, budgets: Sequence[Budget]) -> list[list[str]]:
    """Whom each budget names, in its order; no names where it names nobody."""
    now: dict[Per, dict[str, str]] = {}
    for per in {budget["per"] for budget in budgets if ONLY in budget}:
        now[per] = {str(id): name for id, name in known[per](organization_id)}
    people = [entry["id"] for budget in budgets if budget["per"] == "user" for entry in budget.get(ONLY, ())]
    left = set(people) - now.get("user", {}).keys()
    before = {str(id): name for id, name in _accounts(left)} if left else {}
    return [
        [now[budget["per"]].get(entry["id"]) or _gone_name(entry, before) for entry in budget.get(ONLY, ())]
        for budget in budgets
    ]


def _accounts(ids: Iterable[str]) -> Named:
    return User.objects.filter(pk__in=list(ids)).values_list("pk", "username")


def _gone_name(entry: Mapping[str, str], people: Mapping[str, str]) -> str:
    name = entry.get("name") or people.get(entry["id"]) or "account"
    return f"{name}{_GONE}{entry['id'][:8]})"
