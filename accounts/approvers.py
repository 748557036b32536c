"""Who may answer where a rule names approvers: people and groups become members, or the reason why nobody can.

People write user names. What is stored is `user:<id>`, so that nobody who takes somebody's name takes the say with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Q, Value
from django.db.models.expressions import BaseExpression

from accounts.models import Group, Membership, User
from accounts.policy import ROLES, Action
from accounts.rules import GROUP, NOBODY, USER

Names = Sequence[str]  # `user:<id>`, `group:<slug>`, `nobody:<user name>`
ANSWERING = [role for role, actions in ROLES.items() if Action.ANSWER in actions]
LEFT = "somebody who has left"


@dataclass(frozen=True, slots=True)
class Approvers:
    """`people` (their user names, by id) may answer; where they are none, `problem` says why, for a person.

    `beside` is the value of the column that was read with them.
    """

    people: Mapping[UUID, str]
    problem: str = ""
    beside: Any = None


@dataclass(frozen=True, slots=True)
class _Found:
    by_name: Mapping[str, Mapping[UUID, str]]  # who may answer, by how a rule names them
    words: Mapping[str, str]  # user names of members, whether they may answer or not
    beside: Any = None


# --- As rules are stored, and as people write them --------------------------------------------------------------------


def bound(organization_id: UUID, rules: Any) -> Any:
    """`rules` with the user names of members of the organization made ids, and others marked as nobody's for good.

    One query where there are user names.
    """
    names = {name for name in _approvers(rules) if not name.startswith((USER, GROUP, NOBODY))}
    if not names:
        return rules
    members = Membership.objects.filter(organization_id=organization_id, user__username__in=names)
    ids = {name: f"{USER}{id}" for id, name in members.values_list("user_id", "user__username")}
    return _renamed(rules, lambda name: ids.get(name, NOBODY + name) if name in names else name)


def named(rules: Any) -> Any:
    """Stored `rules` with user names, as they are now; ids of deleted accounts stay. One query, or none."""
    ids = {id for name in _approvers(rules) if (id := _id(name)) is not None}
    rows = User.objects.filter(pk__in=ids).values_list("pk", "username") if ids else ()
    names = {f"{USER}{id}": name for id, name in rows}
    return _renamed(rules, lambda name: names.get(name, name.removeprefix(NOBODY)))


def _approvers(rules: Any) -> Iterator[str]:
    for rule in rules if isinstance(rules, list) else ():
        names = rule.get("approvers") if isinstance(rule, dict) else None
        yield from (name for name in names or () if isinstance(name, str)) if isinstance(names, list) else ()


def _renamed(rules: Any, rename: Callable[[str], str]) -> Any:
    if not isinstance(rules, list):
        return rules
    return [
        {**rule, "approvers": [rename(name) if isinstance(name, str) else name for name in rule["approvers"]]}
        if isinstance(rule, dict) and isinstance(rule.get("approvers"), list)
        else rule
        for rule in rules
    ]


def _id(name: str) -> UUID | None:
    try:
        return UUID(name.removeprefix(USER)) if name.startswith(USER) else None
    except ValueError:
        return None


# --- Who they are -----------------------------------------------------------------------------------------------------


def resolve(organization_id: UUID, lists: Sequence[Names], beside: BaseExpression | None = None) -> Approvers:
    """Who is named in every one of `lists` (each of one rule) and is an active member whose role may answer.

    One query, which reads the column `beside` too, if there is anybody to be read.
    """
    wanted = [frozenset(names) for names in lists]
    found = _people_of(organization_id, {name for names in wanted for name in names}, beside)
    people: dict[UUID, str] | None = None
    for names in wanted:
        these = {user_id: person for name in names for user_id, person in found.by_name.get(name, {}).items()}
        if not these:
            return Approvers({}, f"its rule names as approvers {_words(names, found.words)}, of whom nobody can answer")
        people = these if people is None else {user_id: these[user_id] for user_id in people.keys() & these.keys()}
    if not people:
        return Approvers({}, "the rules name different approvers, and nobody is among all of them")
    return Approvers(people, beside=found.beside)


def _people_of(organization_id: UUID, names: Iterable[str], beside: BaseExpression | None = None) -> _Found:
    names = set(names)
    ids = {id for name in names if (id := _id(name)) is not None}
    slugs = {name.removeprefix(GROUP) for name in names if name.startswith(GROUP)}
    members = Membership.objects.filter(organization_id=organization_id, organization__is_active=True)
    rows = members.filter(Q(user_id__in=ids) | Q(groups__slug__in=slugs)).annotate(beside=beside or Value(""))
    read: list[tuple[Any, ...]] = list(
        rows.values_list("user_id", "user__username", "groups__slug", "role", "is_active", "user__is_active", "beside")
    )
    found: dict[str, dict[UUID, str]] = {}
    words: dict[str, str] = {}
    for user_id, username, slug, role, is_member, is_active, _ in read:
        words[f"{USER}{user_id}"] = username
        if not (is_member and is_active and role in ANSWERING):
            continue
        for name in (f"{USER}{user_id}", f"{GROUP}{slug}"):
            if name in names:
                found.setdefault(name, {})[user_id] = username
    return _Found(found, words, read[0][-1] if read else None)


def warnings(organization_id: UUID, names: Iterable[str]) -> dict[str, str]:
    """What is wrong with each name of a stored rule that leads to nobody, for the admin where it is written."""
    names = set(names)
    found = _people_of(organization_id, names)
    groups = set(Group.objects.filter(organization=organization_id).values_list("slug", flat=True))
    told = {}
    for name in sorted(names - found.by_name.keys()):
        if name.startswith(USER):
            told[name] = f"“{found.words.get(name, LEFT)}” is no longer a member who may approve."
        elif not name.startswith(GROUP):
            shown = name.removeprefix(NOBODY)
            told[name] = f"“{shown}” was no member when this was saved, and has no say: save it again to name one."
        elif name.removeprefix(GROUP) in groups:
            told[name] = f"“{name}” has no member who may approve."
        else:
            told[name] = f"“{name}” names a group that does not exist (any more)."
    return told


def _words(names: Iterable[str], known: Mapping[str, str]) -> str:
    return ", ".join(
        sorted({known.get(name, LEFT) if name.startswith(USER) else name.removeprefix(NOBODY) for name in names})
    )
