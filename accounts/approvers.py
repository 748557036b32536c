"""Who may answer where a rule names approvers: user names and groups become people, or the reason why nobody can."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Q, Value
from django.db.models.expressions import BaseExpression

from accounts.models import Group, Membership
from accounts.policy import ROLES, Action
from accounts.rules import GROUP

Names = Sequence[str]  # of users, and `group:<slug>`
ANSWERING = [role for role, actions in ROLES.items() if Action.ANSWER in actions]


@dataclass(frozen=True, slots=True)
class Approvers:
    """`people` (their user names, by id) may answer; where they are none, `problem` says why, for a person.

    `beside` is the value of the column that was read with them.
    """

    people: Mapping[UUID, str]
    problem: str = ""
    beside: Any = None


def resolve(organization_id: UUID, lists: Sequence[Names], beside: BaseExpression | None = None) -> Approvers:
    """Who is named in every one of `lists` (each of one rule) and is an active member whose role may answer.

    One query, which reads the column `beside` too, if there is anybody to be read.
    """
    wanted = [frozenset(names) for names in lists]
    by_name, found = _people_of(organization_id, {name for names in wanted for name in names}, beside)
    people: dict[UUID, str] | None = None
    for names in wanted:
        these = {user_id: person for name in names for user_id, person in by_name.get(name, {}).items()}
        if not these:
            return Approvers({}, f"its rule names as approvers {_words(names)}, of whom nobody can answer")
        people = these if people is None else {user_id: these[user_id] for user_id in people.keys() & these.keys()}
    if not people:
        return Approvers({}, "the rules name different approvers, and nobody is among all of them")
    return Approvers(people, beside=found)


def _people_of(
    organization_id: UUID, names: Iterable[str], beside: BaseExpression | None = None
) -> tuple[dict[str, dict[UUID, str]], Any]:
    slugs = {name.removeprefix(GROUP) for name in names if name.startswith(GROUP)}
    users = {name for name in names if not name.startswith(GROUP)}
    members = Membership.objects.active().filter(organization_id=organization_id, role__in=ANSWERING)
    found: dict[str, dict[UUID, str]] = {}
    rows = members.filter(Q(user__username__in=users) | Q(groups__slug__in=slugs))
    columns = rows.annotate(beside=beside or Value(""))
    read: list[tuple[Any, ...]]
    read = list(columns.values_list("user_id", "user__username", "groups__slug", "beside"))
    for user_id, username, slug, _ in read:
        if username in users:
            found.setdefault(username, {})[user_id] = username
        if slug in slugs:
            found.setdefault(GROUP + slug, {})[user_id] = username
    return found, read[0][3] if read else None


def warnings(organization_id: UUID, names: Iterable[str]) -> dict[str, str]:
    """What is wrong with each name that leads to nobody, for the admin where it is written."""
    names = set(names)
    reached, _ = _people_of(organization_id, names)
    groups = set(Group.objects.filter(organization=organization_id).values_list("slug", flat=True))
    found = {}
    for name in sorted(names - reached.keys()):
        if not name.startswith(GROUP):
            found[name] = f"“{name}” is not (or no longer) a member who may approve."
        elif name.removeprefix(GROUP) in groups:
            found[name] = f"“{name}” has no member who may approve."
        else:
            found[name] = f"“{name}” names a group that does not exist (any more)."
    return found


def _words(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
