"""Grants of a configuration file: a list that is a value of its server or agent, replaced as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from accounts.models import Membership, Organization
from conversations.configuration import schema
from conversations.configuration.plan import FieldChange
from conversations.configuration.problems import Path
from conversations.configuration.reconciling import Scope
from mcpservers.models import AbstractGrant


def described(grant: AbstractGrant) -> dict[str, Any]:
    """A stored grant as the file writes it; needs `group` and `user` loaded."""
    if grant.user is not None:
        value: dict[str, Any] = {"user": grant.user.username}
    elif grant.group is not None:
        value = {"group": grant.group.slug}
    else:
        value = {"organization": True}
    tool = getattr(grant, "tool", "")
    return value | ({"tool": tool} if tool else {}) | ({"deny": True} if grant.deny else {})


def apply_grants(scope: Scope, path: Path, owner: Any, wanted: Sequence[schema.Grant]) -> None:
    """Make the grants of `owner` (a server or an agent) those of the file.

    What no export tells stays, unless the file names the person: grants of people who are switched off, and denials
    of people who have left. They are there when the person comes back.
    """
    stored = list(owner.grants.select_related("group", "user"))
    named = {grant.user for grant in wanted}
    absent = _people(stored) - _members(scope.organization, stored) - named
    left = absent - _members(scope.organization, stored, absent=True)
    stored = [grant for grant in stored if not _stays(grant, absent, left)]
    before = [described(grant) for grant in stored]
    after = [_normal(grant) for grant in wanted]
    fields = [_fields(scope, (*path, "grants", index), grant) for index, grant in enumerate(wanted)]
    if None in fields or sorted(map(repr, before)) == sorted(map(repr, after)):
        return
    owner.grants.filter(pk__in=[grant.pk for grant in stored]).delete()
    for values in fields:
        owner.grants.create(**values or {})
    scope.reconciler.note("change", path, [FieldChange("grants", before, after)])


def of_members(organization: Organization, grants: Iterable[AbstractGrant]) -> list[AbstractGrant]:
    """`grants` without those of people who are no members (any more)."""
    stored = list(grants)
    members = _members(organization, stored)
    return [grant for grant in stored if grant.user is None or grant.user.username in members]


def _stays(grant: AbstractGrant, absent: set[str | None], left: set[str | None]) -> bool:
    """Whether a grant that the file does not tell is kept."""
    name = grant.user.username if grant.user is not None else None
    return name is not None and name in absent and (grant.deny or name not in left)


def _people(grants: Sequence[AbstractGrant]) -> set[str | None]:
    return {grant.user.username for grant in grants if grant.user is not None}


def _members(organization: Organization, grants: Sequence[AbstractGrant], *, absent: bool = False) -> set[str | None]:
    """The user names in `grants` that are of members; with `absent` of those too who are switched off.

    One query, or none. An organization that is switched off itself has its members all the same.
    """
    people = _people(grants)
    if not people:
        return people
    rows = Membership.objects.filter(organization=organization, user__username__in=people)
    rows = rows if absent else rows.filter(is_active=True, user__is_active=True)
    return set(rows.values_list("user__username", flat=True))


def _normal(grant: schema.Grant) -> dict[str, Any]:
    """As `described` gives a stored one: the same keys in the same order."""
    value = {name: getattr(grant, name) for name in ("user", "group", "organization") if getattr(grant, name)}
    tool = getattr(grant, "tool", "")
    return value | ({"tool": tool} if tool else {}) | ({"deny": True} if grant.deny else {})


def _fields(scope: Scope, path: Path, grant: schema.Grant) -> dict[str, Any] | None:
    """The columns of a new grant, or None with the problem noted."""
    values: dict[str, Any] = {"deny": grant.deny}
    if isinstance(grant, schema.ServerGrant):
        values["tool"] = grant.tool
    if grant.user is not None:
        message = f"“{grant.user}” is not a member of this organization"
        values["user"] = found = scope.find("members", grant.user, scope.members, (*path, "user"), message)
        return values if found else None
    if grant.group is not None:
        message = f"there is no group “{grant.group}” in this organization"
        values["group"] = row = scope.find("groups", grant.group, scope.groups, (*path, "group"), message)
        return values if row else None
    return values | {"whole_organization": True}
