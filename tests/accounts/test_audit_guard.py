"""Audit entries are only ever added: the database says so, not only we."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from accounts import audit, audit_guard
from accounts.models import AuditAction, AuditRecord, Organization

pytestmark = pytest.mark.django_db


@pytest.fixture
def stored(organization: Organization) -> AuditRecord:
    audit.record(AuditAction.SIGN_IN, organization_id=organization.pk, body={"arguments": {"a": 1}, "result": "b"})
    return AuditRecord.objects.as_system().get()


REFUSED = {
    "a change through the model": lambda row: AuditRecord.objects.as_system().filter(pk=row.pk).update(action="x"),
    "a change of contents": lambda row: AuditRecord.objects.as_system().filter(pk=row.pk).update(body=None),
    "a deletion through the model": lambda row: row.delete(),
    "a deletion in bulk": lambda row: AuditRecord.objects.as_system().all().delete(),
    "a change in SQL": lambda row: connection.cursor().execute("UPDATE accounts_auditrecord SET reason = 'other'"),
    "a deletion in SQL": lambda row: connection.cursor().execute("DELETE FROM accounts_auditrecord"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_the_database_refuses(how: str, stored: AuditRecord) -> None:
    with pytest.raises(IntegrityError, match="never changed or deleted"), transaction.atomic():
        REFUSED[how](stored)
    assert AuditRecord.objects.as_system().get().action == "sign_in"


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no TRUNCATE")
def test_the_database_refuses_to_be_emptied(stored: AuditRecord) -> None:
    with pytest.raises(IntegrityError, match="never changed or deleted"), transaction.atomic():
        connection.cursor().execute("TRUNCATE accounts_auditrecord")


def test_only_the_transaction_of_the_retention_deletes(stored: AuditRecord) -> None:
    with audit_guard.opened("retention"):
        stored.delete()
    assert not AuditRecord.objects.as_system().exists()


def test_the_retention_may_not_change_and_is_over_with_its_transaction(stored: AuditRecord) -> None:
    rows = AuditRecord.objects.as_system()
    with pytest.raises(IntegrityError), audit_guard.opened("retention"):
        rows.update(reason="other")
    with audit_guard.opened("retention"):
        pass
    with pytest.raises(IntegrityError), transaction.atomic():
        rows.all().delete()


def test_the_rotation_of_keys_changes_contents_alone(stored: AuditRecord) -> None:
    rows = AuditRecord.objects.as_system()
    with audit_guard.opened("rotation"):
        rows.update(body={"arguments": {"a": 1}, "result": "c"})
    for change in ({"reason": "other"}, {"at": timezone.now() - timedelta(days=1)}, {"body": None, "actor_id": None}):
        change = change | ({"via": "admin"} if "actor_id" in change else {})
        with pytest.raises(IntegrityError), audit_guard.opened("rotation"):
            rows.update(**change)
    with pytest.raises(IntegrityError), audit_guard.opened("rotation"):
        rows.all().delete()


def test_after_a_rotation_contents_are_read_with_the_new_key(settings: object, stored: AuditRecord) -> None:
    keys = list(settings.ENCRYPTION_KEYS)
    settings.ENCRYPTION_KEYS = ["new", *keys]
    call_command("rotate_keys")
    settings.ENCRYPTION_KEYS = ["new"]
    assert AuditRecord.objects.as_system().get(pk=stored.pk).body == {"arguments": {"a": 1}, "result": "b"}


def test_the_triggers_are_put_back_where_they_are_missing(stored: AuditRecord) -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("DROP TRIGGER accounts_auditrecord_rows ON accounts_auditrecord")
        else:
            cursor.execute("DROP TRIGGER accounts_auditrecord_delete")
    audit_guard.after_migrate(using="default")
    with pytest.raises(IntegrityError), transaction.atomic():
        stored.delete()
