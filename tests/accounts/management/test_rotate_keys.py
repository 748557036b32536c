"""`rotate_keys` finds every encrypted column, moves it to the first key, and is harmless to repeat."""

from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from accounts.management.commands.rotate_keys import encrypted_fields
from accounts.models import Organization
from agents.models import ModelEndpoint
from mcpservers.models import MCPServer

FIELDS = {f"{model._meta.label}.{field.name}" for model, field in encrypted_fields()}


def endpoint(organization: Organization, slug: str = "main") -> ModelEndpoint:
    return ModelEndpoint.objects.create(
        organization=organization, slug=slug, base_url="https://x.example/v1", api_key="sk-secret", headers={"X": "ü"}
    )


def stored(endpoint: ModelEndpoint) -> tuple[str, str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT api_key, headers FROM agents_modelendpoint WHERE slug = %s", [endpoint.slug])
        row: tuple[str, str] = cursor.fetchone()
        return row


def rotate(capsys: Any, **options: Any) -> str:
    call_command("rotate_keys", **options)
    return str(capsys.readouterr().out)


def test_encrypted_fields_are_found_by_introspection() -> None:
    assert {
        "agents.ModelEndpoint.api_key",
        "agents.ModelEndpoint.headers",
        "mcpservers.MCPServer.headers",
        "mcpservers.MCPServer.env",
        "mcpservers.UserVariables.values",
    } <= FIELDS


def test_after_a_rotation_the_old_key_is_not_needed(capsys: Any, settings: Any, organization: Organization) -> None:
    settings.ENCRYPTION_KEYS = ["old"]
    rows = [endpoint(organization, f"e{number}") for number in range(5)]
    settings.ENCRYPTION_KEYS = ["new", "old"]
    output = rotate(capsys, batch=2)
    assert "agents.ModelEndpoint.api_key: 5 rotated, 0 current, 0 undecryptable." in output
    settings.ENCRYPTION_KEYS = ["new"]
    for row in rows:
        row.refresh_from_db()
        assert (row.api_key, row.headers) == ("sk-secret", {"X": "ü"})


def test_a_second_run_changes_nothing(capsys: Any, settings: Any, organization: Organization) -> None:
    row = endpoint(organization)
    settings.ENCRYPTION_KEYS = ["new", *settings.ENCRYPTION_KEYS]
    rotate(capsys)
    before = stored(row)
    assert "agents.ModelEndpoint.api_key: 0 rotated, 1 current" in rotate(capsys)
    assert stored(row) == before


def test_empty_values_stay_in_clear(capsys: Any, settings: Any, organization: Organization) -> None:
    MCPServer.objects.create(organization=organization, slug="s", title="S", url="https://x.example", oauth=None)
    settings.ENCRYPTION_KEYS = ["new", *settings.ENCRYPTION_KEYS]
    output = rotate(capsys)
    assert "mcpservers.MCPServer.headers: 0 rotated, 0 current, 0 undecryptable." in output
    assert "mcpservers.MCPServer.oauth: 0 rotated, 0 current, 0 undecryptable." in output


def test_what_no_key_decrypts_is_named_and_left_and_the_rest_is_done(
    capsys: Any, settings: Any, organization: Organization
) -> None:
    settings.ENCRYPTION_KEYS = ["lost"]
    lost = endpoint(organization, "lost")
    before = stored(lost)
    settings.ENCRYPTION_KEYS = ["old"]
    kept = endpoint(organization, "kept")
    settings.ENCRYPTION_KEYS = ["new", "old"]
    with pytest.raises(CommandError, match="2 stored secrets"):
        call_command("rotate_keys")
    captured = capsys.readouterr()
    assert f"agents.ModelEndpoint.api_key of {lost.pk}: cannot be decrypted" in captured.err
    assert "sk-secret" not in captured.err + captured.out
    assert stored(lost) == before
    settings.ENCRYPTION_KEYS = ["new"]
    kept.refresh_from_db()
    assert kept.api_key == "sk-secret"
