"""The admin's page of live connections: of every process, of the organizations one sees."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST

from accounts import audit
from accounts.models import AuditAction, Organization, User
from accounts.tenant_admin import reach_of
from mcpservers import peers
from mcpservers.connections import ConnectionInfo
from mcpservers.models import OwnServer


def connections(request: HttpRequest, site: Any) -> HttpResponse:
    """The list. Wrapped by the site, so that only who enters the admin comes here."""
    reach = reach_of(request)
    told = peers.everywhere()
    seen = [info for info in told.connections if reach.sees(info.organization_id)]
    context = {
        **site.each_context(request),
        "title": _("Live connections"),
        "rows": _rows(seen, reach),
        "complete": told.complete,
        "processes": any(info.process for info in seen),
        "organizations": reach.superuser or len(reach.visible) > 1,
    }
    return TemplateResponse(request, "admin/connections.html", context)


def _rows(seen: list[ConnectionInfo], reach: Any) -> list[dict[str, Any]]:
    users: dict[UUID | None, str] = dict(
        User.objects.filter(pk__in={info.user_id for info in seen}).values_list("pk", "username")
    )
    organizations = Organization.objects.in_bulk({info.organization_id for info in seen})
    servers = {info.server_id for info in seen}
    own = set(OwnServer.objects.as_system().filter(pk__in=servers, owner__isnull=False).values_list("pk", flat=True))
    return [
        {
            # What a server of a person's own says, and as whom, is that person's alone.
            "info": replace(info, last_error="", account="") if info.server_id in own else info,
            "is_own": info.server_id in own,
            "owner": users.get(info.user_id, ""),
            "organization": organizations.get(info.organization_id, ""),
            "closable": reach.manages(info.organization_id),
        }
        for info in seen
    ]


@require_POST
def close_connection(request: HttpRequest, site: Any) -> HttpResponse:
    """Close one connection; one of another organization does not exist."""
    reach = reach_of(request)
    wanted = request.POST.get("connection", "")
    for info in peers.everywhere().connections:
        if str(info.id) == wanted and reach.manages(info.organization_id):
            peers.close_connection(UUID(wanted))
            audit.record(
                AuditAction.CONNECTION_CLOSED,
                organization_id=info.organization_id,
                target=audit.Target("connection", info.id),
                person_id=info.user_id,
                server_id=info.server_id,
            )
            messages.success(request, _("The connection to “%(title)s” is being closed.") % {"title": info.title})
            return redirect("admin:connections")
    raise Http404
