"""What each turn has spent: one row a turn, which outlives its conversation, and counters where budgets want them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils import timezone

from accounts.budgets import Limit, Subjects, limits_of
from accounts.models import Organization
from chatui.prepared import PreparedQuery
from chatui.rows import writing
from conversations import counters
from conversations.counters import Key, Spent
from conversations.models import Turn, UsageRecord

budgets_of = PreparedQuery(lambda id: Organization.objects.filter(pk=id).values_list("budgets", flat=True), UUID)


def limits_of_rounds(budgets: Iterable[Mapping[str, Any]]) -> list[Limit]:
    """The limits to which a round adds: requests are counted when a turn begins."""
    return [limit for limit in limits_of(budgets) if limit.measure != "requests"]


def record(turn: Turn, spent: Mapping[str, Any]) -> None:
    """Store what the turn has spent so far; one statement, where the organization had no budgets when it began."""
    limits: Sequence[Limit] = ()
    if (turn.options or {}).get("limited"):
        limits = limits_of_rounds(budgets_of.first(turn.conversation.organization_id) or ())
    if limits:
        record_counted(turn, spent, limits, counters.subjects_of(limits, turn), timezone.now())
    else:
        _store(turn, spent)


def record_counted(
    turn: Turn, spent: Mapping[str, Any], limits: Sequence[Limit], subjects: Subjects, now: datetime
) -> dict[Key, Spent]:
    """As `record`, and count what is new of it for `limits`; what the counters then hold. One transaction."""
    organization = turn.conversation.organization_id
    with writing():
        before = UsageRecord.objects.as_system().filter(turn_id=turn.pk).first()
        after = _store(turn, spent)
        keys = counters.keys_of(limits, subjects, now)
        return counters.add(organization, keys, _difference(before, after), recorded=after.created_at)


def _difference(before: UsageRecord | None, after: UsageRecord) -> Spent:
    if before is None:
        before = UsageRecord()
    tokens = after.input_tokens + after.output_tokens - before.input_tokens - before.output_tokens
    return Spent(tokens, (after.cost or 0.0) - (before.cost or 0.0), after.calls - before.calls)


def _store(turn: Turn, spent: Mapping[str, Any]) -> UsageRecord:
    row = UsageRecord(
        organization_id=turn.conversation.organization_id,
        user_id=turn.started_by_id,
        agent_id=turn.agent_id,
        model=str((turn.options or {}).get("profile") or "")[:140],
        turn_id=turn.pk,
        input_tokens=spent.get("input_tokens", 0),
        output_tokens=spent.get("output_tokens", 0),
        cost=spent.get("cost"),
        calls=turn.calls_made,
        estimated=bool(spent.get("estimated")),
        created_at=turn.created_at,
    )
    UsageRecord.objects.as_system().bulk_create(
        [row],
        update_conflicts=True,
        unique_fields=["turn_id"],
        update_fields=["input_tokens", "output_tokens", "cost", "calls", "estimated"],
    )
    return row
