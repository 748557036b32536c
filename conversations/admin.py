"""Conversations in the admin: that they are, whose, and how their turns ended. Never what was said."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Count, OuterRef, Subquery
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from accounts.tenant_admin import TenantAdmin, TenantFilter, TenantTabularInline
from conversations import audit_admin
from conversations.models import Conversation, Turn

__all__ = ["audit_admin"]  # registers itself


class TurnInline(TenantTabularInline):
    model = Turn
    fields = readonly_fields = (
        "kind",
        "status",
        "created_at",
        "ended_at",
        "rounds",
        "calls_made",
        "running_seconds",
        "last_seq",
    )
    can_delete = False
    max_num = 0
    ordering = ("-created_at",)


@admin.register(Conversation)
class ConversationAdmin(TenantAdmin):
    """The title is left out: it is made of the first question."""

    view_only = True
    list_display = ("id", "organization", "owner", "agent", "kind", "messages_count", "last_status", "active_at")
    list_select_related = ("organization", "owner", "agent")
    list_filter = (("organization", TenantFilter), "kind", ("agent", TenantFilter))
    search_fields = ("=id", "owner__username")
    inlines = (TurnInline,)
    fields = ("id", "organization", "owner", "agent", "kind", "created_at", "active_at", "archived", "deleted_at")

    def get_queryset(self, request: HttpRequest) -> Any:
        last = Turn.objects.filter(conversation=OuterRef("pk")).order_by("-created_at").values("status")[:1]
        rows = super().get_queryset(request).annotate(number=Count("messages"), last=Subquery(last))
        return rows.order_by("-active_at")

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        conversation = super().get_object(request, object_id, from_field)
        if conversation is not None:
            conversation.title = ""  # its page is then named by its id
        return conversation

    @admin.display(description=_("Messages"))
    def messages_count(self, obj: Any) -> int:
        return int(obj.number)

    @admin.display(description=_("Last turn"))
    def last_status(self, obj: Any) -> str:
        return str(obj.last or "–")
