"""What applying or exporting a file has done, as audit entries: names of fields, and people by their ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from accounts import audit
from accounts.audit_signin import record_for_person
from accounts.models import AuditAction, AuditRecord, Organization, User
from conversations.configuration.plan import Change, Plan

_SECTIONS: Mapping[str, tuple[str, tuple[AuditAction, AuditAction, AuditAction]]] = {
    "members": ("membership", (AuditAction.MEMBER_ADDED, AuditAction.MEMBER_CHANGED, AuditAction.MEMBER_REMOVED)),
    "groups": ("group", (AuditAction.GROUP_CREATED, AuditAction.GROUP_CHANGED, AuditAction.GROUP_DELETED)),
}
_DEFINITIONS = (AuditAction.DEFINITION_CREATED, AuditAction.DEFINITION_CHANGED, AuditAction.DEFINITION_DELETED)
_KINDS = {"endpoints": "endpoint", "models": "model", "servers": "server", "agents": "agent"}
_VERBS = {"create": 0, "change": 1, "delete": 2}


def record_applied(plan: Plan) -> None:
    """An entry for each change of `plan`, and one for the whole in each organization; a few statements for all."""
    if not plan:
        return
    organizations = dict(Organization.objects.values_list("slug", "pk"))
    people = dict(User.objects.filter(username__in=_people(plan.changes)).values_list("username", "pk"))
    with audit.acting(None, audit.Via.COMMAND):
        entries: list[AuditRecord] = []
        for change in plan.changes:
            if change.path[0] == "users":
                action = AuditAction.USER_CREATED if change.action == "create" else AuditAction.USER_CHANGED
                record_for_person(action, people[str(change.path[1])], details=_details(change))
            else:
                entries += _entries(change, organizations[str(change.path[1])], people)
        touched = dict.fromkeys(change.path[1] for change in plan.changes if change.path[0] == "organizations")
        for slug in touched or [None]:
            count = sum(change.path[1] == slug for change in plan.changes) if slug else len(plan.changes)
            entries.append(
                audit.entry(
                    AuditAction.CONFIGURATION_APPLIED,
                    organizations[str(slug)] if slug else None,
                    details={"changes": count},
                )
            )
        audit.write(entries)


def record_exported(slugs: Sequence[str] | None) -> None:
    """An entry in each organization whose configuration was written out (None: all)."""
    rows = Organization.objects.all() if slugs is None else Organization.objects.filter(slug__in=slugs)
    with audit.acting(None, audit.Via.COMMAND):
        audit.write([audit.entry(AuditAction.CONFIGURATION_EXPORTED, pk) for pk in rows.values_list("pk", flat=True)])


def _people(changes: Iterable[Change]) -> set[str]:
    return {
        str(change.path[1] if change.path[0] == "users" else change.path[3])
        for change in changes
        if change.path[0] == "users" or change.path[2:3] == ("members",)
    }


def _details(change: Change) -> dict[str, Any]:
    return {"fields": [field.name for field in change.fields]}


def _entries(change: Change, organization: UUID, people: Mapping[str, UUID]) -> Iterator[AuditRecord]:
    section, verb = change.path[2:], _VERBS[change.action]
    details = _details(change)
    if not section:
        action = (AuditAction.ORGANIZATION_CREATED, AuditAction.ORGANIZATION_CHANGED)[verb]
        yield audit.entry(action, organization, target=audit.Target("organization", organization), details=details)
        if "budgets" in details["fields"]:
            yield audit.entry(AuditAction.BUDGET_CHANGED, organization, details=_values(change, "budgets"))
        return
    name = str(section[-1])
    if section[0] == "members":
        kind, verbs = _SECTIONS["members"]
        values = _values(change, "role", "is_active")
        yield audit.entry(
            verbs[verb], organization, target=audit.Target(kind), person_id=people[name], details=details | values
        )
        return
    kind, verbs = _SECTIONS.get(str(section[0]), (_KINDS.get(str(section[-2]), str(section[0])), _DEFINITIONS))
    columns: dict[str, Any] = {kind: name} if kind in ("server", "agent") else {}
    target = audit.Target(kind, name=name)
    if "grants" in details["fields"]:
        yield audit.entry(AuditAction.GRANT_CHANGED, organization, target=target, **columns)
    if details["fields"] != ["grants"] or change.action != "change":
        yield audit.entry(verbs[verb], organization, target=target, details=details, **columns)


def _values(change: Change, *names: str) -> dict[str, Any]:
    """Values of fields that are neither secret nor personal; what came from the environment is not told either."""
    shown = {
        field.name: [field.before, field.after] for field in change.fields if field.name in names and not field.secret
    }
    return {"values": shown} if shown else {}
