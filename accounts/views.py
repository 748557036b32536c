"""The one-time sign-in link: looking at it changes nothing, pressing its button signs in and uses it up."""

from __future__ import annotations

from allauth.account.internal.flows.login import record_authentication
from allauth.account.utils import perform_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods

from accounts.models import SigninLink
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


def _gone(request: HttpRequest) -> HttpResponse:
    return render(request, "account/link_gone.html", status=410)
