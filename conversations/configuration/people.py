"""Users, memberships and groups of a configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.hashers import check_password, make_password
from django.db.models import Q

from accounts import denials
from accounts.models import Group, Membership, Role, User
from conversations.configuration import schema
from conversations.configuration.plan import FieldChange
from conversations.configuration.problems import Path
from conversations.configuration.reconciling import Reconciler, Scope, Surplus, wanted_values


def apply_user(reconciler: Reconciler, username: str, section: schema.User) -> None:
    """Make the user, or change what the section states; a user is never deleted, and a password only set."""
    row = User.objects.filter(username=username).first()
    wanted: dict[str, Any] = {}
    if section.email is not None:
        wanted["email"] = section.email
    if section.superuser is not None:
        wanted["is_superuser"] = section.superuser
    # Not `row.check_password`: it writes when the hash is of an older kind.
    if section.password is not None and not (row and check_password(section.password, row.password)):
        wanted["password"] = make_password(section.password)
    new = User(username=username, password=make_password(None))
    reconciler.put(("users", username), row, new, wanted)


def apply_members(scope: Scope, section: Mapping[str, Role]) -> Surplus:
    memberships = Membership.objects.filter(organization=scope.organization).select_related("user", "organization")
    stored = {membership.user.username: membership for membership in memberships}
    users = {user.username: user for user in User.objects.filter(username__in=section)}
    scope.members.update((name, membership.user) for name, membership in stored.items())
    path = (*scope.path, "members")
    for name, role in section.items():
        user = users.get(name)
        if user is None:
            scope.broken.add(("members", name))
            if ("users", name) not in scope.reconciler.broken:
                scope.reconciler.problem((*path, name), "there is no user of this name, in the file or stored")
            continue
        new = Membership(organization=scope.organization, user=user)
        scope.reconciler.put((*path, name), stored.get(name), new, {"role": str(role), "is_active": True})
        scope.members[name] = user
    # Who is switched off is not told by an export, and stays so.
    on = {name: row for name, row in stored.items() if row.is_active and row.user.is_active}
    return [((*path, name), row) for name, row in on.items() if name not in section]


def apply_groups(scope: Scope, section: Mapping[str, schema.Group]) -> Surplus:
    stored = {group.slug: group for group in Group.objects.filter(organization=scope.organization)}
    scope.groups.update(stored)
    path = (*scope.path, "groups")
    for slug, group in section.items():
        place = (*path, slug)
        new = Group(organization=scope.organization, slug=slug)
        row = scope.reconciler.put(place, stored.get(slug), new, _wanted(group))
        if row is None:
            scope.broken.add(("groups", slug))
            continue
        scope.groups[slug] = row
        _apply_group_members(scope, row, group.members)
    return [((*path, slug), row) for slug, row in stored.items() if slug not in section]


def may_go(scope: Scope, path: Path, group: Group) -> bool:
    """Whether `group` can be deleted; False, with the problem noted, while it keeps something from its members."""
    kept = denials.denials_of(group)
    if kept:
        scope.reconciler.problem(path, f"“{group.slug}” is not deleted. {' '.join(kept)} {denials.INSTEAD}")
    return not kept


def _wanted(group: schema.Group) -> dict[str, Any]:
    return {"name": group.name or ""} | wanted_values(Group, group, ("rules",))


def _apply_group_members(scope: Scope, group: Group, wanted: list[str]) -> None:
    path = (*scope.path, "groups", group.slug)
    for index, name in enumerate(wanted):
        scope.find("members", name, scope.members, (*path, index), f"“{name}” is not a member of this organization")
    stored = {row.user.username: row for row in group.memberships.select_related("user")}
    kept = [row.pk for name, row in stored.items() if not (row.is_active and row.user.is_active) and name not in wanted]
    before = sorted(name for name, row in stored.items() if row.pk not in kept)
    after = sorted(set(wanted))
    if before == after:
        return
    members = Membership.objects.filter(organization=scope.organization)
    group.memberships.set(members.filter(Q(user__username__in=after) | Q(pk__in=kept)))
    scope.reconciler.note("change", path, [FieldChange("members", before, after)])
