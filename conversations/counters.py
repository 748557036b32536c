"""Counters of what was spent in a period: constant in the number of turns, exact with any number of processes.

A counter is made when a budget first asks for it, from the records of turns; from then on each round adds to it in the
transaction that stores its record. Rows are locked in one order, so two rounds never wait for each other in a circle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from django.db.models import Count, F, Q, QuerySet, Sum

from accounts.budgets import Limit, Measure, Per, Period, Subjects, beginning, bounding
from accounts.models import BudgetCounter, Membership, Organization
from chatui.rows import writing
from conversations.models import Turn, UsageRecord


@dataclass(frozen=True, slots=True)
class Key:
    """Whose spending, in which period."""

    per: Per
    subject: UUID
    period: Period
    began: datetime


@dataclass(frozen=True, slots=True)
class Spent:
    tokens: int = 0
    cost: float = 0.0
    calls: int = 0
    requests: int = 0

    def of(self, measure: Measure) -> float:
        return float(getattr(self, measure))

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.tokens + other.tokens,
            self.cost + other.cost,
            self.calls + other.calls,
            self.requests + other.requests,
        )


def subjects_of(limits: Iterable[Limit], turn: Turn) -> Subjects:
    """Who is counted for a turn; a query for the person's groups where a limit is per group, else none."""
    organization = turn.conversation.organization_id
    groups: list[UUID] = []
    if any(limit.per == "group" for limit in limits):
        membership = Membership.objects.filter(organization=organization, user=turn.started_by_id)
        groups = [pk for pk in membership.values_list("groups", flat=True) if pk is not None]
    agents = [turn.agent_id] if turn.agent_id is not None else []
    return {"organization": [organization], "user": [turn.started_by_id], "agent": agents, "group": groups}


def key_of(limit: Limit, subject: UUID, now: datetime) -> Key:
    """What `limit` looks at for a subject that it bounds."""
    return Key(limit.per, subject, limit.period, beginning(limit.period, now))


def keys_of(limits: Iterable[Limit], subjects: Subjects, now: datetime) -> list[Key]:
    found = {key_of(limit, subject, now) for limit, subject in bounding(limits, subjects)}
    return sorted(found, key=lambda key: (key.per, key.subject, key.period))


def read(organization_id: UUID, keys: Sequence[Key]) -> dict[Key, Spent]:
    """What was spent; one query where all of it is counted already."""
    found = _values(_rows(organization_id, keys), keys)
    if len(found) < len(keys):
        with writing():
            _make_missing(organization_id, keys)
            found = _values(_rows(organization_id, keys), keys)
    return found


def peek(organization_id: UUID, keys: Sequence[Key]) -> dict[Key, Spent]:
    """As `read`, but nothing is written: what is not counted yet is added up."""
    found = _values(_rows(organization_id, keys), keys)
    return {key: found.get(key) or _from_records(organization_id, key) for key in keys}


def add(
    organization_id: UUID, keys: Sequence[Key], more: Spent, *, recorded: datetime | None = None
) -> dict[Key, Spent]:
    """Add `more` to the counters and return what they then hold. Inside `writing()`.

    `recorded`: the time of the record in which it is already. A counter that there is not yet is made from the records
    of its period, so `more` is in it unless the turn began in the period before.
    """
    rows = list(_locked(organization_id, keys))
    made: set[Key] = set()
    if len(_values(rows, keys)) < len(keys):
        made = _make_missing(organization_id, keys)
        rows = list(_locked(organization_id, keys))
    found = _values(rows, keys)
    made = {key for key in made if recorded is not None and recorded >= key.began}
    old = [row.pk for row in rows if _key(row) in found.keys() - made]
    BudgetCounter.objects.as_system().filter(pk__in=old).update(
        tokens=F("tokens") + more.tokens,
        cost=F("cost") + more.cost,
        calls=F("calls") + more.calls,
        requests=F("requests") + more.requests,
    )
    return {key: spent if key in made else spent + more for key, spent in found.items()}


def _rows(organization_id: UUID, keys: Sequence[Key]) -> QuerySet[BudgetCounter]:
    counters: QuerySet[BudgetCounter] = BudgetCounter.objects.as_system().filter(
        organization=organization_id,
        subject_id__in={key.subject for key in keys},
        began__in={key.began for key in keys},
    )
    return counters


def _locked(organization_id: UUID, keys: Sequence[Key]) -> QuerySet[BudgetCounter]:
    return _rows(organization_id, keys).select_for_update(no_key=True).order_by("pk")


def _key(row: BudgetCounter) -> Key:
    return Key(row.per, row.subject_id, row.period, row.began)  # type: ignore[arg-type]  # words of ours


def _values(rows: Iterable[BudgetCounter], keys: Sequence[Key]) -> dict[Key, Spent]:
    found = {_key(row): Spent(row.tokens, row.cost, row.calls, row.requests) for row in rows}
    return {key: found[key] for key in keys if key in found}


def _make_missing(organization_id: UUID, keys: Sequence[Key]) -> set[Key]:
    """Make the counters that there are not, from records; which were made. One process at a time makes some.

    A round that is being stored meanwhile waits here too, and then finds the counter without its own spending.
    """
    Organization.objects.select_for_update(no_key=True).get(pk=organization_id)
    missing = set(keys) - _values(_rows(organization_id, keys), keys).keys()
    BudgetCounter.objects.as_system().bulk_create(
        BudgetCounter(
            organization_id=organization_id,
            per=key.per,
            subject_id=key.subject,
            period=key.period,
            began=key.began,
            tokens=spent.tokens,
            cost=spent.cost,
            calls=spent.calls,
            requests=spent.requests,
        )
        for key in missing
        for spent in [_from_records(organization_id, key)]
    )
    return missing


def _from_records(organization_id: UUID, key: Key) -> Spent:
    narrow: Q
    match key.per:
        case "organization":
            narrow = Q()
        case "user":
            narrow = Q(user=key.subject)
        case "agent":
            narrow = Q(agent=key.subject)
        case "group":
            members = Membership.objects.filter(organization=organization_id, groups=key.subject)
            narrow = Q(user__in=members.values("user"))
    records = UsageRecord.objects.as_system().filter(narrow, organization=organization_id, created_at__gte=key.began)
    total = records.aggregate(
        input=Sum("input_tokens"), output=Sum("output_tokens"), cost=Sum("cost"), calls=Sum("calls"), number=Count("pk")
    )
    spent = Spent(requests=total["number"])
    return replace(
        spent,
        tokens=(total["input"] or 0) + (total["output"] or 0),
        cost=float(total["cost"] or 0),
        calls=total["calls"] or 0,
    )
