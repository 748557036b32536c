"""What each turn has spent: one row a turn, which outlives its conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conversations.models import Turn, UsageRecord


def record(turn: Turn, spent: Mapping[str, Any]) -> None:
    """Store what the turn has spent so far. The row outlives its conversation; one statement."""
    row = UsageRecord(
        organization_id=turn.conversation.organization_id,
        user_id=turn.started_by_id,
        agent_id=turn.agent_id,
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
