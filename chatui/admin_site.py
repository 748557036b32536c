"""The admin's site: entered by membership through the ordinary sign-in, holding only what knows organizations."""

from __future__ import annotations

from collections.abc import Iterable
from functools import wraps
from typing import Any

from django.conf import settings
from django.contrib.auth.views import LogoutView
from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, resolve_url
from django.templatetags.static import static
from django.urls import URLPattern, path, reverse
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from unfold.sites import UnfoldAdminSite

from accounts import audit, signals
from accounts.models import Organization
from accounts.tenant_admin import TenantAdmin, reach_of
from chatui.admin_overview import overview


class ChatUIAdminSite(UnfoldAdminSite):  # type: ignore[misc]  # unfold has no type stubs
    index_title = _("Overview")
    index_template = "admin/overview.html"

    def register(self, model_or_iterable: Any, admin_class: type[Any] | None = None, **options: Any) -> None:
        """Register what is built on `TenantAdmin`; other packages' admins would show every tenant's rows (and keys)."""
        if admin_class is not None and issubclass(admin_class, TenantAdmin):
            super().register(model_or_iterable, admin_class, **options)

    def unregister(self, model_or_iterable: type[models.Model] | Iterable[type[models.Model]]) -> None:
        """Unregister what is registered: a package may want to replace what was never let in."""
        wanted = model_or_iterable if isinstance(model_or_iterable, Iterable) else [model_or_iterable]
        super().unregister([model for model in wanted if self.is_registered(model)])

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:
        """What a view of the admin records is by the person who asked for it, through the admin."""

        @wraps(view)
        def audited(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            with audit.acting(request.user.pk, audit.Via.ADMIN):
                answer: HttpResponseBase = view(request, *args, **kwargs)
                return answer

        return super().admin_view(audited, cacheable)

    def has_permission(self, request: HttpRequest) -> bool:
        return reach_of(request).sees()

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Never a form of its own: two-factor sign-in and rate limits are allauth's."""
        target = request.GET.get("next", "")
        if not url_has_allowed_host_and_scheme(target, {request.get_host()}, request.is_secure()):
            target = reverse("admin:index")
        if self.has_permission(request):
            return redirect(target)
        if request.user.is_authenticated:
            raise PermissionDenied(_("Only an organization's owners, admins and auditors enter the administration."))
        return redirect(f"{resolve_url(settings.LOGIN_URL)}?{urlencode({'next': target})}")

    def logout(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponseBase:
        user_id = request.user.pk
        answer = LogoutView.as_view(next_page=settings.LOGOUT_REDIRECT_URL)(request)
        if user_id is not None:
            signals.tell(user_id)
        return answer

    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return redirect("account_change_password")

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        page: HttpResponse = super().index(request, overview(request, self) | (extra_context or {}))
        return page

    def get_urls(self) -> list[URLPattern]:
        from conversations.admin_why import preview_as, why
        from mcpservers.admin_connections import close_connection, connections

        def mine(view: Any) -> Any:
            return self.admin_view(never_cache(view))

        return [
            path("connections/", mine(connections), {"site": self}, name="connections"),
            path("connections/close/", mine(close_connection), {"site": self}, name="connections_close"),
            path("why/", mine(why), {"site": self}, name="why"),
            path("preview/", mine(preview_as), {"site": self}, name="preview"),
            *super().get_urls(),
        ]


def narrow_styles(request: HttpRequest) -> str:
    """The address of what lets the theme's forms fit a narrow screen."""
    return static("admin/narrow.css")


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """The sidebar: what one sets up, in the order in which one does."""

    def item(title: Any, icon: str, name: str) -> dict[str, Any]:
        return {"title": title, "icon": icon, "link": reverse(f"admin:{name}")}

    reach = reach_of(request)
    looking = [item(_("Audit"), "history", "accounts_auditrecord_changelist")] if reach.audits() else []
    accounted = Organization.objects.filter(pk__in=reach.accounted).order_by("name") if reach.accounted else ()
    for organization in accounted:
        title = format_lazy("{}: {}", _("Usage"), organization.name) if len(accounted) > 1 else _("Usage")
        looking.append({"title": title, "icon": "bar_chart", "link": reverse("usage", args=[organization.slug])})
    return [
        {
            "title": _("Setting up"),
            "items": [
                item(_("Overview"), "home", "index"),
                item(_("Model endpoints"), "neurology", "agents_modelendpoint_changelist"),
                item(_("MCP servers"), "build", "mcpservers_mcpserver_changelist"),
                item(_("People's own servers"), "person_add", "mcpservers_ownserver_changelist"),
                item(_("Agents"), "smart_toy", "agents_agent_changelist"),
            ],
        },
        {
            "title": _("People"),
            "separator": True,
            "items": [
                item(_("Members"), "badge", "accounts_membership_changelist"),
                item(_("Groups"), "groups", "accounts_group_changelist"),
                item(_("Users"), "person", "accounts_user_changelist"),
                item(_("API keys"), "key", "accounts_apikey_changelist"),
                item(_("Preview as user"), "visibility", "preview"),
                item(_("Why can they (not)?"), "help", "why"),
                item(_("Organizations"), "domain", "accounts_organization_changelist"),
            ],
        },
        {
            "title": _("Running"),
            "separator": True,
            "items": [
                item(_("Live connections"), "cable", "connections"),
                item(_("Conversations"), "forum", "conversations_conversation_changelist"),
                *looking,
            ],
        },
    ]
