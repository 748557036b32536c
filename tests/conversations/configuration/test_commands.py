"""`apply_config` and `export_config` as an operator runs them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from accounts.models import User
from tests.conversations.configuration.conftest import ENVIRONMENT, FILE, SECRETS

pytestmark = pytest.mark.django_db


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    path = tmp_path / "chatui.yaml"
    path.write_text(FILE)
    return str(path)


def run(*arguments: Any) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def test_apply_tells_what_it_did_and_then_that_there_is_nothing_to_change(file: str) -> None:
    assert run("apply_config", file).endswith("Created 11, changed 0, deleted 0.\n")
    assert run("apply_config", file) == "Nothing to change.\n"


def test_plan_changes_nothing(file: str) -> None:
    out = run("apply_config", file, "--plan")
    assert out.endswith("Would create 11, change 0, delete 0. Nothing was changed.\n")
    assert not any(secret in out for secret in SECRETS.values())
    assert not User.objects.exists()


def test_a_missing_variable_is_an_error_that_names_it(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KEY")
    with pytest.raises(CommandError, match=r"main\.api_key: the environment variable KEY is not set"):
        run("apply_config", file)


def test_a_file_that_cannot_be_read_is_an_error_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No such file"):
        run("apply_config", str(tmp_path / "no.yaml"))
    (tmp_path / "latin1.yaml").write_bytes(b"a: \xe9")
    with pytest.raises(CommandError, match="not text in UTF-8"):
        run("apply_config", str(tmp_path / "latin1.yaml"))
    with pytest.raises(CommandError, match="directory"):
        run("apply_config", str(tmp_path))


def test_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("users: {zoe: {}}"))
    run("apply_config", "-")
    assert User.objects.get().username == "zoe"


def test_export_prints_the_named_organizations_and_refuses_an_unknown_one(file: str) -> None:
    run("apply_config", file)
    assert "ACME_CLOCK_TOKEN" in run("export_config", "acme")
    with pytest.raises(CommandError, match="no organization globex"):
        run("export_config", "globex")
