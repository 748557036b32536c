"""People's own servers in the admin: that there are some, whose and where, and a switch. Nothing else of them shows."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib import admin
from django.db import transaction
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from accounts.tenant_admin import TenantAdmin, TenantFilter
from mcpservers import peers
from mcpservers.models import OwnServer


@admin.register(OwnServer)
class OwnServerAdmin(TenantAdmin):
    list_display = ("title", "person", "host", "organization", "enabled", "barred", "last_connected_at")
    list_select_related = ("organization", "owner")
    list_filter = (("organization", TenantFilter), "enabled", "barred")
    search_fields = ("title", "slug", "owner__username", "owner__email")
    readonly_fields = ("title", "slug", "person", "host", "enabled", "created_at", "last_connected_at")
    fieldsets = (
        (None, {"fields": ("organization", "person", "title", "slug", "host", "created_at", "last_connected_at")}),
        (_("Use"), {"fields": ("enabled", "barred")}),
    )

    def get_queryset(self, request: HttpRequest) -> Any:
        # Secrets and addresses are not even read; `url` is, for its host.
        hidden = ("headers", "env", "oauth", "variables")
        return super().get_queryset(request).filter(owner__isnull=False).defer(*hidden)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # each is added by the person whom it serves

    @admin.display(description=_("Person"), ordering="owner__username")
    def person(self, obj: OwnServer) -> str:
        return str(obj.owner)

    @admin.display(description=_("Host"))
    def host(self, obj: OwnServer) -> str:
        return obj.host

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if obj.barred:
            obj.enabled = False
        obj.revision += 1
        obj.save(update_fields=["barred", "enabled", "revision", "updated_at"])
        transaction.on_commit(partial(peers.server_changed, obj.pk))
