"""How much of each budget is used, for the person whom it bounds and for who manages it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from accounts.actors import Actor
from accounts.budgets import Limit, Measure, Per, Subjects, bounding, ending, limits_of, number, running_of
from accounts.models import Group
from conversations import counters, usage
from conversations.counters import Key
from conversations.models import Turn
from conversations.usable import usable_agents


@dataclass(frozen=True, slots=True)
class BudgetState:
    """One limit of one subject. `share` is of the amount, 0 to 1; `name` is of the group or agent, if it is of one."""

    per: Per
    measure: Measure
    period: str
    name: str
    amount: float
    spent: float
    resets_at: datetime

    @property
    def share(self) -> float:
        return min(1.0, self.spent / self.amount) if self.amount else 1.0

    @property
    def state(self) -> str:
        """`used_up`, `nearly` (four fifths and more) or `fine`."""
        return "used_up" if self.spent >= self.amount else "nearly" if self.share >= 0.8 else "fine"

    @property
    def spent_words(self) -> str:
        return number(self.measure, self.spent)

    @property
    def amount_words(self) -> str:
        return number(self.measure, self.amount)

    def json(self, *, amounts: bool) -> dict[str, Any]:
        """For the API; without `amounts` only the share is told."""
        told: dict[str, Any] = {
            "per": self.per,
            "name": self.name or None,
            "measure": self.measure,
            "period": self.period,
            "share": round(self.share, 4),
            "resets_at": self.resets_at.isoformat(),
        }
        return told | ({"amount": self.amount, "spent": self.spent} if amounts else {})


@dataclass(frozen=True, slots=True)
class Place:
    """How many answers may be written at once, and how many are."""

    amount: int
    taken: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """Every limit that bounds what somebody does, one's own first, and the place that there is for answers at once."""

    budgets: tuple[BudgetState, ...]
    place: Place


def bounds_of(actor: Actor) -> Bounds:
    """What bounds the actor; nothing is written. Five queries at most, without limits two."""
    stored = usage.budgets_of.first(actor.organization_id) or ()
    own: Subjects = {"user": [actor.user_id], "group": (), "agent": (), "organization": ()}
    allowed = running_of(stored, own, settings.TURN["PER_USER"])
    taken = Turn.objects.filter(started_by=actor.user_id, status=Turn.Status.RUNNING).count()
    return Bounds(tuple(_states(actor, limits_of(stored))), Place(allowed["user", actor.user_id], taken))


def _states(actor: Actor, limits: Sequence[Limit]) -> list[BudgetState]:
    if not limits:
        return []
    pers = {limit.per for limit in limits}
    names: dict[UUID, str] = {}
    if "group" in pers:
        names |= dict(Group.objects.filter(pk__in=actor.groups).values_list("pk", "slug"))
    if "agent" in pers:
        names |= {agent.pk: agent.name for agent in usable_agents(actor)}
    subjects: Subjects = {
        "organization": [actor.organization_id],
        "user": [actor.user_id],
        "group": sorted(actor.groups),
        "agent": sorted(set(names) - set(actor.groups)),
    }
    now = timezone.now()
    spent = counters.peek(actor.organization_id, counters.keys_of(limits, subjects, now))
    order: tuple[Per, ...] = ("user", "group", "agent", "organization")
    found = sorted(bounding(limits, subjects), key=lambda pair: order.index(pair[0].per))
    keys = ((limit, counters.key_of(limit, subject, now)) for limit, subject in found)
    return [_state(limit, key, spent[key].of(limit.measure), names, now) for limit, key in keys]


def _state(limit: Limit, key: Key, spent: float, names: dict[UUID, str], now: datetime) -> BudgetState:
    name = names.get(key.subject, "")
    return BudgetState(limit.per, limit.measure, limit.period, name, limit.amount, spent, ending(limit.period, now))
