"""The admin's pages that explain: why somebody can or cannot use a tool, and what an agent would offer somebody."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from accounts.models import Organization, User
from accounts.tenant_admin import Reach, reach_of
from agents.models import Agent
from conversations.explaining import explain, preview
from mcpservers.admin_tools import stored_tools
from mcpservers.models import MCPServer


class _OfOrganization(forms.Form):
    """Choices among the rows of one organization, which one sees; it is chosen first where there are several."""

    organization = forms.ModelChoiceField(
        label=_("Organization"), queryset=Organization.objects.none(), widget=UnfoldAdminSelectWidget
    )
    user = forms.ModelChoiceField(label=_("User"), queryset=User.objects.none(), widget=UnfoldAdminSelectWidget)

    def __init__(self, reach: Reach, data: Any) -> None:
        seen = Organization.objects.all() if reach.superuser else Organization.objects.filter(pk__in=reach.visible)
        values = data.copy()
        if "organization" not in values and seen.count() == 1:
            values["organization"] = str(seen.get().pk)
        super().__init__(values if "user" in values else None, initial=values.dict())
        self.fields["organization"].queryset = seen  # type: ignore[attr-defined]  # of a ModelChoiceField
        self.chosen = _chosen(seen, values.get("organization", ""))
        for name, rows in self.choices(self.chosen).items():
            self.fields[name].queryset = rows  # type: ignore[attr-defined]  # of a ModelChoiceField

    def choices(self, organization: Organization | None) -> dict[str, Any]:
        members = User.objects.filter(memberships__organization=organization).order_by("username")
        return {"user": members if organization else User.objects.none()}


def _chosen(seen: Any, key: str) -> Organization | None:
    try:
        found: Organization | None = seen.filter(pk=key).first() if key else None
    except (ValueError, forms.ValidationError):  # no id at all
        return None
    return found


class WhyForm(_OfOrganization):
    server = forms.ModelChoiceField(
        label=_("MCP server"), queryset=MCPServer.objects.as_system().none(), widget=UnfoldAdminSelectWidget
    )
    tool = forms.CharField(
        label=_("Tool"),
        max_length=200,
        help_text=_("As the server calls it."),
        widget=UnfoldAdminTextInputWidget(attrs={"list": "tools"}),
    )
    agent = forms.ModelChoiceField(
        label=_("Agent"),
        queryset=Agent.objects.as_system().none(),
        required=False,
        empty_label=_("whatever agent"),
        widget=UnfoldAdminSelectWidget,
    )

    def choices(self, organization: Organization | None) -> dict[str, Any]:
        return super().choices(organization) | {
            "server": MCPServer.objects.as_system().filter(organization=organization, owner=None),
            "agent": Agent.objects.as_system().filter(organization=organization),
        }


class PreviewForm(_OfOrganization):
    agent = forms.ModelChoiceField(
        label=_("Agent"), queryset=Agent.objects.as_system().none(), widget=UnfoldAdminSelectWidget
    )

    def choices(self, organization: Organization | None) -> dict[str, Any]:
        return super().choices(organization) | {"agent": Agent.objects.as_system().filter(organization=organization)}


def why(request: HttpRequest, site: Any) -> HttpResponse:
    """*Why can or cannot this user use this tool?* Wrapped by the site: only who enters the admin comes here."""
    form = WhyForm(reach_of(request), request.GET)
    explanation, tools = None, []
    if form.is_valid():
        given = form.cleaned_data
        explanation = explain(given["user"], given["server"], given["tool"], given["agent"])
        listed = stored_tools(given["server"])
        tools = [(tool.name, tool.shown_name) for tool in listed.tools] if listed else []
    context = {
        **site.each_context(request),
        "title": _("Why can or cannot they use it?"),
        "form": form,
        "explanation": explanation,
        "tools": tools,
    }
    return TemplateResponse(request, "admin/why.html", context)


def preview_as(request: HttpRequest, site: Any) -> HttpResponse:
    """*Preview as user*: what an agent would offer somebody, without the right to read that person's chats."""
    form = PreviewForm(reach_of(request), request.GET)
    found = preview(form.cleaned_data["user"], form.cleaned_data["agent"]) if form.is_valid() else None
    context = {
        **site.each_context(request),
        "title": _("Preview as user"),
        "form": form,
        "preview": found,
    }
    return TemplateResponse(request, "admin/preview.html", context)
