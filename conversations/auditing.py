"""The audit entry of a call that has ended, wherever it ended: written in the transaction that stores the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import QuerySet

from accounts import audit
from accounts.models import AuditAction, AuditRecord
from chatui.prepared import PreparedQuery
from conversations.models import ToolCall

_COLUMNS = (
    "pk",
    "turn_id",
    "server_id",
    "server_slug",
    "tool",
    "name",
    "arguments",
    "arguments_text",
    "verdict",
    "reason",
    "account_id",
    "status",
    "duration_ms",
    "decided_by_id",
    "decided_by__username",
    "decided_at",
    "turn__started_by_id",
    "turn__options",
    "turn__agent_id",
    "turn__agent__slug",
    "turn__conversation__organization_id",
    "turn__conversation__organization__audit_bodies",
)


def _rows(calls: QuerySet[ToolCall], *more: str) -> QuerySet[ToolCall, dict[str, Any]]:
    rows: QuerySet[ToolCall, dict[str, Any]] = calls.values(*_COLUMNS, *more)
    return rows


_one = PreparedQuery(lambda call: _rows(ToolCall.objects.filter(pk=call)), UUID)


class Decider(NamedTuple):
    """Who let a person's call be made, or refused it, and when."""

    name: str
    at: datetime | None

    def told(self) -> dict[str, str | None]:
        """As a frame has it."""
        return {"decided_by": self.name, "decided_at": self.at.isoformat() if self.at else None}


def record_end(call_id: UUID, result: str) -> Decider | None:
    """Record that a call has ended, as its row now says; who decided it, if a person did. Two statements.

    `result` is the text that was just stored: it may be long, and is not read back.
    """
    row = _one.first(call_id)
    if row is None:
        return None
    audit.write([_entry(row, result)])
    name: str | None = row["decided_by__username"]
    return None if name is None else Decider(name, row["decided_at"])


def record_ends(call_ids: Iterable[UUID]) -> None:
    """Record that these calls have ended; two statements for all of them, none without any."""
    ids = list(call_ids)
    if ids:
        calls = ToolCall.objects.filter(pk__in=ids).order_by("round", "position")
        audit.write([_entry(row, row["result_text"]) for row in _rows(calls, "result_text")])


def _entry(row: Mapping[str, Any], result: str) -> AuditRecord:
    arguments = row["arguments_text"] if row["arguments"] is None else row["arguments"]
    body = None
    if row["turn__conversation__organization__audit_bodies"]:
        body = audit.body_of(arguments, result)
    return audit.entry(
        AuditAction.TOOL_CALL,
        row["turn__conversation__organization_id"],
        row["turn__started_by_id"],
        AuditRecord.Via((row["turn__options"] or {}).get("via") or AuditRecord.Via.WEB),
        agent_id=row["turn__agent_id"],
        agent=row["turn__agent__slug"] or "",
        server_id=row["server_id"],
        server=row["server_slug"],
        tool=row["tool"] or row["name"],
        account_id=row["account_id"],
        turn_id=row["turn_id"],
        call_id=row["pk"],
        arguments_hash=audit.arguments_hash(arguments),
        verdict=row["verdict"],
        reason=row["reason"],
        approved_by_id=row["decided_by_id"],
        status=row["status"],
        duration_ms=row["duration_ms"],
        body=body,
    )
