"""MCP servers in the admin: the definition, who may use it, what it offers, and whether it can be reached."""

from __future__ import annotations

from functools import partial
from typing import Any

from asgiref.sync import async_to_sync
from django.contrib import admin, messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from accounts import audit, rule_warnings
from accounts.actors import Actor, find_actor
from accounts.admin import GroupAdmin
from accounts.admin_audit import target_of
from accounts.models import AuditAction
from accounts.tenant_admin import TenantAdmin, TenantFilter, TenantTabularInline, reach_of
from mcpservers import catalogue, peers, tool_warnings
from mcpservers.admin_forms import DEFINITION, GrantForm, MCPServerForm
from mcpservers.admin_health import health_of
from mcpservers.admin_log import end_of_log
from mcpservers.admin_oauth import Accounts, whose_accounts
from mcpservers.admin_own import OwnServerAdmin  # noqa: F401  # registered with it
from mcpservers.admin_pins import PinnedTools
from mcpservers.admin_tools import stored_definition, stored_tools
from mcpservers.admin_try import TryForm, record_trial, try_tool
from mcpservers.known_tools import subjects_of
from mcpservers.models import MCPServer, ServerGrant, Transport, UserVariables
from mcpservers.scope import scope_of
from mcpservers.visible import revealed

PAGES = "admin/mcpservers/mcpserver"  # our own templates

GroupAdmin.known_tools = staticmethod(subjects_of)


class ServerGrantInline(TenantTabularInline):
    model = ServerGrant
    form = GrantForm
    fields = ("whole_organization", "group", "user", "tool", "deny")
    verbose_name_plural = _("Grants: who may use it (no grant, no access; a denial wins)")


@admin.register(MCPServer)
class MCPServerAdmin(PinnedTools, Accounts, TenantAdmin):
    list_display = (
        "title",
        "slug",
        "organization",
        "transport",
        "scope_badge",
        "state",
        "waiting_badge",
        "enabled",
        "last_connected_at",
    )
    list_select_related = ("organization",)
    list_filter = (("organization", TenantFilter), "transport", "enabled")
    search_fields = ("title", "slug", "url")
    form = MCPServerForm
    secrets = ("headers", "env", "oauth")
    inlines = (ServerGrantInline,)
    readonly_fields = ("scope", "tools", "rule_warnings")
    change_form_outer_before_template = "admin/mcpservers/mcpserver/buttons.html"
    fieldsets = (
        (None, {"fields": ("organization", "title", "slug", "description", "enabled")}),
        (_("Connection"), {"fields": ("transport", "url", "command", "args", ("timeout", "connect_timeout"), "scope")}),
        (_("Credentials"), {"fields": ("headers", "env", "variables", "oauth")}),
        (
            _("What its tools may do"),
            {"fields": ("trust", "new_tools", "read_only", "rules", "rule_warnings", "use_instructions")},
        ),
        (_("Tools"), {"fields": ("tools",)}),
    )
    add_fieldsets = (
        (None, {"fields": ("organization", "title", "slug", "description", "enabled")}),
        (_("Connection"), {"fields": ("transport", "url", "command", "args", ("timeout", "connect_timeout"))}),
        (_("Credentials"), {"fields": ("headers", "env", "variables", "oauth")}),
        (_("What its tools may do"), {"fields": ("trust", "new_tools", "read_only", "rules", "use_instructions")}),
    )

    def get_prepopulated_fields(self, request: HttpRequest, obj: Any = None) -> dict[str, Any]:
        return {} if obj else {"slug": ("title",)}

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form = super().get_form(request, obj, change=change, **kwargs)
        return type(form.__name__, (form,), {"superuser": reach_of(request).superuser})

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        fixed = super().get_readonly_fields(request, obj)
        if obj is not None and obj.transport == Transport.STDIO and not reach_of(request).superuser:
            fixed += [
                "transport",
                "url",
                "command",
                "args",
                "headers",
                "env",
                "oauth",
            ]  # a process of the operator's machine
        return fixed

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if change and set(form.changed_data) & {*DEFINITION, "rules", "read_only", "enabled", "trust", "new_tools"}:
            obj.revision += 1
        if change and form.moved:
            self._drop_secrets(request, obj, form.dropped)
        elif form.dropped:
            text = _("The sign-in's address changed, so what was stored for the old one is dropped: %(names)s.")
            messages.warning(request, text % {"names": ", ".join(form.dropped)})
        if "oauth" in form.changed_data:
            obj.obo_author = str(request.user.pk)  # who saves it answers for calls on behalf of others
        super().save_model(request, obj, form, change)
        transaction.on_commit(partial(peers.server_changed, obj.pk))

    def _drop_secrets(self, request: HttpRequest, server: MCPServer, dropped: list[str]) -> None:
        """What was entrusted to one address is not sent to another."""
        users, _deleted = UserVariables.objects.filter(server=server).delete()
        if dropped:
            text = _("The address changed, so what was stored for the old one is dropped: %(names)s. Enter it again.")
            messages.warning(request, text % {"names": ", ".join(dropped)})
        if users:
            text = _("The address changed: the values of %(number)d users are dropped. They will be asked again.")
            messages.warning(request, text % {"number": users})

    # What is shown.

    @admin.display(description=_("Scope"))
    def scope(self, obj: MCPServer) -> str:
        verdict = scope_of(obj.definition())
        return format_html("<strong>{}</strong> – {}", verdict.scope.value, verdict.reason)

    @display(  # type: ignore[untyped-decorator]  # unfold has no type stubs
        description=_("Scope"), label={"app": "info", "user": "primary", "request": "warning"}
    )
    def scope_badge(self, obj: MCPServer) -> str:
        return scope_of(obj.definition()).scope.value

    @display(  # type: ignore[untyped-decorator]  # unfold has no type stubs
        description=_("State"), label={"ok": "success", "error": "danger", "off": "info", "unknown": "warning"}
    )
    def state(self, obj: MCPServer) -> tuple[str, Any]:
        if not obj.enabled:
            return "off", _("off")
        if obj.last_error:
            return "error", _("error")
        return ("ok", _("reached")) if obj.last_connected_at else ("unknown", _("never reached"))

    @admin.display(description=_("What it offers"))
    def tools(self, obj: MCPServer) -> str:
        return render_to_string("admin/mcpservers/mcpserver/tools.html", {"list": stored_tools(obj), "server": obj})

    @admin.display(description=_("Warnings"))
    def rule_warnings(self, obj: MCPServer) -> Any:
        return rule_warnings.as_list(tool_warnings.warnings_of(obj))

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """What cannot be meant is told where it was entered."""
        super().save_related(request, form, formsets, change)
        for words in tool_warnings.warnings_of(form.instance):
            messages.warning(request, words)

    # Buttons.

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            *self.pin_urls(),
            path("<path:object_id>/test/", wrap(self.test_view), name="mcpservers_mcpserver_test"),
            path("<path:object_id>/refresh/", wrap(self.refresh_view), name="mcpservers_mcpserver_refresh"),
            path("<path:object_id>/health/", wrap(self.health_view), name="mcpservers_mcpserver_health"),
            path("<path:object_id>/reconnect/", wrap(self.reconnect_view), name="mcpservers_mcpserver_reconnect"),
            path("<path:object_id>/try/", wrap(self.try_view), name="mcpservers_mcpserver_try"),
            path("<path:object_id>/log/", wrap(self.log_view), name="mcpservers_mcpserver_log"),
            *self.oauth_urls(),
            *super().get_urls(),
        ]

    def test_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Connect, list the tools, and show what came of it. Only by POST: a link must not make the server connect."""
        server, answer = self.to_change(request, object_id)
        if server is None:
            return answer
        assert request.user.pk is not None  # the site let them in
        actor = find_actor(request.user.pk, server.organization_id)
        report = self._refresh(server, actor)
        context = {
            "server": server,
            "report": report,
            "list": stored_tools(server),
            "scope": scope_of(server.definition()),
            "is_member": actor is not None,
            "whose": whose_accounts(server),
        }
        return self.page(request, f"{PAGES}/test.html", _("Test of the connection"), server, **context)

    def refresh_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        server, answer = self.to_change(request, object_id)
        if server is None:
            return answer
        assert request.user.pk is not None  # the site let them in
        report = self._refresh(server, find_actor(request.user.pk, server.organization_id))
        if report.error:
            messages.error(request, report.error)
        else:
            messages.success(request, _("Tools listed: %(number)d.") % {"number": report.tools})
        return redirect("admin:mcpservers_mcpserver_change", server.pk)

    def log_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """What a local process wrote to its standard error; for who runs this machine."""
        server = self.seen(request, object_id)
        if server is None or not reach_of(request).superuser:
            return self.missing(request, object_id)
        context = {"server": server, "log": end_of_log(server)}
        return self.page(request, f"{PAGES}/log.html", _("Log of the process"), server, **context)

    def health_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Connections, pauses and recent troubles of one server, as this process knows them."""
        server = self.seen(request, object_id)
        if server is None:
            return self.missing(request, object_id)
        context = {
            "server": server,
            "health": health_of(server, with_log=reach_of(request).superuser),
            "may_change": self.has_change_permission(request, server),
        }
        return self.page(request, f"{PAGES}/health.html", _("Health"), server, **context)

    def reconnect_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Forgive its failures and close its connections: the next use tries again at once. Only by POST."""
        server, answer = self.to_change(request, object_id)
        if server is None:
            return answer
        peers.reconnect(server.pk)
        _record(AuditAction.CONNECTION_CLOSED, server)
        messages.success(request, _("Its connections are being closed; the next use opens new ones."))
        return redirect("admin:mcpservers_mcpserver_health", server.pk)

    def try_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Call one tool by hand, as the admin's own self. The call itself only by POST."""
        server = self.changeable(request, object_id)
        if server is None:
            return self.missing(request, object_id)
        data = request.POST if request.method == "POST" else request.GET
        tool = data.get("tool", "").strip()[:256]
        definition = stored_definition(server, tool)
        form = TryForm(definition, request.POST if request.method == "POST" else None)
        assert request.user.pk is not None  # the site let them in
        actor = find_actor(request.user.pk, server.organization_id)
        groups = actor.group_rules if actor is not None else ()
        decided = catalogue.decide(server, tool, group_rules=groups) if tool else None
        outcome = None
        if request.method == "POST" and decided is not None and actor is not None and form.is_valid():
            outcome = async_to_sync(try_tool)(actor, server, tool, form.arguments(), definition)
            record_trial(server, tool, form.arguments(), decided, outcome)
        context = {
            "server": server,
            "tool": tool,
            "shown_tool": revealed(tool),
            "definition": definition,
            "decided": decided,
            "form": form,
            "is_member": actor is not None,
            "outcome": outcome,
            "outcome_text": revealed(outcome.text) if outcome is not None else "",
        }
        return self.page(request, f"{PAGES}/try.html", _("Try a tool"), server, **context)

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None
    ) -> Any:
        context = {"show_log": reach_of(request).superuser, **self.pins_context(object_id)} | (extra_context or {})
        return super().changeform_view(request, object_id, form_url, context)

    def _refresh(self, server: MCPServer, actor: Actor | None) -> Any:
        """Connect with the admin's own credentials for it, where it wants a user's."""
        report = async_to_sync(catalogue.refresh)(server.pk, actor=actor)
        _record(AuditAction.CONNECTION_TESTED, server, status="error" if report.error else "ok")
        server.refresh_from_db()
        return report


def _record(action: AuditAction, server: MCPServer, **fields: Any) -> None:
    audit.record(
        action,
        organization_id=server.organization_id,
        target=target_of(server),
        server_id=server.pk,
        server=server.slug,
        **fields,
    )
