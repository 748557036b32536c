"""What is answered when no view answers: pages for people, JSON for programs, a reference for the unexpected."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client
from django.urls import path

from chatui import urls as real

urlpatterns = [
    path(f"{prefix}{name}", view)
    for prefix in ("", "api/v1/", "v1/")
    for name, view in {
        "broken": lambda request: _raise(RuntimeError("secret table accounts_user")),
        "denied": lambda request: _raise(PermissionDenied("because of the secret table")),
        "odd": lambda request: _raise(SuspiciousOperation("odd")),
    }.items()
] + real.urlpatterns
handler400, handler403, handler404, handler500 = real.handler400, real.handler403, real.handler404, real.handler500
PATHS = [("broken", 500), ("denied", 403), ("odd", 400), ("nothing-here", 404)]


def _raise(error: Exception) -> HttpResponse:
    raise error


async def _broken(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("secret table accounts_user")


urlpatterns.append(path("broken-async", _broken))


@pytest.fixture(autouse=True)
def _urls(settings: Any) -> None:
    settings.ROOT_URLCONF = __name__


@pytest.fixture
def client() -> Client:
    return Client(raise_request_exception=False)


@pytest.mark.parametrize(("name", "status"), PATHS)
def test_a_person_gets_a_page_of_ours_without_database_or_traceback(client: Client, name: str, status: int) -> None:
    response = client.get(f"/{name}")
    assert response.status_code == status
    page = response.content.decode()
    assert "css/theme.css" in page
    assert 'href="/"' in page
    assert "secret" not in page
    assert "Traceback" not in page
    assert "script-src 'self'" in response["Content-Security-Policy"]
    assert response["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("prefix", ["api/v1/", "v1/"])
@pytest.mark.parametrize(("name", "status"), PATHS)
def test_a_program_gets_json(client: Client, prefix: str, name: str, status: int) -> None:
    response = client.get(f"/{prefix}{name}")
    assert response.status_code == status
    error = response.json()["error"]
    assert error["message"]
    assert error["code"]
    assert error["type"] == ("server_error" if status >= 500 else "invalid_request_error")
    assert "secret" not in response.content.decode()


def test_an_unexpected_error_is_logged_under_the_reference_that_is_shown(client: Client, caplog: Any) -> None:
    page = client.get("/broken").content.decode()
    (record,) = [record for record in caplog.records if record.name == "chatui.error_pages"]
    assert record.args is not None
    assert str(record.args[0]) in page
    assert record.exc_info is not None
    assert "accounts_user" in str(record.exc_info[1])


async def test_an_unexpected_error_of_an_asynchronous_view_is_too(caplog: Any) -> None:
    response = await AsyncClient(raise_request_exception=False).get("/broken-async")
    assert response.status_code == 500
    (record,) = [record for record in caplog.records if record.name == "chatui.error_pages"]
    assert "accounts_user" in str(record.exc_info[1])
    assert str(record.args[0]) in response.content.decode()


def test_a_foreign_host_gets_a_page_and_not_a_traceback(client: Client) -> None:
    response = client.get("/", headers={"host": "evil.example"})
    assert response.status_code == 400
    assert "evil" not in response.content.decode()


def test_a_form_without_its_token_says_what_to_do(transactional_db: None) -> None:
    response = Client(enforce_csrf_checks=True).post("/accounts/login/", {"login": "x", "password": "y"})
    assert response.status_code == 403
    assert "reload the page" in response.content.decode()
    assert "css/theme.css" in response.content.decode()
