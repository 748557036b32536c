"""The chat's pages: the server renders the frame with a composer that takes text, scripts fill in the rest."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from csp.constants import NONCE
from csp.decorators import csp_update
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.db.models import F
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.csrf import ensure_csrf_cookie
from django.views.decorators.http import require_safe

from accounts import policy
from accounts.actors import Actor, find_actor
from accounts.models import Membership, Organization
from conversations.browser_modules import import_map, preloads
from conversations.models import Conversation

ATTACHMENTS_PER_MESSAGE = 10


@require_safe
@login_required
def home(request: HttpRequest) -> HttpResponse:
    """The chat of the organization that the user used last; a page that says so where there is none."""
    assert request.user.is_authenticated
    memberships = Membership.objects.active().filter(user_id=request.user.pk).select_related("organization")
    last = memberships.order_by(F("last_used_at").desc(nulls_last=True), "organization__name").first()
    if last is None:
        return render(request, "chat/no_organization.html")
    return redirect(f"/o/{last.organization.slug}/")


@require_safe
@login_required
@ensure_csrf_cookie
@csp_update({"script-src": [NONCE]})  # type: ignore[arg-type]  # for the import map alone; typed for views without arguments
def chat(request: HttpRequest, organization: str, conversation: UUID | None = None) -> HttpResponse:
    """A new chat, or the conversation with that id. Another owner's or another organization's is 404."""
    assert request.user.is_authenticated
    actor = find_actor(request.user.pk, organization)
    if actor is None:
        raise Http404
    title = ""
    if conversation is None and not policy.allows(actor, policy.Action.CHAT):
        return without_chat(request, actor)
    if conversation is not None:
        found = Conversation.objects.visible_to(actor).filter(pk=conversation).values_list("title", flat=True).first()
        if found is None or not policy.allows(actor, policy.Action.CHAT):  # an auditor's own, of earlier days
            raise Http404
        title = found
    _remember(actor)
    context = {
        "title": title,
        "config": _config(actor, conversation),
        "import_map": json.dumps({"imports": import_map()}),
        "preloads": preloads(),
        "api": _first_requests(actor, conversation),
    }
    return render(request, "chat/chat.html", context)


def without_chat(request: HttpRequest, actor: Actor) -> HttpResponse:
    """For a member whose role does not chat: what it is for, and the way there."""
    _remember(actor)
    others = Membership.objects.active().filter(user_id=actor.user_id).exclude(organization=actor.organization_id)
    context = {
        "organization": Organization.objects.get(pk=actor.organization_id),
        "role": actor.role.label,
        "reads_audit": bool(policy.allows(actor, policy.Action.READ_AUDIT)),
        "others": [row.organization for row in others.select_related("organization")],
    }
    return render(request, "chat/no_chat.html", context)


def _remember(actor: Actor) -> None:
    """Let `/` lead back to this organization; one write, and only when it was not the last used already."""
    mine = Membership.objects.filter(user_id=actor.user_id).order_by(F("last_used_at").desc(nulls_last=True))
    last = mine.values_list("organization_id", "last_used_at").first()
    if last is None or last[0] != actor.organization_id or last[1] is None:
        mine.filter(organization_id=actor.organization_id).update(last_used_at=timezone.now())


def _config(actor: Actor, conversation: UUID | None) -> dict[str, Any]:
    """What the scripts are told with the page; everything else comes over the API and the socket."""
    memberships = Membership.objects.active().filter(user_id=actor.user_id).select_related("organization")
    organizations = [{"slug": row.organization.slug, "name": row.organization.name} for row in memberships]
    organizations.sort(key=lambda row: row["name"].casefold())
    return {
        "user": {"id": str(actor.user_id), "username": actor.username, "name": actor.name or actor.username},
        "organization": next(row for row in organizations if row["slug"] == actor.organization_slug),
        "organizations": organizations,
        "conversation": str(conversation) if conversation else None,
        "admin": bool(policy.allows(actor, policy.Action.MANAGE)),
        "csrf_cookie": settings.CSRF_COOKIE_NAME,
        "limits": {
            "attachment_bytes": settings.ATTACHMENT_MAX_BYTES,
            "attachments": ATTACHMENTS_PER_MESSAGE,
            "text_bytes": settings.SOCKET["MAX_TEXT"],
            "frame_characters": settings.SOCKET["MAX_MESSAGE"],
        },
    }


def _first_requests(actor: Actor, conversation: UUID | None) -> list[str]:
    """What the scripts will ask for first, so that the browser asks while it still loads them."""
    query = f"?organization={actor.organization_slug}"
    addresses = [f"/api/v1/agents{query}", f"/api/v1/conversations{query}"]
    if conversation is not None:
        addresses.append(f"/api/v1/conversations/{conversation}/messages{query}")
    return addresses
