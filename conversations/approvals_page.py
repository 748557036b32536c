"""The page of approvals: the frame from the server, everything in it over the API and the socket."""

from __future__ import annotations

import json

from csp.constants import NONCE
from csp.decorators import csp_update
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.csrf import ensure_csrf_cookie
from django.views.decorators.http import require_safe

from accounts import policy
from accounts.actors import find_actor
from accounts.models import Organization
from conversations.browser_modules import import_map
from conversations.views import without_chat


@require_safe
@login_required
@ensure_csrf_cookie
@csp_update({"script-src": [NONCE]})  # type: ignore[arg-type]  # for the import map alone; typed for views without arguments
def approvals(request: HttpRequest, organization: str) -> HttpResponse:
    """`/o/<org>/approvals/`, for its members; to everybody else there is nothing at that address."""
    assert request.user.is_authenticated
    actor = find_actor(request.user.pk, organization)
    if actor is None:
        raise Http404
    if not policy.allows(actor, policy.Action.ANSWER):
        return without_chat(request, actor)
    context = {
        "organization": Organization.objects.get(pk=actor.organization_id),
        "config": {
            "user": {"id": str(actor.user_id)},
            "organization": {"slug": actor.organization_slug},
            "csrf_cookie": settings.CSRF_COOKIE_NAME,
        },
        "import_map": json.dumps({"imports": import_map()}),
    }
    return render(request, "approvals/page.html", context)
