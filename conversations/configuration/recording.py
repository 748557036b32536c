"""What applying or exporting a file has done, as audit entries: names of fields, and people by their ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from accounts import audit
from accounts.admin_audit import SHOWN
from accounts.audit_signin import record_for_person
from accounts.models import AuditAction, AuditRecord, Group, Organization, User
from agents.models import Agent, ModelEndpoint, ModelProfile
from conversations.configuration.plan import Change, Plan
from mcpservers.models import MCPServer

_SECTIONS: Mapping[str, tuple[str, tuple[AuditAction, AuditAction, AuditAction]]] = {
    "members": ("membership", (AuditAction.MEMBER_ADDED, AuditAction.MEMBER_CHANGED, AuditAction.MEMBER_REMOVED)),
    "groups": ("group", (AuditAction.GROUP_CREATED, AuditAction.GROUP_CHANGED, AuditAction.GROUP_DELETED)),
}
_DEFINITIONS = (AuditAction.DEFINITION_CREATED, AuditAction.DEFINITION_CHANGED, AuditAction.DEFINITION_DELETED)
_KINDS = {"endpoints": "endpoint", "models": "model", "servers": "server", "agents": "agent"}
_VERBS = {"create": 0, "change": 1, "delete": 2}
_MODELS: Mapping[str, Any] = {
    "group": Group,
    "endpoint": ModelEndpoint,
    "model": ModelProfile,
    "server": MCPServer,
    "agent": Agent,
}
_TOLD = frozenset({*SHOWN, "superuser"})  # as the admin tells them


@dataclass(frozen=True, slots=True)
class _Rows:
    """The ids of what the plan names, as they are now: of what was deleted there is none."""

    organizations: Mapping[str, UUID]
    people: Mapping[str, UUID]
    others: Mapping[tuple[str, UUID, str], UUID]  # kind, organization, slug


def record_applied(plan: Plan) -> None:
    """An entry for each change of `plan`, and one for the whole in each organization; a few statements for all."""
    if not plan:
        return
    rows = _rows(plan.changes)
    with audit.acting(None, audit.Via.COMMAND):
        entries: list[AuditRecord] = []
        for change in plan.changes:
            if change.path[0] == "users":
                action = AuditAction.USER_CREATED if change.action == "create" else AuditAction.USER_CHANGED
                record_for_person(action, rows.people[str(change.path[1])], details=_details(change))
            else:
                entries += _entries(change, rows.organizations[str(change.path[1])], rows)
        touched = dict.fromkeys(change.path[1] for change in plan.changes if change.path[0] == "organizations")
        for slug in touched or [None]:
            count = sum(change.path[1] == slug for change in plan.changes) if slug else len(plan.changes)
            entries.append(
                audit.entry(
                    AuditAction.CONFIGURATION_APPLIED,
                    rows.organizations[str(slug)] if slug else None,
                    details={"changes": count},
                )
            )
        audit.write(entries)


def _rows(changes: Sequence[Change]) -> _Rows:
    organizations = dict(Organization.objects.values_list("slug", "pk"))
    people = dict(User.objects.filter(username__in=_people(changes)).values_list("username", "pk"))
    slugs = {str(change.path[-1]) for change in changes}
    slugs |= {grant["group"] for change in changes for _verb, grant in _grants(change) if "group" in grant}
    others: dict[tuple[str, UUID, str], UUID] = {}
    for kind, model in _MODELS.items():
        found = model._default_manager.filter(organization__in=organizations.values(), slug__in=slugs)
        found = found.filter(owner=None) if model is MCPServer else found
        others |= {(kind, of, slug): pk for of, slug, pk in found.values_list("organization_id", "slug", "pk")}
    return _Rows(organizations, people, others)


def record_exported(slugs: Sequence[str] | None) -> None:
    """An entry in each organization whose configuration was written out (None: all)."""
    rows = Organization.objects.all() if slugs is None else Organization.objects.filter(slug__in=slugs)
    with audit.acting(None, audit.Via.COMMAND):
        audit.write([audit.entry(AuditAction.CONFIGURATION_EXPORTED, pk) for pk in rows.values_list("pk", flat=True)])


def _people(changes: Sequence[Change]) -> set[str]:
    granted = {grant["user"] for change in changes for _verb, grant in _grants(change) if "user" in grant}
    return granted | {
        str(change.path[1] if change.path[0] == "users" else change.path[3])
        for change in changes
        if change.path[0] == "users" or change.path[2:3] == ("members",)
    }


def _details(change: Change) -> dict[str, Any]:
    """`{fields, values}`, as the admin records them."""
    return {"fields": [field.name for field in change.fields]} | _values(change, *_TOLD)


def _entries(change: Change, organization: UUID, rows: _Rows) -> Iterator[AuditRecord]:
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
        target, person = audit.Target(kind), rows.people[name]
        yield audit.entry(verbs[verb], organization, target=target, person_id=person, details=details)
        return
    kind, verbs = _SECTIONS.get(str(section[0]), (_KINDS.get(str(section[-2]), str(section[0])), _DEFINITIONS))
    target = audit.Target(kind, rows.others.get((kind, organization, name)), name)
    columns: dict[str, Any] = {kind: name, f"{kind}_id": target.id} if kind in ("server", "agent") else {}
    if details["fields"] != ["grants"] or change.action != "change":
        yield audit.entry(verbs[verb], organization, target=target, details=details, **columns)
    for action, grant in _grants(change):
        whom = _whom(grant, organization, rows)
        told = {"for": whom, "deny": bool(grant.get("deny")), "of": {"kind": kind, "id": str(target.id), "name": name}}
        told |= {"tool": grant["tool"]} if grant.get("tool") else {}
        granted = rows.people.get(grant.get("user", ""))
        yield audit.entry(
            action, organization, target=audit.Target(f"{kind}grant"), person_id=granted, details=told, **columns
        )


def _grants(change: Change) -> Iterator[tuple[AuditAction, Mapping[str, Any]]]:
    """Each grant that is new, and each that there was, as the file writes them."""
    for field in change.fields:
        if field.name == "grants":
            before, after = list(field.before or ()), list(field.after or ())
            yield from ((AuditAction.GRANT_ADDED, grant) for grant in after if grant not in before)
            yield from ((AuditAction.GRANT_REMOVED, grant) for grant in before if grant not in after)


def _whom(grant: Mapping[str, Any], organization: UUID, rows: _Rows) -> dict[str, Any]:
    """Whom a grant is for, by id."""
    if "user" in grant:
        return {"user": str(rows.people.get(grant["user"], ""))}
    if "group" in grant:
        return {"group": str(rows.others.get(("group", organization, grant["group"]), ""))}
    return {"organization": True}


def _values(change: Change, *names: str) -> dict[str, Any]:
    """Values of fields that are neither secret nor personal; what came from the environment is not told either."""
    shown = {
        field.name: [field.before, field.after] for field in change.fields if field.name in names and not field.secret
    }
    return {"values": shown} if shown else {}
