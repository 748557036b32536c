"""The fake is good enough an OpenID Connect provider for django-allauth to sign people in with it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.test import Client

from accounts.models import User
from mcpservers.models import SignInToken
from mcpservers.oauth.signins import expiry_of
from tests.fakes.authpages import consent_now, query_of
from tests.fakes.authserver import FakeAuthServer, serving


@pytest.mark.django_db
def test_a_person_signs_in_by_openid_connect(settings: Any) -> None:
    with serving(FakeAuthServer()) as auth:
        auth.configure("site", "secret", auth_method="client_secret")  # allauth prefers the form
        app = {
            "provider_id": "fake",
            "name": "Fake",
            "client_id": "site",
            "secret": "secret",
            "settings": {"server_url": auth.issuer, "oauth_pkce_enabled": True},
        }
        settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"APPS": [app]}}
        settings.SIGNUP_OPEN = True
        browser = Client()
        begun = browser.post("/accounts/oidc/fake/login/")
        back = consent_now(begun["location"], user="grace")
        answer = browser.get("/accounts/oidc/fake/login/callback/", query_of(back))
        assert answer.status_code == 302
        assert "_auth_user_id" in browser.session, answer["location"]
        assert User.objects.get(pk=browser.session["_auth_user_id"]).email == "grace@notes.example"
        assert auth.last("token").form["code_verifier"]
        assert auth.count("userinfo") == 1
        kept = SignInToken.objects.get(user_id=browser.session["_auth_user_id"]).tokens
        assert auth.valid(kept["access_token"])
        assert expiry_of(kept["id_token"]) > time.time()
