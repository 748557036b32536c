"""How long audit entries are kept: each organization's days, else the installation's."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from accounts import audit
from accounts.audit_guard import opened
from accounts.audit_query import Rows
from accounts.models import AuditAction, AuditRecord, Organization

BATCH = 5_000  # entries of one transaction


def prune(now: datetime | None = None) -> int:
    """Delete what is older than its organization keeps; how many. What was deleted is recorded with its number.

    Entries of no organization, and of organizations that are gone, are kept for `AUDIT_DAYS`.
    """
    now = now or timezone.now()
    kept: dict[UUID | None, int | None] = dict(Organization.objects.values_list("pk", "audit_days"))
    default = now - timedelta(days=settings.AUDIT_DAYS)
    rows = AuditRecord.objects.as_system()
    total = 0
    for organization, days in kept.items():
        before = default if days is None else now - timedelta(days=days)
        total += _delete(rows.filter(organization_id=organization, at__lt=before), organization, before)
    rest = rows.filter(at__lt=default)
    ids = rest.order_by().values_list("organization_id", flat=True).distinct()
    for organization in [None, *ids]:
        if organization not in kept:
            kept[organization] = None
            total += _delete(rest.filter(organization_id=organization), organization, default)
    return total


def _delete(rows: Rows, organization: UUID | None, before: datetime) -> int:
    total = 0
    while ids := list(rows.order_by("at").values_list("pk", flat=True)[:BATCH]):
        with opened("retention"):
            deleted, _ = AuditRecord.objects.as_system().filter(pk__in=ids).delete()
            details = {"entries": deleted, "before": before.isoformat()}
            audit.record(AuditAction.AUDIT_PRUNED, organization_id=organization, via=audit.Via.SYSTEM, details=details)
        total += deleted
    return total
