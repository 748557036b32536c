"""Organizations, members, groups, users and API keys in the admin."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from accounts import audit, denials, rule_warnings, signals
from accounts.admin_forms import (
    ApiKeyForm,
    GroupForm,
    MembershipForm,
    NewMembershipForm,
    NewUserForm,
    OrganizationForm,
    UserForm,
    last_owner,
)
from accounts.budgets_field import MAX_ROWS, in_words
from accounts.models import ApiKey, AuditAction, Group, Membership, Organization, Role, User
from accounts.tenant_admin import Organizations, Reach, TenantAdmin, TenantFilter, reach_of


@admin.register(Organization)
class OrganizationAdmin(TenantAdmin):
    organization_path = "pk"
    list_display = ("name", "slug", "is_active", "created_at")
    search_fields = ("name", "slug")
    form = OrganizationForm
    fieldsets = (
        (None, {"fields": ("name", "slug", "is_active", "budgets")}),
        (_("MCP servers"), {"fields": ("own_servers",)}),
        (_("Audit"), {"fields": ("audit_days", "audit_bodies")}),
    )

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj is None or (self.has_change_permission(request, obj) and len(obj.budgets) <= MAX_ROWS):
            return super().get_fieldsets(request, obj)
        return [
            (title, {"fields": ["budgets_in_words" if name == "budgets" else name for name in options["fields"]]})
            for title, options in super().get_fieldsets(request, obj)
        ]

    @admin.display(description=_("Budgets"))
    def budgets_in_words(self, obj: Organization) -> Any:
        return in_words(obj.pk, obj.budgets)

    def get_prepopulated_fields(self, request: HttpRequest, obj: Any = None) -> dict[str, Any]:
        return {} if obj else {"slug": ("name",)}

    def has_add_permission(self, request: HttpRequest) -> bool:
        return reach_of(request).superuser

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        reach = reach_of(request)
        return reach.superuser or (bool(reach.owned) if obj is None else reach.owns(obj.pk))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        fixed = ["budgets_in_words"] if obj is None or len(obj.budgets) <= MAX_ROWS else ["budgets_in_words", "budgets"]
        return fixed if reach_of(request).superuser else [*fixed, "slug", "is_active"]


@admin.register(Membership)
class MembershipAdmin(TenantAdmin):
    list_display = ("user", "organization", "role", "group_names", "is_active", "last_used_at")
    list_select_related = ("user", "organization")
    list_filter = (("organization", TenantFilter), "role", "is_active", ("groups", TenantFilter))
    search_fields = ("user__username", "user__email", "user__first_name", "user__last_name")
    form = MembershipForm
    readonly_fields = ("user",)
    fieldsets = ((None, {"fields": ("organization", "user", "role", "groups", "is_active")}),)
    add_fieldsets = ((None, {"fields": ("organization", "person", "role", "groups")}),)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        if obj is None:
            kwargs["form"] = NewMembershipForm
        form = super().get_form(request, obj, change=change, **kwargs)
        return type(form.__name__, (form,), {"reach": reach_of(request)})

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return [] if obj is None else super().get_readonly_fields(request, obj)

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).prefetch_related("groups")

    def is_managed(self, reach: Reach, obj: Any) -> bool:
        """Only owners touch an owner's membership."""
        return super().is_managed(reach, obj) and (obj.role != Role.OWNER or reach.owns(obj.organization_id))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        keep = obj is not None and not reach_of(request).superuser and last_owner(obj)
        return super().has_delete_permission(request, obj) and not keep

    @admin.display(description=_("Groups"))
    def group_names(self, obj: Membership) -> str:
        return ", ".join(str(group) for group in obj.groups.all())


@admin.register(Group)
class GroupAdmin(TenantAdmin):
    list_display = ("slug", "name", "organization", "size")
    list_select_related = ("organization",)
    list_filter = (("organization", TenantFilter),)
    search_fields = ("slug", "name")
    form = GroupForm
    readonly_fields = ("member_names", "rule_warnings")
    fieldsets = (
        (None, {"fields": ("organization", "name", "slug", "members")}),
        (_("What its members' tools may do"), {"fields": ("rules", "rule_warnings")}),
    )
    add_fieldsets = ((None, {"fields": ("organization", "name", "slug")}),)
    # What rules of groups match: `server__tool` by organization. Set by who knows tools.
    known_tools: ClassVar[Callable[[UUID], Collection[str]]] = staticmethod(lambda organization_id: ())

    def get_prepopulated_fields(self, request: HttpRequest, obj: Any = None) -> dict[str, Any]:
        return {} if obj else {"slug": ("name",)}

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj is None or self.has_change_permission(request, obj):
            return super().get_fieldsets(request, obj)
        return [(None, {"fields": ("organization", "name", "slug", "member_names", "rules", "rule_warnings")})]

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).prefetch_related("memberships")

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """A group that keeps something from its members is not deleted; that counts for one and for a selection."""
        going, counts, denied, protected = super().get_deleted_objects(objs, request)
        kept = [f"{obj}: {words}" for obj in objs for words in denials.denials_of(obj)]
        return going, counts, denied, [*protected, *kept, *([denials.INSTEAD] if kept else [])]

    @admin.display(description=_("Members"))
    def member_names(self, obj: Group) -> str:
        return ", ".join(obj.memberships.order_by("user__username").values_list("user__username", flat=True)) or "–"

    @admin.display(description=_("Warnings"))
    def rule_warnings(self, obj: Group) -> Any:
        return rule_warnings.as_list(self._warnings_of(obj))

    def _warnings_of(self, group: Group) -> list[str]:
        names = type(self).known_tools(group.organization_id)
        return rule_warnings.warnings(group.organization_id, group.rules, names)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """What cannot be meant is told where it was entered."""
        super().save_related(request, form, formsets, change)
        for words in self._warnings_of(form.instance):
            messages.warning(request, words)

    @admin.display(description=_("Members"))
    def size(self, obj: Group) -> int:
        return len(obj.memberships.all())


@admin.register(User)
class UserAdmin(TenantAdmin):
    """Users belong to no organization: its admins see its members and make new users, superusers change them.

    Who could change a password or an address could enter every organization that the user is a member of.
    """

    organization_path = "memberships__organization"
    list_display = ("username", "email", "first_name", "last_name", "is_active", "last_login")
    search_fields = ("username", "email", "first_name", "last_name")
    ordering = ("username",)
    form = UserForm
    readonly_fields = ("last_login", "date_joined")
    fieldsets = (
        (None, {"fields": ("username", "email", "first_name", "last_name", "new_password")}),
        (_("Access"), {"fields": ("is_active", "is_superuser")}),
        (_("Dates"), {"fields": ("last_login", "date_joined")}),
    )
    add_fieldsets = (
        (None, {"fields": ("username", "email", "first_name", "last_name", "new_password")}),
        (_("First membership"), {"fields": ("organization", "role")}),
    )

    def organizations_of(self, obj: Any) -> Organizations:
        return frozenset(obj.memberships.values_list("organization_id", flat=True))

    def is_managed(self, reach: Reach, obj: Any) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return reach_of(request).superuser

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        if obj is None:
            kwargs["form"] = NewUserForm
        form = super().get_form(request, obj, change=change, **kwargs)
        return type(form.__name__, (form,), {"reach": reach_of(request)})

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        fieldsets = super().get_fieldsets(request, obj)
        if obj is None or self.has_change_permission(request, obj):
            return fieldsets
        return [(None, {"fields": ("username", "email", "first_name", "last_name", "is_active", "last_login")})]

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        # It tells what other organizations' admins did with the user.
        if not reach_of(request).superuser:
            return self.missing(request, object_id)
        page: HttpResponse = super().history_view(request, object_id, extra_context)
        return page


@admin.register(ApiKey)
class ApiKeyAdmin(TenantAdmin):
    """Keys are made for oneself: a key is its user, and would let an admin read that user's chats."""

    list_display = ("name", "prefix", "user", "organization", "scope_list", "state", "last_used_at")
    list_select_related = ("user", "organization")
    list_filter = (("organization", TenantFilter),)
    search_fields = ("name", "prefix", "user__username")
    actions = ("revoke",)
    form = ApiKeyForm
    fieldsets = ((None, {"fields": ("organization", "user", "name", "scopes", "expires_at")}),)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj is not None:
            names = ("organization", "user", "name", "prefix", "scope_list", "expires_at", "revoked_at", "last_used_at")
            return [(None, {"fields": names})]
        return super().get_fieldsets(request, obj)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        if obj is None:
            return []
        names = ["user", "name", "prefix", "scope_list", "expires_at", "revoked_at", "last_used_at"]
        return super().get_readonly_fields(request, obj) + names

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form = super().get_form(request, obj, change=change, **kwargs)
        return type(form.__name__, (form,), {"reach": reach_of(request), "person": request.user})

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        return {"user": request.user.pk, "scopes": ["chat"]} | super().get_changeform_initial_data(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        # A key is revoked or deleted, never changed: on its own page there is nothing to save.
        return obj is None and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_change_permission(request, obj)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        names = ("organization", "user", "name", "scopes", "expires_at")
        key, secret = ApiKey.issue(**{name: getattr(obj, name) for name in names})
        obj.pk, obj.prefix = key.pk, key.prefix
        request._issued = secret  # type: ignore[attr-defined]  # for the answer to this very request

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        """The one page that shows the key: it is the answer itself, so that the key is stored nowhere on its way."""
        context = {
            **self.admin_site.each_context(request),
            "title": _("API key made"),
            "opts": self.opts,
            "key": obj,
            "secret": request._issued,  # type: ignore[attr-defined]  # by `save_model`
        }
        response = TemplateResponse(request, "admin/accounts/apikey/issued.html", context)
        response["Cache-Control"] = "no-store"
        return response

    @admin.action(description=_("Revoke the selected keys"), permissions=["delete"])
    def revoke(self, request: HttpRequest, queryset: Any) -> None:
        usable = self.managed_rows(request, queryset).filter(revoked_at=None)
        keys = list(usable)
        number = usable.update(revoked_at=timezone.now())
        for key in keys:
            audit.record(
                AuditAction.KEY_REVOKED,
                organization_id=key.organization_id,
                target=audit.Target("key", key.pk, key.prefix),
                person_id=key.user_id,
            )
        for user_id in {key.user_id for key in keys}:
            signals.tell(user_id)
        messages.success(request, _("Keys revoked: %(number)d.") % {"number": number})

    @admin.display(description=_("Scopes"))
    def scope_list(self, obj: ApiKey) -> str:
        return ", ".join(obj.scopes)

    @display(  # type: ignore[untyped-decorator]  # unfold has no type stubs
        description=_("State"), label={"usable": "success", "expired": "warning", "revoked": "danger"}
    )
    def state(self, obj: ApiKey) -> tuple[str, Any]:
        if obj.revoked_at:
            return "revoked", _("revoked")
        if obj.expires_at and obj.expires_at <= timezone.now():
            return "expired", _("expired")
        return "usable", _("usable")
