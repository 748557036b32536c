"""The audit in the admin: looked at and taken out by owners and auditors, changed by nobody."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, date, datetime, time
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _
from unfold.contrib.filters.admin import DropdownFilter, RangeDateTimeFilter, TextFilter
from unfold.decorators import display

from accounts import audit, audit_export
from accounts.audit_query import STATUSES, VERDICTS, Selection, names_of, without_contents
from accounts.models import AuditAction, AuditRecord, Membership, Organization, Role
from accounts.policy import ROLES, Action
from accounts.tenant_admin import TenantAdmin, reach_of
from chatui.errors import InvalidRequestError, TooLargeError
from chatui.fields import DecryptionError
from mcpservers.models import LinkedAccount
from mcpservers.visible import revealed


def selected(name: str, value: str | None, rows: Any) -> Any:
    fields: dict[str, Any] = {name: (value or "")[:200]}
    return Selection(**fields).narrow(rows)


class _Words(TextFilter):  # type: ignore[misc]  # unfold has no type stubs
    """A filter by what is typed: a part of a name, or a person."""

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        return selected(self.parameter_name, self.value(), queryset)


class TimeFilter(RangeDateTimeFilter):  # type: ignore[misc]  # unfold has no type stubs
    """Days and times in UTC; without a time the day counts as a whole."""

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        since, since_bad = self._moment("from", time.min)
        until, until_bad = self._moment("to", time.max)
        if since_bad or until_bad:
            messages.error(request, _("A time is written like 2026-01-31 and 14:30, in UTC. Nothing was looked for."))
            return queryset.none()
        return Selection(since=since, until=until).narrow(queryset)

    def _moment(self, end: str, without: time) -> tuple[datetime | None, bool]:
        """The moment that was entered, if any; and whether what was entered is none."""
        day, hour = (str(self.used_parameters.get(f"at_{end}_{part}") or "").strip() for part in (0, 1))
        if not day:
            return None, bool(hour)
        try:
            clock = time.fromisoformat(hour).replace(tzinfo=None) if hour else without
            return datetime.combine(date.fromisoformat(day), clock, UTC), False
        except ValueError:
            return None, True


class PersonFilter(_Words):
    title, parameter_name = _("person (user name, address or id)"), "person"


class AgentFilter(_Words):
    title, parameter_name = _("agent"), "agent"


class ServerFilter(_Words):
    title, parameter_name = _("server"), "server"


class ToolFilter(_Words):
    title, parameter_name = _("tool"), "tool"


class _Choice(DropdownFilter):  # type: ignore[misc]  # unfold has no type stubs
    values: ClassVar[Sequence[tuple[str, Any]]] = ()

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, Any]]:
        return self.values

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        return selected(self.parameter_name, self.value(), queryset)


class ActionFilter(_Choice):
    title, parameter_name = _("action"), "action"
    values = tuple(AuditAction.choices)


class StatusFilter(_Choice):
    title, parameter_name = _("status"), "status"
    values = tuple((status, status) for status in STATUSES)


class VerdictFilter(_Choice):
    title, parameter_name = _("verdict"), "verdict"
    values = tuple((verdict, verdict) for verdict in VERDICTS)


NO_ORGANIZATION = "none"  # of entries of the installation, such as sign-ins with unknown names


class OrganizationFilter(_Choice):
    title, parameter_name = _("organization"), "of"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, Any]]:
        reach = reach_of(request)
        rows = Organization.objects.all() if reach.superuser else Organization.objects.filter(pk__in=reach.audited)
        none = [(NO_ORGANIZATION, _("none"))] if reach.superuser else []
        return [*((str(pk), name) for pk, name in rows.values_list("pk", "name")), *none]

    def has_output(self) -> bool:
        return len(self.lookup_choices) > 1

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        if self.value() == NO_ORGANIZATION:
            return queryset.filter(organization_id=None)
        try:
            return queryset.filter(organization_id=UUID(self.value())) if self.value() else queryset
        except ValueError:
            return queryset.none()


_PARAMETERS = frozenset(
    [
        *(each.parameter_name for each in (ActionFilter, PersonFilter, AgentFilter, ServerFilter, ToolFilter)),
        *(each.parameter_name for each in (StatusFilter, VerdictFilter, OrganizationFilter)),
        *(f"at_{end}_{part}" for end in ("from", "to") for part in (0, 1)),
    ]
)


class _Entries(ChangeList):
    """A page of entries, with the names of everybody whom they name."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        name(self.result_list)


def name(records: Iterable[AuditRecord]) -> None:
    """Give entries the names that people and organizations have now; two queries."""
    rows = list(records)
    people = names_of(rows)
    organizations = dict(
        Organization.objects.filter(pk__in={row.organization_id for row in rows}).values_list("pk", "name")
    )
    for row in rows:
        row.names = people  # type: ignore[attr-defined]  # for this page alone
        row.organization_name = organizations.get(row.organization_id, "–")  # type: ignore[attr-defined,arg-type]  # as above


def _person(record: Any, id: UUID | None) -> str:
    if id is None:
        return "–"
    return str(record.names.get(id) or _("deleted account %(id)s") % {"id": id})


@admin.register(AuditRecord)
class AuditRecordAdmin(TenantAdmin):
    view_only = True
    organization_path = "organization_id"
    list_display = ("moment", "organization", "label", "who", "what", "agent", "verdict_label", "status_label")
    list_display_links = ("moment",)
    list_filter = (
        ("at", TimeFilter),
        ActionFilter,
        PersonFilter,
        AgentFilter,
        ServerFilter,
        ToolFilter,
        StatusFilter,
        VerdictFilter,
        OrganizationFilter,
    )
    list_filter_submit = True
    list_fullwidth = True
    list_before_template = "admin/accounts/auditrecord/export.html"
    change_form_outer_before_template = "admin/accounts/auditrecord/contents_button.html"
    show_full_result_count = False
    list_per_page = 100
    fieldsets = (
        (None, {"fields": ("moment", "label", "organization", "who", "via", "concerned")}),
        (_("Object"), {"fields": ("object_type", "object_name", "object_id")}),
        (
            _("Tool call"),
            {
                "fields": (
                    *("agent", "server", "tool", "account"),
                    *("verdict", "reason", "decided_by", "status", "duration_ms"),
                    *("turn_id", "call_id", "arguments_hash"),
                )
            },
        ),
        (_("Details"), {"fields": ("told",)}),
    )

    # Who may: owners and auditors, not admins, whose acts these are.

    def has_module_permission(self, request: HttpRequest) -> bool:
        return reach_of(request).audits()

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        reach = reach_of(request)
        if obj is None:
            return reach.audits()
        return reach.superuser or (obj.organization_id is not None and reach.audits(obj.organization_id))

    def get_queryset(self, request: HttpRequest) -> Any:
        reach = reach_of(request)
        rows = without_contents(AuditRecord.objects.as_system().order_by("-at", "-id"))
        return rows if reach.superuser else rows.filter(organization_id__in=reach.audited)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        found = super().get_object(request, object_id, from_field)
        if found is not None:
            name([found])
            for field in ("tool", "object_name", "reason"):  # a server's words among them
                setattr(found, field, revealed(getattr(found, field)))
        return found

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> Any:
        return _Entries

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        sets = super().get_fieldsets(request, obj)
        empty = {
            _("Object"): not (obj and obj.object_type),
            _("Tool call"): not (obj and (obj.tool or obj.server)),
            _("Details"): not (obj and obj.details),
        }
        return [(title, options) for title, options in sets if not empty.get(title)]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return ["moment", "label", "organization", "who", "concerned", "decided_by", "account", "told"]

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        return lookup in _PARAMETERS

    # What is shown.

    @admin.display(description=_("Time (UTC)"), ordering="at")
    def moment(self, obj: AuditRecord) -> str:
        return f"{obj.at:%Y-%m-%d %H:%M:%S}"

    @admin.display(description=_("Organization"))
    def organization(self, obj: Any) -> str:
        return str(obj.organization_name)

    @admin.display(description=_("Action"))
    def label(self, obj: AuditRecord) -> str:
        return obj.action_label

    @admin.display(description=_("Who"))
    def who(self, obj: AuditRecord) -> str:
        return _person(obj, obj.actor_id) if obj.actor_id else str(obj.get_via_display())

    @admin.display(description=_("Concerned person"))
    def concerned(self, obj: AuditRecord) -> str:
        return _person(obj, obj.person_id)

    @admin.display(description=_("Decided by"))
    def decided_by(self, obj: AuditRecord) -> str:
        return _person(obj, obj.approved_by_id)

    @admin.display(description=_("What"))
    def what(self, obj: AuditRecord) -> str:
        if obj.tool:
            tool = revealed(obj.tool)
            return f"{obj.server} › {tool}" if obj.server else tool
        whose = _person(obj, obj.person_id) if obj.person_id and obj.person_id != obj.actor_id else ""
        if obj.object_type in ("account", "") and obj.server and not (obj.object_name or whose):
            return f"{obj.object_type or 'server'} {'at ' if obj.object_type else ''}{obj.server}"
        named = obj.object_name or whose or obj.object_id
        return f"{obj.object_type} {revealed(named)}".strip() or whose or "–"

    @display(  # type: ignore[untyped-decorator]  # unfold has no type stubs
        description=_("Verdict"), label={"allow": "success", "ask": "warning", "deny": "danger"}
    )
    def verdict_label(self, obj: AuditRecord) -> tuple[str, Any]:
        return obj.verdict, obj.verdict or "–"

    @display(  # type: ignore[untyped-decorator]  # unfold has no type stubs
        description=_("Status"), label={"ok": "success", "error": "danger", "denied": "warning"}
    )
    def status_label(self, obj: AuditRecord) -> tuple[str, Any]:
        return obj.status, obj.status or "–"

    @admin.display(description=_("Linked account"))
    def account(self, obj: AuditRecord) -> str:
        if obj.account_id is None:
            return "–"
        accounts = LinkedAccount.objects.as_system().filter(organization=obj.organization_id, pk=obj.account_id)
        accounts = accounts.filter(server__owner=None)  # as whom a person uses a server of their own is theirs alone
        return accounts.values_list("name", flat=True).first() or str(obj.account_id)

    @admin.display(description=_("Details"))
    def told(self, obj: AuditRecord) -> str:
        return json.dumps(obj.details, ensure_ascii=False, indent=1) if obj.details else "–"

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None
    ) -> Any:
        entry = self.get_object(request, object_id) if object_id else None
        show = entry is not None and entry.has_contents and _reads_contents(request, entry)
        return super().changeform_view(request, object_id, form_url, {"show_contents": show} | (extra_context or {}))

    # What is taken out.

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("export/", wrap(self.export_view), name="accounts_auditrecord_export"),
            path("<uuid:object_id>/contents/", wrap(self.contents_view), name="accounts_auditrecord_contents"),
            *super().get_urls(),
        ]

    def export_view(self, request: HttpRequest) -> HttpResponseBase:
        """What the list's filters leave, as a file. Only by POST, since it is recorded."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self.has_view_permission(request):
            return redirect("admin:index")
        chosen: audit_export.Format = "jsonl" if request.POST.get("format") == "jsonl" else "csv"
        rows = self.get_changelist_instance(request).get_queryset(request)
        try:
            filters, organizations = list(request.GET), _exported(request)
            audit_export.start(rows, chosen, organizations=organizations, filters=filters)
        except (InvalidRequestError, TooLargeError) as error:
            messages.error(request, error.public_message)
            return redirect(f"../?{request.GET.urlencode()}")
        return audit_export.response(rows, chosen)

    def contents_view(self, request: HttpRequest, object_id: UUID) -> HttpResponse:
        """Arguments and result of a call, where they were kept. Only by POST, since it is recorded that one looked."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        entry = self.get_object(request, str(object_id))
        if entry is None or not self.has_view_permission(request, entry) or not _reads_contents(request, entry):
            return self.missing(request, str(object_id))
        audit.record(
            AuditAction.AUDIT_BODY_READ,
            organization_id=entry.organization_id,
            target=audit.Target("entry", entry.pk),
            person_id=entry.actor_id,
        )
        contents, problem = _contents(entry.pk)
        context = {"entry": entry, "contents": contents, "problem": problem}
        template = "admin/accounts/auditrecord/contents.html"
        response = self.page(request, template, _("Arguments and result"), entry, **context)
        response["Cache-Control"] = "no-store"
        return response


def _exported(request: HttpRequest) -> Collection[UUID | None]:
    """Whose entries an export may hold. Raises `InvalidRequestError`.

    A superuser, who reads every organization's, chooses one: else nobody there would learn of it.
    """
    reach, wanted = reach_of(request), request.GET.get("of", "")
    if not reach.superuser:
        return sorted(reach.audited)
    if wanted == NO_ORGANIZATION:
        return [None]
    chosen = next((row.pk for row in Organization.objects.all() if str(row.pk) == wanted), None)
    if chosen is None:
        raise InvalidRequestError(
            public_message="Choose an organization under “Filters” first: a file holds the entries of one."
        )
    return [chosen]


def _reads_contents(request: HttpRequest, entry: AuditRecord) -> bool:
    """Owners and auditors of the organization itself: being a superuser is not enough."""
    roles = Membership.objects.active().filter(user=request.user.pk, organization=entry.organization_id)
    return any(Action.READ_AUDIT in ROLES[Role(role)] for role in roles.values_list("role", flat=True))


def _contents(entry: UUID) -> tuple[list[tuple[Any, str]], Any]:
    """(title, text) pairs, or why there are none."""
    try:
        body = AuditRecord.objects.as_system().values_list("body", flat=True).get(pk=entry)
    except DecryptionError:
        return [], _("The contents were encrypted with a key that this installation has no more.")
    if not body:
        return [], _("Nothing was kept of this call.")
    arguments, cut = body.get("arguments"), body.get("cut") or []
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, indent=2)
    more = _("(The rest was not kept.)")
    parts = [("arguments", _("Arguments"), text), ("result", _("Result"), str(body.get("result") or ""))]
    return [(title, f"{part}\n{more}" if key in cut else part) for key, title, part in parts], ""
