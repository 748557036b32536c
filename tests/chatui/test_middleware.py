"""Security headers on every kind of page, the admin's own policy, and static files in both kinds of server."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import AsyncClient, Client
from django.utils.module_loading import import_string

from accounts.models import User


@pytest.mark.parametrize("address", ["/accounts/login/", "/accounts/link/x/", "/nothing", "/o/acme/"])
def test_every_page_has_a_strict_policy(client: Client, alice: User, address: str) -> None:
    client.force_login(alice)
    response = client.get(address, follow=True)
    policy = directives(response["Content-Security-Policy"])
    assert policy["default-src"] == "'self'"
    assert policy["object-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["form-action"] == "'self'"
    assert "unsafe" not in policy["script-src"] + policy["style-src"]
    assert "*" not in response["Content-Security-Policy"]
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["X-Frame-Options"] == "DENY"
    assert response["Referrer-Policy"] == "same-origin"
    assert response["Cross-Origin-Opener-Policy"] == "same-origin"
    assert "camera=()" in response["Permissions-Policy"]


def test_the_admin_has_its_own_policy(client: Client, db: None) -> None:
    policy = directives(client.get("/admin/login/")["Content-Security-Policy"])
    assert policy["script-src"] == "'self' 'unsafe-eval'"
    assert policy["style-src"] == "'self' 'unsafe-inline'"
    assert policy["frame-ancestors"] == policy["object-src"] == "'none'"


def directives(policy: str) -> dict[str, str]:
    return dict(part.strip().partition(" ")[::2] for part in policy.split(";"))


def test_cookies_are_for_this_site_and_for_tls_where_it_is_used(client: Client, bob: User, settings: Any) -> None:
    settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = True
    response = client.post("/accounts/login/", {"login": "bob", "password": "correct horse"})
    session, csrf = response.cookies["sessionid"], client.get("/accounts/logout/").cookies["csrftoken"]
    assert session["httponly"]
    for cookie in (session, csrf):
        assert cookie["samesite"] == "Lax"
        assert cookie["secure"]


def test_static_files_are_served_by_a_synchronous_server(client: Client) -> None:
    response = client.get("/static/css/theme.css")
    assert response["Content-Type"].startswith("text/css")
    assert b":root" in b"".join(response)


async def test_static_files_are_served_without_a_thread_per_request() -> None:
    client = AsyncClient()
    whole = await client.get("/static/css/theme.css")
    assert whole["Content-Type"].startswith("text/css")
    assert b":root" in whole.content
    assert whole["X-Content-Type-Options"] == "nosniff"
    part = await client.get("/static/css/theme.css", headers={"range": "bytes=0-9"})
    assert (part.status_code, part.content) == (206, whole.content[:10])
    head = await client.head("/static/css/theme.css")
    assert (head.content, head["Content-Length"]) == (b"", str(len(whole.content)))
    again = await client.get("/static/css/theme.css", headers={"if-none-match": whole["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert (await client.post("/static/css/theme.css")).status_code == 405


@pytest.mark.parametrize("address", ["/static/../chatui/settings.py", "/static/%2e%2e/manage.py", "/static/nothing.js"])
async def test_nothing_but_static_files_is_served(address: str, transactional_db: None) -> None:
    assert (await AsyncClient().get(address)).status_code == 404


async def test_a_file_that_appears_later_is_found_in_development(settings: Any) -> None:
    settings.WHITENOISE_AUTOREFRESH = True
    response = await AsyncClient().get("/static/css/theme.css")
    assert b":root" in response.content


def test_no_middleware_takes_a_request_out_of_the_event_loop(settings: Any) -> None:
    assert [name for name in settings.MIDDLEWARE if not getattr(import_string(name), "async_capable", False)] == []
