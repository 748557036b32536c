"""Each start-up check finds its misconfiguration, says what to set, and is silent on a good configuration."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import connection

from accounts.models import Organization
from agents.models import ModelEndpoint
from chatui import checks
from tests.settings import TEST_REDIS_URL

GOOD = {
    "SECRET_KEY": "a-secret-0123456789-" * 3,
    "ENCRYPTION_KEYS": ["a-key"],
    "BASE_URL": "https://chat.example.org",
    "ALLOWED_HOSTS": ["chat.example.org"],
    "SECURE_PROXY_SSL_HEADER": ("HTTP_X_FORWARDED_PROTO", "https"),
    "EMAIL_BACKEND": "django.core.mail.backends.smtp.EmailBackend",
    "REDIS_URL": TEST_REDIS_URL,
    "SESSION_COOKIE_SECURE": True,
    "CSRF_COOKIE_SECURE": True,
    "SECURE_HSTS_SECONDS": 31536000,
    "MCP_ENV_ALLOWLIST": ["TICKETS_TOKEN"],
}


@pytest.fixture
def _good(settings: Any, db: None) -> None:
    for name, value in GOOD.items():
        setattr(settings, name, value)


def found(*, deploy: bool = False) -> dict[str, str]:
    """Our messages by id, each with its hint."""
    messages = run_checks(include_deployment_checks=deploy)
    return {str(item.id): f"{item.msg} {item.hint}" for item in messages if str(item.id).startswith("chatui.")}


@pytest.mark.usefixtures("_good")
def test_a_good_production_configuration_passes_every_check_of_ours_and_djangos() -> None:
    if connection.vendor == "sqlite":
        assert set(found(deploy=True)) == {"chatui.E009"}
    else:
        call_command("check", deploy=True, fail_level="WARNING", stdout=io.StringIO(), stderr=io.StringIO())


@pytest.mark.usefixtures("db")
def test_the_development_default_passes_what_holds_everywhere() -> None:
    assert found() == {}


EVERYWHERE = [
    ({"ENCRYPTION_KEYS": ["a-key", ""]}, "chatui.E002", "stray comma"),
    ({"BASE_URL": "chat.example.org"}, "chatui.E003", "https://chat.example.org"),
    ({"BASE_URL": "https://chat.example.org/chat"}, "chatui.E003", "scheme, host and port alone"),
    ({"BASE_URL": "ftp://chat.example.org"}, "chatui.E003", "not an origin"),
    ({"ALLOWED_HOSTS": ["other.example.org"]}, "chatui.E004", "Add chat.example.org to ALLOWED_HOSTS"),
    ({"VAR_DIR": "/dev/null/var"}, "chatui.E005", "Set VAR_DIR"),
    ({"MEDIA_ROOT": "/dev/null/media"}, "chatui.E005", "/dev/null is not a directory"),
    ({"MCP_ENV_ALLOWLIST": ["PATH", "DATABASE_URL"]}, "chatui.E006", "lists DATABASE_URL"),
]
IN_PRODUCTION = [
    ({"SECRET_KEY": checks.DEVELOPMENT_KEY}, "chatui.E001", "Set SECRET_KEY"),
    ({"ENCRYPTION_KEYS": []}, "chatui.E002", "Set ENCRYPTION_KEYS"),
    ({"BASE_URL": "http://chat.example.org"}, "chatui.E007", "Set BASE_URL"),
    ({"SECURE_PROXY_SSL_HEADER": None}, "chatui.W001", "Set TRUST_PROXY=true"),
    ({"ALLOWED_HOSTS": ["*"]}, "chatui.E008", "List the hosts"),
    ({"EMAIL_BACKEND": "django.core.mail.backends.console.EmailBackend"}, "chatui.W002", "Set EMAIL_URL"),
    ({"REDIS_URL": "redis://127.0.0.1:1/0"}, "chatui.E010", "correct REDIS_URL"),
    ({"REDIS_URL": "nonsense"}, "chatui.E010", "correct REDIS_URL"),
]


@pytest.mark.usefixtures("_good")
@pytest.mark.parametrize(("wrong", "code", "words"), EVERYWHERE)
def test_what_is_wrong_everywhere_is_found_without_deploy(
    settings: Any, wrong: dict[str, Any], code: str, words: str
) -> None:
    for name, value in wrong.items():
        setattr(settings, name, value)
    assert words in found()[code]


@pytest.mark.usefixtures("_good")
@pytest.mark.parametrize(("wrong", "code", "words"), IN_PRODUCTION)
def test_what_fails_in_production_is_found_with_deploy_alone(
    settings: Any, wrong: dict[str, Any], code: str, words: str
) -> None:
    for name, value in wrong.items():
        setattr(settings, name, value)
    assert code not in found()
    assert words in found(deploy=True)[code]


@pytest.mark.usefixtures("_good")
def test_the_password_in_a_redis_address_is_not_shown(settings: Any) -> None:
    settings.REDIS_URL = "redis://:hunter2@127.0.0.1:1/0"
    assert "hunter2" not in found(deploy=True)["chatui.E010"]


@pytest.mark.usefixtures("_good")
@pytest.mark.skipif(connection.vendor == "sqlite", reason="the checks of SQLite are the next test's")
def test_postgresql_without_redis_is_one_process(settings: Any) -> None:
    settings.REDIS_URL = ""
    assert "REDIS_URL" in found(deploy=True)["chatui.W004"]


@pytest.mark.usefixtures("_good")
def test_sqlite_is_one_process_and_cannot_be_shared(settings: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(checks.connection, "vendor", "sqlite")
    assert "PostgreSQL" in found(deploy=True)["chatui.E009"]
    settings.REDIS_URL = ""
    assert "one process" in found(deploy=True)["chatui.W003"]


def test_a_directory_that_cannot_be_written_is_found(tmp_path: Path, monkeypatch: Any) -> None:
    assert checks._unwritable(tmp_path / "not" / "yet") == ""
    with monkeypatch.context() as patch:
        patch.setattr(checks.os, "access", lambda path, mode: False)  # root may write everywhere
        assert f"{tmp_path} is not writable" in checks._unwritable(tmp_path / "not" / "yet")
    file = tmp_path / "file"
    file.touch()
    assert "not a directory" in checks._unwritable(file / "below")


@pytest.mark.usefixtures("_good")
def test_a_migration_that_is_not_applied_is_found() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'conversations'")
    assert "manage.py migrate" in found(deploy=True)["chatui.E012"]


@pytest.mark.usefixtures("_good")
def test_a_secret_that_no_key_decrypts_is_found(settings: Any, organization: Organization) -> None:
    ModelEndpoint.objects.create(organization=organization, slug="e", base_url="https://x.example", api_key="sk-1")
    assert found(deploy=True).keys() <= {"chatui.E009"}
    settings.ENCRYPTION_KEYS = ["another"]
    message = found(deploy=True)["chatui.E013"]
    assert "agents.ModelEndpoint.api_key" in message
    assert "ENCRYPTION_KEYS" in message
