"""Signing in by OpenID Connect as allauth does it, and keeping the identity token, which it would throw away."""

from __future__ import annotations

from typing import Any

from allauth.account.internal.decorators import login_not_required
from allauth.socialaccount.models import SocialApp
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase


class Adapter(OpenIDConnectOAuth2Adapter):  # type: ignore[misc]  # allauth has no type stubs
    """`token.id_token` of a sign-in is the identity token as it came; for receivers of allauth's signals."""

    def parse_token(self, data: dict[str, Any]) -> Any:
        token = super().parse_token(data)
        token.id_token = data.get("id_token") or ""
        return token


@login_not_required  # type: ignore[untyped-decorator]  # allauth has no type stubs
def callback(request: HttpRequest, provider_id: str) -> HttpResponseBase:
    """Where the provider sends the browser back to; see `allauth…openid_connect.views.callback`."""
    try:
        answer: HttpResponseBase = OAuth2CallbackView.adapter_view(Adapter(request, provider_id))(request)
    except SocialApp.DoesNotExist:
        raise Http404 from None
    return answer
