"""What is done in the admin, as audit entries: names of fields, never what is in them, but for a few that are harmless.

`TenantAdmin` is built on `AuditedAdmin`, so whatever is registered is recorded. An action or a page of its own that
changes something calls `audit.record` itself; who acts is known there (the site's `admin_view` says so).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

from django import forms
from django.db import models, transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from unfold.admin import ModelAdmin

from accounts import audit
from accounts.models import AuditAction, AuditRecord

Verbs = tuple[AuditAction, AuditAction, AuditAction]  # created, changed, deleted

_DEFINITION: Verbs = (AuditAction.DEFINITION_CREATED, AuditAction.DEFINITION_CHANGED, AuditAction.DEFINITION_DELETED)
_GRANT: Verbs = (AuditAction.GRANT_ADDED, AuditAction.GRANT_CHANGED, AuditAction.GRANT_REMOVED)
_VERBS: dict[str, Verbs] = {
    "organization": (
        AuditAction.ORGANIZATION_CREATED,
        AuditAction.ORGANIZATION_CHANGED,
        AuditAction.ORGANIZATION_DELETED,
    ),
    "membership": (AuditAction.MEMBER_ADDED, AuditAction.MEMBER_CHANGED, AuditAction.MEMBER_REMOVED),
    "group": (AuditAction.GROUP_CREATED, AuditAction.GROUP_CHANGED, AuditAction.GROUP_DELETED),
    "user": (AuditAction.USER_CREATED, AuditAction.USER_CHANGED, AuditAction.USER_DELETED),
    "apikey": (AuditAction.KEY_CREATED, AuditAction.KEY_CHANGED, AuditAction.KEY_REVOKED),
}
_KINDS = {
    "mcpserver": "server",
    "ownserver": "server",
    "modelendpoint": "endpoint",
    "modelprofile": "model",
    "apikey": "key",
}
# Fields whose values are neither secret nor personal, and tell what a name alone would not.
SHOWN = (
    *("role", "is_active", "is_superuser", "enabled", "barred", "deny", "trust"),
    *("audit_days", "audit_bodies", "budgets", "own_servers", "user_servers"),
)


def verbs_of(model: type[models.Model]) -> Verbs:
    """The entries of what is created, changed and deleted of a model."""
    name = str(model._meta.model_name)
    return _GRANT if name.endswith("grant") else _VERBS.get(name, _DEFINITION)


def target_of(row: models.Model) -> audit.Target:
    """A row by its kind, id and slug; what has no slug is told by its id alone, an API key by its prefix."""
    name = str(row._meta.model_name)
    slug = getattr(row, "slug", "") or getattr(row, "prefix", "")
    return audit.Target(_KINDS.get(name, name), row.pk, slug)


def person_of(row: models.Model) -> UUID | None:
    """The person whom a row is about."""
    if row._meta.label == "accounts.User":
        return UUID(str(row.pk))
    whose = "owner_id" if row._meta.label == "mcpservers.OwnServer" else "user_id"
    found: UUID | None = getattr(row, whose, None)
    return found


def changes_of(form: forms.BaseForm) -> dict[str, Any]:
    """`{fields, values}` of what was changed in a form: values of harmless fields, ids of rows that were chosen."""
    details: dict[str, Any] = {"fields": list(form.changed_data)}
    values = {name: value for name in form.changed_data if (value := _value(form, name)) is not None}
    return details | ({"values": values} if values else {})


def _value(form: forms.BaseForm, name: str) -> Any:
    field, after = form.fields[name], form.cleaned_data.get(name)
    before = form.get_initial_for_field(field, name)
    if isinstance(field, forms.ModelMultipleChoiceField):
        old, new = (
            {str(getattr(row, "user_id", None) or getattr(row, "pk", row)) for row in rows or ()}
            for rows in (before, after)
        )
        return {"added": sorted(new - old), "removed": sorted(old - new)}
    return [before, after] if name in SHOWN else None


class AuditedAdmin(ModelAdmin):  # type: ignore[misc]  # unfold has no type stubs
    """A model's admin that records what is added, changed and deleted through it, in the same transaction."""

    def organizations_of(self, obj: models.Model) -> frozenset[UUID]:
        raise NotImplementedError

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> Any:
        request._audited = (form, list(formsets or ()))  # type: ignore[attr-defined]  # for the entry that follows
        return super().construct_change_message(request, form, formsets, add)

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        self._record(request, obj, 0)
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        self._record(request, obj, 1)
        return super().log_change(request, obj, message)

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        audit.write([entry for obj in queryset for entry in self._entries(obj, verbs_of(type(obj))[2], {})])
        return super().log_deletions(request, queryset)

    def response_action(self, request: HttpRequest, queryset: Any) -> HttpResponseBase | None:
        with transaction.atomic():  # an action and its entry are kept or lost alike
            answer: HttpResponseBase | None = super().response_action(request, queryset)
            return answer

    def _record(self, request: HttpRequest, obj: models.Model, verb: int) -> None:
        form, formsets = getattr(request, "_audited", (None, []))
        details = changes_of(form) if form is not None else {}
        entries = list(self._entries(obj, verbs_of(type(obj))[verb], details))
        if "budgets" in details.get("fields", ()):
            entries += self._entries(obj, AuditAction.BUDGET_CHANGED, {"values": details["values"]})
        inlines = [entry for formset in formsets for entry in self._inline_entries(obj, formset)]
        if verb == 1 and not details.get("fields") and inlines:
            entries = []  # only what belongs to it was changed
        audit.write([*entries, *inlines])

    def _entries(self, obj: models.Model, action: AuditAction, details: dict[str, Any]) -> Iterator[AuditRecord]:
        organizations: Iterable[UUID | None] = self.organizations_of(obj) or [None]
        for organization in organizations:
            yield audit.entry(
                action, organization, target=target_of(obj), person_id=person_of(obj), details=details, **_columns(obj)
            )

    def _inline_entries(self, obj: models.Model, formset: Any) -> Iterator[AuditRecord]:
        forms_of = {form.instance.pk: form for form in formset.forms}
        groups: tuple[Iterable[Any], ...] = (
            formset.new_objects,
            [row for row, _ in formset.changed_objects],
            formset.deleted_objects,
        )
        for verb, rows in enumerate(groups):
            for row in rows:
                form = forms_of.get(row.pk)
                details = changes_of(form) if form is not None and verb < 2 else {}
                yield from self._inline_entry(obj, row, verbs_of(type(row))[verb], details)

    def _inline_entry(
        self, obj: models.Model, row: models.Model, action: AuditAction, details: dict[str, Any]
    ) -> Iterator[AuditRecord]:
        """An entry of the row's own; a grant tells to whom it is, another inline's row what it belongs to."""
        details = details | {"of": {"kind": target_of(obj).kind, "id": str(obj.pk), "name": target_of(obj).name}}
        for organization in self.organizations_of(obj) or [None]:
            yield audit.entry(
                action,
                organization,
                target=target_of(row),
                person_id=person_of(row),
                details=details | grantee(row),
                **_columns(obj),
            )


def grantee(row: models.Model) -> dict[str, Any]:
    """Whom a grant is for, and what of; {} for another row."""
    if not hasattr(row, "whole_organization"):
        return {}
    whom = {"group": row.group_id, "user": row.user_id}  # type: ignore[attr-defined]  # of an AbstractGrant
    told: dict[str, Any] = {kind: str(id) for kind, id in whom.items() if id is not None} or {"organization": True}
    tool = getattr(row, "tool", "")
    return {"for": told, "deny": bool(getattr(row, "deny", False))} | ({"tool": tool} if tool else {})


def _columns(row: models.Model) -> dict[str, Any]:
    """An entry about a server or an agent is found by the filters of tool calls too."""
    match target_of(row).kind:
        case "server":
            return {"server_id": row.pk, "server": getattr(row, "slug", "")}
        case "agent":
            return {"agent_id": row.pk, "agent": getattr(row, "slug", "")}
    return {}
