"""Audit entries as they are looked for and told: filters, names of people as they are now, and JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet
from django.db.models.expressions import ExpressionWrapper
from django.db.models.fields import BooleanField

from accounts.models import AuditRecord, User

Rows = QuerySet[AuditRecord]
STATUSES = ("ok", "error", "denied", "cancelled", "timeout", "unavailable", "interrupted", "expired")
VERDICTS = ("allow", "ask", "deny")
ORDER = ("-at", "-id")  # newest first


@dataclass(frozen=True, slots=True)
class Selection:
    """What is looked for; an empty value does not narrow. Times are `since` (included) to `until` (not included).

    `person` is an id, a user name or an e-mail address: of who did it, decided it, or whom it concerns. `agent`,
    `server` and `tool` are parts of the name, without regard to case.
    """

    since: datetime | None = None
    until: datetime | None = None
    action: str = ""
    person: str = ""
    agent: str = ""
    server: str = ""
    tool: str = ""
    status: str = ""
    verdict: str = ""

    def narrow(self, rows: Rows) -> Rows:
        if self.since is not None:
            rows = rows.filter(at__gte=self.since)
        if self.until is not None:
            rows = rows.filter(at__lt=self.until)
        for name in ("action", "status", "verdict"):
            if value := getattr(self, name):
                rows = rows.filter(**{name: value})
        for name in ("agent", "server", "tool"):
            if value := getattr(self, name):
                rows = rows.filter(**{f"{name}__icontains": value})
        return rows.filter(concerns(self.person)) if self.person else rows


def after(rows: Rows, at: datetime, id: UUID) -> Rows:
    """What comes after the entry of this time and id, in `ORDER`."""
    return rows.filter(at__lte=at).exclude(at=at, id__gte=id)


def concerns(person: str) -> Q:
    """Entries of a person, by id, user name or e-mail address; none of somebody who is not known."""
    try:
        id: UUID | None = UUID(person)
    except ValueError:
        user = User.named(person.strip())
        id = user.pk if user is not None else None
    if id is None:
        return Q(pk__in=())
    return Q(actor_id=id) | Q(person_id=id) | Q(approved_by_id=id)


def without_contents(rows: Rows) -> Rows:
    """Rows that are shown in lists: what was kept of calls is not read, only whether there is any (`has_contents`)."""
    kept = ExpressionWrapper(Q(body__isnull=False), output_field=BooleanField())
    return rows.defer("body").annotate(has_contents=kept)


def names_of(records: Iterable[AuditRecord]) -> dict[UUID, str]:
    """The user names of everybody whom these entries name, as they are now; one query."""
    ids = {id for record in records for id in (record.actor_id, record.person_id, record.approved_by_id) if id}
    return dict(User.objects.filter(pk__in=ids).values_list("pk", "username")) if ids else {}


def entry_json(record: AuditRecord, names: dict[UUID, str]) -> dict[str, Any]:
    """One entry for the API and for exports. A person without a name is one whose account is gone."""

    def person(id: UUID | None) -> dict[str, str | None] | None:
        return None if id is None else {"id": str(id), "username": names.get(id)}

    return {
        "id": str(record.pk),
        "at": record.at.isoformat(),
        "action": record.action,
        "via": record.via,
        "actor": person(record.actor_id),
        "person": person(record.person_id),
        "object": {"type": record.object_type, "id": record.object_id, "name": record.object_name}
        if record.object_type
        else None,
        "agent": record.agent or None,
        "server": record.server or None,
        "tool": record.tool or None,
        "account_id": _text(record.account_id),
        "turn_id": _text(record.turn_id),
        "call_id": _text(record.call_id),
        "arguments_sha256": record.arguments_hash or None,
        "verdict": record.verdict or None,
        "reason": record.reason or None,
        "decided_by": person(record.approved_by_id),
        "status": record.status or None,
        "duration_ms": record.duration_ms,
        "details": record.details,
        "has_contents": bool(getattr(record, "has_contents", False)),
    }


def _text(id: UUID | None) -> str | None:
    return None if id is None else str(id)
