"""The admin's choke point: who may enter, and that nobody sees or chooses what another organization has.

Every registered `ModelAdmin` is a `TenantAdmin`, every inline a `TenantInline` (the site refuses others). Entry is by
membership: owners and admins manage their organizations, auditors look, superusers do both everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin
from django.contrib.admin import RelatedFieldListFilter
from django.contrib.admin.utils import NestedObjects
from django.core.exceptions import ValidationError
from django.db import models, router
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _
from unfold.admin import StackedInline, TabularInline
from unfold.forms import PaginationInlineFormSet
from unfold.widgets import UnfoldAdminTextareaWidget

from accounts.admin_audit import AuditedAdmin
from accounts.admin_pages import AdminPages
from accounts.models import Membership, Organization, Role, User
from accounts.policy import ROLES, Action

Organizations = frozenset[UUID]


@dataclass(frozen=True, slots=True)
class Reach:
    """What one person may do in the admin: in which organizations manage, look, name owners. Superusers: in all."""

    superuser: bool = False
    managed: Organizations = frozenset()
    visible: Organizations = frozenset()
    owned: Organizations = frozenset()
    audited: Organizations = frozenset()  # whose audit they read
    accounted: Organizations = frozenset()  # whose usage they read

    def manages(self, organization: UUID | None = None) -> bool:
        """Whether the person manages `organization`; with None: any at all."""
        return self.superuser or (bool(self.managed) if organization is None else organization in self.managed)

    def sees(self, organization: UUID | None = None) -> bool:
        return self.superuser or (bool(self.visible) if organization is None else organization in self.visible)

    def audits(self, organization: UUID | None = None) -> bool:
        return self.superuser or (bool(self.audited) if organization is None else organization in self.audited)

    def owns(self, organization: UUID) -> bool:
        return self.superuser or organization in self.owned

    def choices(self) -> Organizations | None:
        """The organizations whose objects may be chosen in a form; None is every one."""
        return None if self.superuser else self.managed


def reach_of(request: HttpRequest) -> Reach:
    """The reach of the request's user, from fresh rows, once per request; nobody's is empty."""
    found = getattr(request, "_admin_reach", None)
    if found is None:
        found = _read_reach(request.user)
        request._admin_reach = found  # type: ignore[attr-defined]  # kept with the request that it holds for
    return found


def _read_reach(user: Any) -> Reach:
    if not isinstance(user, User) or not user.is_active:
        return Reach()
    if user.is_superuser:
        return Reach(superuser=True)
    roles = list(Membership.objects.active().filter(user=user).values_list("organization_id", "role"))

    def where(*actions: Action) -> Organizations:
        return frozenset(organization for organization, role in roles if ROLES[Role(role)] & set(actions))

    return Reach(
        managed=where(Action.MANAGE),
        visible=where(Action.MANAGE, Action.READ_AUDIT),
        owned=where(Action.NAME_OWNERS),
        audited=where(Action.READ_AUDIT),
        accounted=where(Action.READ_USAGE),
    )


# --- Rows of organizations -------------------------------------------------------------------------------------------


def within(queryset: Any, organizations: Organizations | None) -> Any:
    """The rows of `queryset` (organizations, users, or rows with an `organization`) that belong to these.

    None is no bound. Raises `TypeError` for a model that says nothing about its organization, rather than show all.
    """
    if organizations is None:
        return queryset
    model = queryset.model
    if model is Organization:
        return queryset.filter(pk__in=organizations)
    if model is User:
        members = Membership.objects.filter(organization__in=organizations, is_active=True).values("user")
        return queryset.filter(pk__in=members)
    if any(field.name == "organization" for field in model._meta.get_fields()):
        return queryset.filter(organization__in=organizations)
    raise TypeError(f"{model.__name__} has no organization to be limited by.")


def organization_id_of(row: models.Model | None) -> UUID | None:
    if isinstance(row, Organization):
        return row.pk
    found: UUID | None = getattr(row, "organization_id", None)
    return found


def _relations(form: forms.BaseForm) -> Iterator[tuple[str, forms.ModelChoiceField[Any]]]:
    """The fields that choose rows; not an inline's hidden key, by which a row names itself."""
    own_key = form._meta.model._meta.pk.name if isinstance(form, forms.BaseModelForm) else ""
    for name, field in form.fields.items():
        if isinstance(field, forms.ModelChoiceField) and name not in ("organization", own_key):
            yield name, field


def limit_choices(form: forms.BaseForm, organization: UUID) -> None:
    """Let the relations of `form` be chosen among one organization's rows."""
    for _name, field in _relations(form):
        field.queryset = within(field.queryset, frozenset([organization]))
        field.label_from_instance = str  # type: ignore[method-assign,assignment]  # as Django documents it


def name_organizations(form: forms.BaseForm) -> None:
    """Where rows of several organizations can be chosen, say whose each is."""
    for _name, field in _relations(form):
        field.label_from_instance = _label  # type: ignore[method-assign,assignment]  # as Django documents it


def _label(row: Any) -> str:
    return f"{row.organization}: {row}" if hasattr(row, "organization") else str(row)


class TenantForm(forms.ModelForm[Any]):
    """A form whose relations stay within the organization of its object, whoever fills it in."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in self._meta.exclude or ():  # a declared field is not dropped by Django when it is read-only
            self.fields.pop(name, None)
        organization = organization_id_of(self.instance)
        if organization is not None:
            limit_choices(self, organization)
        else:
            name_organizations(self)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        chosen = cleaned.get("organization")
        organization = chosen.pk if chosen else organization_id_of(self.instance)
        if organization is not None:
            for name, _field in _relations(self):
                self._require_same(name, cleaned.get(name), organization)
        return cleaned

    def _require_same(self, name: str, value: Any, organization: UUID) -> None:
        rows = value if isinstance(value, models.QuerySet) else [] if value is None else [value]
        keys = [row.pk for row in rows]
        if keys and within(type(rows[0])._default_manager.filter(pk__in=keys), frozenset([organization])).count() < len(
            keys
        ):
            self.add_error(name, ValidationError(_("Choose something of the same organization."), code="organization"))


class TenantFormSet(PaginationInlineFormSet):  # type: ignore[misc]  # unfold has no type stubs
    """An inline's rows, which choose within the organization of the object that they belong to."""

    def add_fields(self, form: forms.BaseForm, index: int | None) -> None:
        super().add_fields(form, index)
        organization = organization_id_of(self.instance)
        if organization is not None:
            limit_choices(form, organization)
        else:
            name_organizations(form)

    def save_new(self, form: Any, commit: bool = True) -> Any:
        if hasattr(form.instance, "organization_id"):
            form.instance.organization_id = organization_id_of(self.instance)
        return super().save_new(form, commit)


class TenantFilter(RelatedFieldListFilter):
    """A filter by a related row which lists only what the person may see."""

    def field_choices(self, field: Any, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        reach = reach_of(request)
        rows = field.remote_field.model._default_manager.all()
        return [(str(row.pk), str(row)) for row in within(rows, None if reach.superuser else reach.visible)]


# --- Admins and inlines ----------------------------------------------------------------------------------------------


TEXTAREAS: dict[Any, Any] = {
    models.TextField: {"widget": UnfoldAdminTextareaWidget({"rows": 4})},
    models.JSONField: {"widget": UnfoldAdminTextareaWidget({"rows": 4})},
}


_LOOKUPS = ("exact", "isnull", "id__exact", "pk__exact", "in")


class _Choices:
    """What admins and inlines share: related rows are chosen among those of the organizations one manages."""

    def get_field_queryset(self, db: str | None, db_field: Any, request: HttpRequest) -> Any:
        ordered = super().get_field_queryset(db, db_field, request)  # type: ignore[misc]  # of Django's BaseModelAdmin
        queryset = db_field.remote_field.model._default_manager.all() if ordered is None else ordered
        return within(queryset, reach_of(request).choices())


class TenantAdmin(_Choices, AdminPages, AuditedAdmin):
    """Rows of organizations in the admin.

    `organization_path` leads from the model to the organization as a lookup. `secrets` are the fields of which a page
    may only ever tell whether they are set; they are edited by `chatui.form_fields`.
    """

    form = TenantForm
    formfield_overrides = TEXTAREAS
    organization_path = "organization"
    secrets: Sequence[str] = ()
    view_only = False  # nobody adds, changes or deletes, not even a superuser

    def __init__(self, model: type[models.Model], admin_site: Any) -> None:
        super().__init__(model, admin_site)
        for name in self.secrets:
            setattr(self, f"stored_{name}", _stored_or_not(model, name))

    # Which rows.

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = super().get_queryset(request)
        reach = reach_of(request)
        if reach.superuser:
            return rows
        keys = self.model._default_manager.filter(**{f"{self.organization_path}__in": reach.visible}).values("pk")
        return rows.filter(pk__in=keys)

    def organizations_of(self, obj: models.Model) -> Organizations:
        """The organizations that `obj` belongs to; one, for all but users."""
        found = organization_id_of(obj)
        return frozenset([found]) if found is not None else frozenset()

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Only what the filters offer: `?password__startswith=` would tell a hash letter by letter."""
        offered = (item[0] if isinstance(item, tuple) else item for item in self.list_filter)
        return any(lookup in (name, *(f"{name}__{how}" for how in _LOOKUPS)) for name in offered)

    # Who may.

    def has_module_permission(self, request: HttpRequest) -> bool:
        return reach_of(request).sees()

    def has_view_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        reach = reach_of(request)
        return reach.sees() if obj is None else reach.superuser or bool(self.organizations_of(obj) & reach.visible)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return not self.view_only and reach_of(request).manages()

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        reach = reach_of(request)
        if self.view_only:
            return False
        return reach.manages() if obj is None else reach.superuser or self.is_managed(reach, obj)

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return self.has_change_permission(request, obj)

    def is_managed(self, reach: Reach, obj: models.Model) -> bool:
        return bool(self.organizations_of(obj) & reach.managed)

    def managed_rows(self, request: HttpRequest, rows: Any) -> Any:
        """Those of `rows` (a queryset of an action) that the person may change."""
        reach = reach_of(request)
        return rows if reach.superuser else rows.filter(**{f"{self.organization_path}__in": reach.managed})

    # What is shown.

    def get_list_display(self, request: HttpRequest) -> Any:
        reach = reach_of(request)
        columns = super().get_list_display(request)
        if reach.superuser or len(reach.visible) != 1:
            return columns
        return [column for column in columns if column != "organization"]

    def get_readonly_fields(self, request: HttpRequest, obj: models.Model | None = None) -> list[str]:
        fixed = list(super().get_readonly_fields(request, obj))
        if obj is not None and "organization" not in fixed:
            fixed.append("organization")  # a row never moves to another organization
        return fixed + [f"stored_{name}" for name in self.secrets]

    def get_fieldsets(self, request: HttpRequest, obj: models.Model | None = None) -> Any:
        fieldsets = super().get_fieldsets(request, obj)
        editable = self.has_change_permission(request, obj) if obj else self.has_add_permission(request)
        fixed = self.get_readonly_fields(request, obj)
        hidden = [name for name in self.secrets if not editable or name in fixed]
        return [(title, options | {"fields": _masked(options["fields"], hidden)}) for title, options in fieldsets]

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        initial: dict[str, Any] = super().get_changeform_initial_data(request)
        reach = reach_of(request)
        managed = (
            list(Organization.objects.values_list("pk", flat=True)[:2]) if reach.superuser else list(reach.managed)
        )
        if len(managed) == 1:
            initial.setdefault("organization", managed[0])
        return initial

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """What would go: the rows by name, all that hangs on them by number. Nobody's chat titles stand there."""
        if not objs:
            return [], {}, set(), []
        collector = NestedObjects(using=router.db_for_write(self.model), origin=objs)
        collector.collect(objs)
        denied = {self.opts.verbose_name for obj in objs if not self.has_delete_permission(request, obj)}
        going: dict[Any, Any] = dict(collector.model_objs)
        counts = {model._meta.verbose_name_plural: len(rows) for model, rows in going.items()}
        protected: list[Any] = list(collector.protected)
        return [_named(obj) for obj in objs], counts, denied, [_named(obj) for obj in protected]


class _TenantInline(_Choices):
    """Rows that belong to a row: who may see or change that, may see or change them."""

    formset = TenantFormSet
    extra = 0
    hide_title = True
    formfield_overrides = TEXTAREAS
    parent_model: type[models.Model]
    admin_site: Any

    def _parent(self) -> Any:
        return self.admin_site.get_model_admin(self.parent_model)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(self._parent().has_view_permission(request, obj))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        parent = self._parent()
        return bool(parent.has_change_permission(request, obj) if obj else parent.has_add_permission(request))

    has_delete_permission = has_change_permission

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_change_permission(request, obj)


class TenantTabularInline(_TenantInline, TabularInline):  # type: ignore[misc]  # unfold has no type stubs
    pass


class TenantStackedInline(_TenantInline, StackedInline):  # type: ignore[misc]  # unfold has no type stubs
    pass


def _stored_or_not(model: type[models.Model], name: str) -> Any:
    def stored(obj: Any) -> str:
        value = getattr(obj, name, None)
        if isinstance(value, dict) and value:
            return f"{', '.join(value)} (••••)"  # names are no secrets
        return "••••" if value else "–"

    label = capfirst(str(getattr(model._meta.get_field(name), "verbose_name", name)))
    return admin.display(description=label)(stored)


def _masked(fields: Iterable[Any], hidden: Sequence[str]) -> list[Any]:
    """`fields` of a fieldset, nested rows too, with each hidden one exchanged for its mask."""
    return [
        tuple(_masked(field, hidden))
        if isinstance(field, list | tuple)
        else f"stored_{field}"
        if field in hidden
        else field
        for field in fields
    ]


def _named(obj: Any) -> str:
    return format_html("{}: {}", capfirst(str(obj._meta.verbose_name)), obj)
