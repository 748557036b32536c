"""Signing in and out: the form of the contract, links, limits, and where it leads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from accounts.models import SigninLink, User
from tests.accounts.test_redirects import FOREIGN

LOGIN = "/accounts/login/"


@pytest.fixture(autouse=True)
def _fresh_limits() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


def sign_in(client: Client, login: str = "bob", password: str = "correct horse", **more: str) -> Any:
    return client.post(LOGIN, {"login": login, "password": password, **more})


def signed_in(client: Client) -> str | None:
    return client.session.get("_auth_user_id")


# --- The form -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("login", ["bob", "bob@example.org", "BOB@example.org"])
def test_a_person_signs_in_with_name_or_address(client: Client, bob: User, login: str) -> None:
    response = sign_in(client, login)
    assert (response.status_code, response.url) == (302, "/")
    assert signed_in(client) == str(bob.pk)


def test_the_form_names_its_fields_and_needs_the_csrf_token(bob: User) -> None:
    client = Client(enforce_csrf_checks=True)
    page = client.get(LOGIN).content.decode()
    assert 'name="login"' in page
    assert 'name="password"' in page
    assert sign_in(client).status_code == 403
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert token is not None
    assert sign_in(client, csrfmiddlewaretoken=token[1]).status_code == 302


def test_signing_out_needs_a_post(client: Client, bob: User) -> None:
    client.force_login(bob)
    assert client.get("/accounts/logout/").status_code == 200
    assert signed_in(client)
    assert client.post("/accounts/logout/").url == LOGIN
    assert signed_in(client) is None


def test_a_deactivated_user_does_not_get_in(client: Client, bob: User) -> None:
    User.objects.filter(pk=bob.pk).update(is_active=False)
    sign_in(client)
    assert signed_in(client) is None


def test_a_wrong_password_and_an_unknown_name_are_answered_alike(client: Client, bob: User) -> None:
    answers = []
    for login in ("bob", "nobody"):
        response = sign_in(client, login, "wrong")
        assert response.status_code == 200
        page = response.content.decode()
        answers.append(re.sub(r'value="[^"]*"', "", page))
    assert answers[0] == answers[1]
    assert "not correct" in answers[0]


def test_a_password_reset_does_not_tell_who_has_an_account(client: Client, bob: User) -> None:
    answers = []
    for address in ("bob@example.org", "nobody@example.org"):
        response = client.post("/accounts/password/reset/", {"email": address}, follow=True)
        answers.append((response.redirect_chain, re.sub(r'value="[^"]*"', "", response.content.decode())))
    assert answers[0] == answers[1]
    assert [message.to for message in mail.outbox] == [["bob@example.org"], ["nobody@example.org"]]


def test_the_link_of_a_password_reset_sets_a_new_password(client: Client, bob: User) -> None:
    client.post("/accounts/password/reset/", {"email": "bob@example.org"})
    link = re.search(r"http://testserver(/accounts/password/reset/key/\S+)", str(mail.outbox[0].body))
    assert link is not None
    page = client.get(link[1], follow=True)
    target = page.redirect_chain[-1][0]
    words = "another good horse"
    assert client.post(target, {"password1": words, "password2": words}).status_code == 302
    assert sign_in(Client(), password=words).status_code == 302


def test_guessing_is_slowed_down_for_one_account(client: Client, bob: User) -> None:
    for _ in range(5):
        sign_in(client, password="wrong")
    page = sign_in(client).content.decode()
    assert signed_in(client) is None
    assert "Too many failed login attempts" in page


def test_guessing_is_slowed_down_for_one_address(client: Client, bob: User) -> None:
    statuses = [sign_in(client, f"user{number}", "wrong").status_code for number in range(40)]
    assert statuses[-1] == 429
    other = Client(REMOTE_ADDR="192.0.2.7")
    assert sign_in(other).status_code == 302


def test_a_forwarded_address_counts_only_behind_a_proxy_of_ours(client: Client, bob: User, settings: Any) -> None:
    for number in range(40):
        response = client.post(
            LOGIN, {"login": f"u{number}", "password": "x"}, headers={"X-Forwarded-For": f"192.0.2.{number}"}
        )
    assert response.status_code == 429
    cache.clear()
    settings.ALLAUTH_TRUSTED_PROXY_COUNT = 1
    for number in range(40):
        response = client.post(
            LOGIN, {"login": f"u{number}", "password": "x"}, headers={"X-Forwarded-For": f"192.0.2.{number}"}
        )
    assert response.status_code == 200


def test_a_server_on_a_unix_socket_knows_no_address_and_works(bob: User) -> None:
    assert sign_in(Client(REMOTE_ADDR="")).status_code == 302


# --- Sign-up ------------------------------------------------------------------------------------------------------


def test_sign_up_is_closed_unless_it_is_opened(client: Client, db: None) -> None:
    response = client.get("/accounts/signup/")
    assert "Sign-up is closed" in response.content.decode()
    client.post("/accounts/signup/", SIGNUP)
    assert not User.objects.exists()
    assert "Sign up" not in client.get(LOGIN).content.decode()


SIGNUP = {"email": "eve@example.org", "username": "eve", "password1": "correct horse x", "password2": "correct horse x"}


@pytest.fixture
def _open_signup(settings: Any) -> None:
    settings.SIGNUP_OPEN, settings.ACCOUNT_EMAIL_VERIFICATION = True, "mandatory"


@pytest.mark.usefixtures("_open_signup", "db")
def test_an_open_sign_up_makes_an_account_that_waits_for_its_mail(client: Client) -> None:
    assert "Sign up" in client.get(LOGIN).content.decode()
    assert client.post("/accounts/signup/", SIGNUP).status_code == 302
    eve = User.objects.get(username="eve")
    assert not eve.memberships.exists()
    sign_in(client, "eve", SIGNUP["password1"])
    assert signed_in(client) is None
    link = re.search(r"http://testserver(/accounts/confirm-email/\S+)", str(mail.outbox[0].body))
    assert link is not None
    assert client.get(link[1]).status_code == 200
    client.post(link[1])
    sign_in(client, "eve", SIGNUP["password1"])
    assert signed_in(client) == str(eve.pk)


@pytest.mark.usefixtures("_open_signup")
def test_an_open_sign_up_does_not_tell_who_has_an_account(client: Client, bob: User) -> None:
    answers = []
    for address, username in (("bob@example.org", "eve"), ("new@example.org", "eva")):
        form = {**SIGNUP, "email": address, "username": username}
        response = client.post("/accounts/signup/", form, follow=True)
        sign_in(client, username, SIGNUP["password1"])
        assert signed_in(client) is None
        page = response.content.decode().replace(address, "").replace(username, "")
        answers.append((response.redirect_chain, re.sub(r'value="[^"]*"', "", page)))
        client.get("/accounts/login/")  # takes the waiting messages
    assert answers[0] == answers[1]
    assert "already" in str(mail.outbox[0].body)


@pytest.mark.usefixtures("_open_signup")
def test_accounts_made_by_an_administrator_wait_for_no_mail(client: Client, bob: User) -> None:
    sign_in(client)
    assert signed_in(client) == str(bob.pk)


# --- Where it leads -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", FOREIGN)
def test_a_sign_in_never_leads_to_another_site(client: Client, bob: User, address: str) -> None:
    assert sign_in(client, next=address).url == "/"
    client.logout()
    cache.clear()
    assert client.post(f"{LOGIN}?next=" + address.strip(), {"login": "bob", "password": "correct horse"}).url == "/"
    link = f"/accounts/link/{SigninLink.issue(bob)}/"
    client.logout()
    assert client.post(link, {"next": address}).url == "/"


def test_a_sign_in_leads_back_to_the_page_that_asked_for_it(client: Client, bob: User) -> None:
    asked = client.get("/o/acme/")
    assert asked.url == f"{LOGIN}?next=/o/acme/"
    page = client.get(asked.url).content.decode()
    assert 'value="/o/acme/"' in page
    assert sign_in(client, next="/o/acme/").url == "/o/acme/"


def test_who_is_signed_in_already_is_led_on_safely(client: Client, bob: User) -> None:
    client.force_login(bob)
    assert client.get(f"{LOGIN}?next=//evil.example").url == "/"
    assert client.post("/accounts/logout/", {"next": "//evil.example"}).url == LOGIN


# --- The one-time link --------------------------------------------------------------------------------------------


@pytest.fixture
def link(bob: User) -> str:
    return f"/accounts/link/{SigninLink.issue(bob)}/"


def test_looking_at_a_link_does_not_use_it_up(client: Client, bob: User, link: str) -> None:
    for _ in range(2):
        response = client.get(link)
        assert response.status_code == 200
        assert "no-store" in response["Cache-Control"]
    client.head(link)
    assert signed_in(client) is None
    assert client.post(link).url == "/"
    assert signed_in(client) == str(bob.pk)


def test_a_link_works_once(client: Client, link: str) -> None:
    client.post(link)
    other = Client()
    for response in (other.get(link), other.post(link)):
        assert response.status_code == 410
        assert "This link no longer works" in response.content.decode()
    assert signed_in(other) is None


def test_a_link_expires_after_ten_minutes(client: Client, bob: User) -> None:
    now = timezone.now()
    old = SigninLink.issue(bob, now=now - timedelta(minutes=10, seconds=1))
    young = SigninLink.issue(bob, now=now - timedelta(minutes=9, seconds=30))
    assert client.post(f"/accounts/link/{old}/").status_code == 410
    assert client.post(f"/accounts/link/{young}/").status_code == 302


def test_a_made_up_link_is_the_same_page_as_a_used_one(client: Client, link: str) -> None:
    client.post(link)
    client.logout()
    pages = [client.get(address) for address in (link, "/accounts/link/made-up/", "/accounts/link/%00/")]
    assert {page.status_code for page in pages} == {410}
    assert len({page.content for page in pages}) == 1


def test_a_link_of_a_deactivated_user_does_not_work(client: Client, bob: User, link: str) -> None:
    User.objects.filter(pk=bob.pk).update(is_active=False)
    assert client.post(link).status_code == 410


def test_the_button_of_a_link_needs_the_csrf_token(link: str) -> None:
    client = Client(enforce_csrf_checks=True)
    assert client.post(link).status_code == 403
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', client.get(link).content.decode())
    assert token is not None
    assert client.post(link, {"csrfmiddlewaretoken": token[1]}).status_code == 302


def test_a_link_says_whom_it_replaces_and_changes_the_session(
    client: Client, alice: User, bob: User, link: str
) -> None:
    client.force_login(alice)
    before = client.session.session_key
    assert "You are signed in as alice" in client.get(link).content.decode()
    client.post(link)
    assert signed_in(client) == str(bob.pk)
    assert client.session.session_key != before


def test_a_link_does_not_replace_the_second_factor(client: Client, bob: User, link: str) -> None:
    from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret

    TOTP.activate(bob, generate_totp_secret())
    response = client.post(link)
    assert response.url == "/accounts/2fa/authenticate/"
    assert signed_in(client) is None
    assert client.get(response.url).status_code == 200


# --- Every page of the account ------------------------------------------------------------------------------------

PAGES = [
    "/accounts/password/change/",
    "/accounts/email/",
    "/accounts/2fa/",
    "/accounts/2fa/totp/activate/",
    "/accounts/logout/",
    "/accounts/reauthenticate/",
]


@pytest.mark.parametrize("address", PAGES)
def test_the_accounts_pages_need_a_person_and_render_in_our_layout(client: Client, bob: User, address: str) -> None:
    if address != "/accounts/logout/":
        assert client.get(address).url.startswith(LOGIN)
    sign_in(client)
    client.post("/accounts/reauthenticate/", {"password": "correct horse"})
    response = client.get(address)
    assert response.status_code == 200
    page = response.content.decode()
    assert "css/account.css" in page
    assert "<style" not in page
    assert " style=" not in page
    assert not re.search(r"<script(?![^>]*(src=|application/json))", page)


# --- One's own settings -------------------------------------------------------------------------------------------


def test_the_page_of_ones_settings_leads_to_all_of_ones_account(client: Client, bob: User) -> None:
    assert client.get("/settings/").headers["Location"] == "/accounts/login/?next=/settings/"
    client.force_login(bob)
    page = client.get("/settings/").content.decode()
    for address in ("/accounts/email/", "/accounts/password/change/", "/accounts/2fa/", "/o/acme/"):
        assert f'href="{address}"' in page
    assert "bob@example.org" in page
    assert "Off" in page
