"""Who may answer where a rule names approvers: user names and groups become people, or the reason why nobody can."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Q

from accounts.models import Group, Membership
from accounts.policy import ROLES, Action
from accounts.rules import GROUP

Names = Sequence[str]  # of users, and `group:<slug>`
ANSWERING = [role for role, actions in ROLES.items() if Action.ANSWER in actions]


@dataclass(frozen=True, slots=True)
class Approvers:
    """`people` may answer, by id; where they are none, `problem` says why, in words for a person."""

    people: frozenset[UUID]
    problem: str = ""


def resolve(organization_id: UUID, lists: Sequence[Names]) -> Approvers:
    """Who is named in every one of `lists` (each of one rule) and is an active member whose role may answer.

    One query, two where a group is named.
    """
    wanted = [frozenset(names) for names in lists]
    by_name = _people_of(organization_id, {name for names in wanted for name in names})
    people: frozenset[UUID] | None = None
    for names in wanted:
        these = frozenset().union(*(by_name.get(name, frozenset()) for name in names))
        if not these:
            return Approvers(frozenset(), f"its rule names as approvers {_words(names)}, of whom nobody can answer")
        people = these if people is None else people & these
    if not people:
        return Approvers(frozenset(), "the rules name different approvers, and nobody is among all of them")
    return Approvers(people)


def _people_of(organization_id: UUID, names: Iterable[str]) -> dict[str, frozenset[UUID]]:
    slugs = {name.removeprefix(GROUP) for name in names if name.startswith(GROUP)}
    users = {name for name in names if not name.startswith(GROUP)}
    members = Membership.objects.active().filter(organization_id=organization_id, role__in=ANSWERING)
    found: dict[str, set[UUID]] = {}
    rows = members.filter(Q(user__username__in=users) | Q(groups__slug__in=slugs))
    for user_id, username, slug in rows.values_list("user_id", "user__username", "groups__slug"):
        if username in users:
            found.setdefault(username, set()).add(user_id)
        if slug in slugs:
            found.setdefault(GROUP + slug, set()).add(user_id)
    return {name: frozenset(people) for name, people in found.items()}


def warnings(organization_id: UUID, names: Iterable[str]) -> dict[str, str]:
    """What is wrong with each name that leads to nobody, for the admin where it is written."""
    names = set(names)
    reached = _people_of(organization_id, names)
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
