"""What was spent, one row a turn, and whether more may be: asked before a turn begins and before each further round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from django.db.models import F, QuerySet, Sum
from django.utils import timezone

from accounts.actors import Actor
from accounts.budgets import Limit, beginning, exceeded, limits_of
from accounts.models import Organization
from agents.parts import PreparedCall
from chatui.prepared import PreparedQuery
from conversations import rounds, usage
from conversations.models import Turn, UsageRecord
from conversations.rounds import StoredQuestion
from conversations.transitions import Progress

_budgets = PreparedQuery(lambda id: Organization.objects.filter(pk=id).values_list("budgets", flat=True), UUID)


def require(actor: Actor, agent_id: UUID) -> None:
    """Raise `BudgetExceededError` if a budget of the actor's organization is used up; one query without budgets."""
    budgets = _budgets.first(actor.organization_id)
    now = timezone.now()
    for limit in limits_of(budgets or ()):
        since = UsageRecord.objects.visible_to(actor).filter(created_at__gte=beginning(limit.period, now))
        for records in _whose(limit, since, actor, agent_id):
            if _spent(limit, records) >= limit.amount:
                raise exceeded(limit, now)


def _whose(limit: Limit, records: QuerySet[UsageRecord], actor: Actor, agent_id: UUID) -> list[QuerySet[UsageRecord]]:
    match limit.per:
        case "organization":
            return [records]
        case "user":
            return [records.filter(user_id=actor.user_id)]
        case "agent":
            return [records.filter(agent_id=agent_id)]
        case "group":
            members = [("user__memberships__groups", group) for group in actor.groups]
            return [records.filter(**{lookup: group}) for lookup, group in members]


def _spent(limit: Limit, records: QuerySet[UsageRecord]) -> float:
    match limit.measure:
        case "requests":
            return records.count()
        case "tokens":
            total = records.aggregate(total=Sum(F("input_tokens") + F("output_tokens")))["total"]
        case "cost":
            total = records.aggregate(total=Sum("cost"))["total"]
        case "calls":
            total = records.aggregate(total=Sum("calls"))["total"]
    return float(total or 0)


def store_round(
    actor: Actor,
    turn: Turn,
    round: int,
    calls: Sequence[tuple[UUID, PreparedCall]],
    progress: Progress,
    offered: Mapping[str, Sequence[str]] | None = None,
) -> dict[UUID, StoredQuestion]:
    """`rounds.store_round`, with what was spent; `BudgetExceededError` if that was the last of it."""
    stored = rounds.store_round(turn, round, calls, progress, offered)
    usage.record(turn, progress.usage)
    if turn.agent_id is not None:
        require(actor, turn.agent_id)
    return stored
