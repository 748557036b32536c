"""Model endpoints with their models, and agents, in the admin."""

from __future__ import annotations

from typing import Any

from asgiref.sync import async_to_sync
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _

from accounts import audit, rule_warnings
from accounts.admin_audit import target_of
from accounts.models import AuditAction
from accounts.tenant_admin import TenantAdmin, TenantFilter, TenantStackedInline, TenantTabularInline
from agents import tool_warnings
from agents.admin_forms import AgentForm, AgentServerForm, ModelEndpointForm
from agents.models import Agent, AgentGrant, AgentServer, ModelEndpoint, ModelProfile
from agents.providers.chat_model import EndpointError
from agents.providers.endpoints import test_endpoint
from agents.providers.settings import settings_of
from mcpservers.admin_forms import GrantForm


class ModelProfileInline(TenantStackedInline):
    model = ModelProfile
    verbose_name_plural = _("Models")
    hide_title = False
    collapsible = True
    fieldsets = (
        (None, {"fields": (("slug", "name", "title"), ("context", "input_price", "output_price"))}),
        (_("What it can do"), {"fields": (("tools", "parallel_tools", "images"), ("reasoning", "stream"))}),
        (
            _("How it is asked"),
            {
                "fields": (
                    ("dialect", "max_tokens_parameter", "system_role"),
                    ("temperature_allowed", "stream_options", "return_reasoning"),
                    ("prefill", "alternate_roles", "drop_tools_on_close"),
                )
            },
        ),
    )


@admin.register(ModelEndpoint)
class ModelEndpointAdmin(TenantAdmin):
    list_display = ("label", "slug", "organization", "base_url", "dialect", "enabled")
    list_select_related = ("organization",)
    list_filter = (("organization", TenantFilter), "dialect", "enabled")
    search_fields = ("name", "slug", "base_url")
    form = ModelEndpointForm
    secrets = ("api_key", "headers")
    inlines = (ModelProfileInline,)
    change_form_outer_before_template = "admin/agents/modelendpoint/buttons.html"
    fieldsets = (
        (None, {"fields": ("organization", "name", "slug", "enabled")}),
        (_("Address"), {"fields": ("base_url", "dialect", "api_key", "headers", "extra_body")}),
        (
            _("Limits"),
            {"fields": (("connect_timeout", "first_token_timeout", "chunk_timeout"), ("retries", "max_concurrency"))},
        ),
    )

    def get_prepopulated_fields(self, request: HttpRequest, obj: Any = None) -> dict[str, Any]:
        return {} if obj else {"slug": ("name",)}

    @admin.display(description=_("Name"), ordering="name")
    def label(self, obj: ModelEndpoint) -> str:
        return str(obj)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if form.dropped:
            text = _("The address changed, so what was stored for the old one is dropped: %(names)s. Enter it again.")
            messages.warning(request, text % {"names": ", ".join(form.dropped)})
        super().save_model(request, obj, form, change)

    def get_urls(self) -> list[URLPattern]:
        test = self.admin_site.admin_view(self.test_view)
        return [path("<path:object_id>/test/", test, name="agents_modelendpoint_test"), *super().get_urls()]

    def test_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask the endpoint for its models. Only by POST: a link must not make the server connect."""
        endpoint, answer = self.to_change(request, object_id)
        if endpoint is None:
            return answer
        report = async_to_sync(test_endpoint)(settings_of(ModelProfile(endpoint=endpoint, slug="test", name="test")))
        audit.record(
            AuditAction.CONNECTION_TESTED, organization_id=endpoint.organization_id, target=target_of(endpoint)
        )
        known = set(endpoint.models.values_list("name", flat=True))
        context = {
            "endpoint": endpoint,
            "report": report,
            "error": _words(report.error, endpoint),
            "models": [(name, name in known) for name in report.models],
            "missing": sorted(known - set(report.models)) if report.models else [],
        }
        template = "admin/agents/modelendpoint/test.html"
        return self.page(request, template, _("Test of the endpoint"), endpoint, **context)


def _words(error: EndpointError | None, endpoint: ModelEndpoint) -> str:
    """What the endpoint said. It may quote the key that it refuses."""
    text = "" if error is None else f"{error.public_message} {error.detail}".strip()
    for secret in sorted((endpoint.api_key, *endpoint.headers.values()), key=len, reverse=True):
        text = text.replace(secret, "••••") if secret else text
    return text


class AgentServerInline(TenantTabularInline):
    model = AgentServer
    form = AgentServerForm
    fields = ("server", "tools", "position")
    verbose_name_plural = _("MCP servers")


class AgentGrantInline(TenantTabularInline):
    model = AgentGrant
    form = GrantForm
    fields = ("whole_organization", "group", "user", "deny")
    verbose_name_plural = _("Grants: who may use it (no grant, no access; a denial wins)")


@admin.register(Agent)
class AgentAdmin(TenantAdmin):
    list_display = ("name", "slug", "organization", "model", "server_names", "enabled")
    list_select_related = ("organization", "model__endpoint")
    list_filter = (("organization", TenantFilter), "enabled")
    search_fields = ("name", "slug", "description")
    form = AgentForm
    readonly_fields = ("rule_warnings",)
    inlines = (AgentServerInline, AgentGrantInline)
    fieldsets = (
        (None, {"fields": ("organization", "name", "slug", "description", "enabled")}),
        (_("What it is"), {"fields": ("model", "other_models", "instructions", "starters")}),
        (
            _("Limits and parameters"),
            {"fields": (("max_rounds", "max_output_tokens", "reasoning_effort"), ("temperature", "top_p"))},
        ),
        (_("What its tools may do"), {"fields": ("rules", "rule_warnings", "user_servers")}),
    )

    def get_prepopulated_fields(self, request: HttpRequest, obj: Any = None) -> dict[str, Any]:
        return {} if obj else {"slug": ("name",)}

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).prefetch_related("servers__server")

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if db_field.name == "instructions" and field is not None:
            field.widget.attrs["rows"] = 12
        return field

    @admin.display(description=_("Warnings"))
    def rule_warnings(self, obj: Agent) -> Any:
        if obj.pk is None or obj._state.adding:
            return "–"
        return rule_warnings.as_list(tool_warnings.warnings_of(obj))

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """What cannot be meant is told where it was entered."""
        super().save_related(request, form, formsets, change)
        for words in tool_warnings.warnings_of(form.instance):
            messages.warning(request, words)

    @admin.display(description=_("MCP servers"))
    def server_names(self, obj: Agent) -> str:
        return ", ".join(str(item.server) for item in obj.servers.all()) or "–"
