"""The one-time sign-in link, which looking at does not use up; and the page of one's own settings."""

from __future__ import annotations

from allauth.account.internal.flows.login import record_authentication
from allauth.account.utils import perform_login
from allauth.mfa.utils import is_mfa_enabled
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods, require_safe

from accounts.models import Membership, SigninLink
from accounts.redirects import local_path


@sensitive_variables("secret")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def signin_link(request: HttpRequest, secret: str) -> HttpResponse:
    """`/accounts/link/<secret>/`. GET shows a button, so that a preview of the link does not use it up.

    POST signs in through allauth's stages: a second factor is still asked for. A link that is used, expired, unknown
    or of a deactivated user is the same page, with status 410.
    """
    if request.method != "POST":
        link = SigninLink.objects.find(secret)
        if link is None:
            return _gone(request)
        return render(
            request, "account/link.html", {"link_user": link.user, "next": local_path(request.GET.get("next"))}
        )
    user = SigninLink.objects.use(secret)
    if user is None:
        return _gone(request)
    record_authentication(request, user, method="link")
    response: HttpResponse = perform_login(request, user, redirect_url=local_path(request.POST.get("next")))
    return response


@never_cache
@require_safe
@login_required
def own_settings(request: HttpRequest) -> HttpResponse:
    """`/settings/`: who one is here, and the ways to one's addresses, password, factors and organizations."""
    user = request.user
    assert user.is_authenticated
    mine = Membership.objects.active().filter(user_id=user.pk).select_related("organization")
    context = {
        "memberships": mine.order_by("organization__name"),
        "has_password": user.has_usable_password(),
        "has_factors": is_mfa_enabled(user),
    }
    return render(request, "account/settings.html", context)


def _gone(request: HttpRequest) -> HttpResponse:
    return render(request, "account/link_gone.html", status=410)
