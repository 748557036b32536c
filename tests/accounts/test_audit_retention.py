"""What is older than an organization keeps is deleted, and nothing else; that it was is itself an entry."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts import audit, audit_retention
from accounts.models import AuditAction, AuditRecord, Organization
from accounts.tasks import prune_audit

pytestmark = pytest.mark.django_db


def made(organization: UUID | None, days: float) -> None:
    audit.record(AuditAction.SIGN_IN, organization_id=organization, at=timezone.now() - timedelta(days=days))


def left(organization: UUID | None) -> list[int]:
    rows = AuditRecord.objects.as_system().filter(organization_id=organization, action="sign_in").order_by("-at")
    return [(timezone.now() - row.at).days for row in rows]


@pytest.fixture(autouse=True)
def _default(settings: Any) -> None:
    settings.AUDIT_DAYS = 100


def test_each_organization_keeps_its_own_days(organization: Organization, other_organization: Organization) -> None:
    Organization.objects.filter(pk=organization.pk).update(audit_days=7)
    gone = uuid4()
    for where in (organization.pk, other_organization.pk, None, gone):
        for days in (1.1, 8.1, 99.1, 101.1):
            made(where, days)
    assert audit_retention.prune() == 3 + 1 + 1 + 1
    assert left(organization.pk) == [1]
    assert left(other_organization.pk) == left(None) == left(gone) == [1, 8, 99]


def test_that_it_was_done_is_recorded_and_again_it_finds_nothing(
    organization: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_retention, "BATCH", 2)
    for _ in range(3):
        made(organization.pk, 101)
    prune_audit()
    told = AuditRecord.objects.as_system().filter(action="audit.pruned").order_by("at")
    assert [(row.organization_id, row.via, row.details["entries"]) for row in told] == [
        (organization.pk, "system", 2),
        (organization.pk, "system", 1),
    ]
    with CaptureQueriesContext(connection) as queries:
        assert audit_retention.prune() == 0
    assert not [query["sql"] for query in queries if "set_config" in query["sql"] or "SAVEPOINT" in query["sql"]]


def test_afterwards_the_database_refuses_again(organization: Organization) -> None:
    made(organization.pk, 101)
    made(organization.pk, 1)
    audit_retention.prune()
    with pytest.raises(IntegrityError):
        AuditRecord.objects.as_system().all().delete()
