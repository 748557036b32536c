"""Whether more may be spent: asked when a turn begins and before each further round, exact between processes.

What is left is looked at before a model is called, and what was spent is known after: each turn that runs may
therefore exceed a budget by one round, and no more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db.models import Count, F
from django.utils import timezone

from accounts.actors import Actor
from accounts.budgets import (
    WARN_AT,
    BudgetExceededError,
    Limit,
    Per,
    Subjects,
    bounding,
    exceeded,
    limits_of,
    running_of,
    too_many_running,
    warning,
)
from accounts.models import BudgetWarning, User
from agents.parts import PreparedCall
from chatui.prepared import PreparedQuery
from conversations import counters, rounds, usage
from conversations.counters import Key, Spent
from conversations.models import ToolCall, Turn
from conversations.rounds import StoredQuestion
from conversations.transitions import Progress

# The person's row is locked meanwhile: of two turns that one person begins at once, the second sees the first.
_budgets_locked = PreparedQuery(
    lambda user, organization: (
        User.objects.filter(pk=user, memberships__organization=organization)
        .annotate(budgets=F("memberships__organization__budgets"))
        .only("pk")
        .select_for_update(of=("self",), no_key=True)
    ),
    UUID,
    UUID,
)
_running = PreparedQuery(
    lambda user: Turn.objects.filter(started_by_id=user, status=Turn.Status.RUNNING).values_list("pk"), UUID
)


@dataclass(frozen=True, slots=True)
class Opened:
    """A turn may begin. `limited`: its spending is counted; `warnings` are words for the person."""

    limited: bool = False
    warnings: tuple[str, ...] = ()


def open_turn(actor: Actor, agent_id: UUID, *, tools: bool = True, hidden: bool = False) -> Opened:
    """Whether the actor may begin a turn now; inside `writing()`. Two queries where there are no budgets.

    `hidden` turns (of the OpenAI-compatible API) have no limit at once but one that a budget gives. Raises
    `BudgetExceededError` and `TooManyTurnsError`.
    """
    rows = _budgets_locked(actor.user_id, actor.organization_id)
    budgets = rows[0].budgets or [] if rows else []
    subjects = _subjects(actor, agent_id)
    _require_place(actor, running_of(budgets, subjects, None if hidden else settings.TURN["PER_USER"]))
    limits = limits_of(budgets)
    if not limits:
        return Opened()
    now = timezone.now()
    keys = counters.keys_of(limits, subjects, now)
    spent = counters.add(actor.organization_id, keys, Spent(requests=1))
    if not tools:
        limits = [limit for limit in limits if limit.measure != "calls"]
    nearly = _judge(limits, spent, subjects, now, beginning=True)
    return Opened(True, tuple(_first_time(actor, nearly, now)))


def require(actor: Actor, agent_id: UUID) -> None:
    """Raise `BudgetExceededError` if a budget of the actor's organization is used up; nothing is written."""
    limits = limits_of(usage.budgets_of.first(actor.organization_id) or ())
    if limits:
        now, subjects = timezone.now(), _subjects(actor, agent_id)
        spent = counters.peek(actor.organization_id, counters.keys_of(limits, subjects, now))
        one_more = {key: value + Spent(requests=1) for key, value in spent.items()}
        _judge(limits, one_more, subjects, now, beginning=True)


def _require_place(actor: Actor, allowed: Mapping[tuple[Per, UUID], int]) -> None:
    """One query for each kind of whose: for all of a person's groups too."""
    for per in dict.fromkeys(per for per, _ in allowed):
        taken = _taken(per, actor, [subject for of, subject in allowed if of == per])
        for (of, subject), amount in allowed.items():
            if of == per and taken.get(subject, 0) >= amount:
                raise too_many_running(per, amount)


def _taken(per: Per, actor: Actor, subjects: Collection[UUID]) -> Mapping[UUID, int]:
    """How many turns of each subject run; who is not in it has none."""
    if per == "user":
        return {actor.user_id: len(_running(actor.user_id))}
    turns = Turn.objects.filter(status=Turn.Status.RUNNING, conversation__organization=actor.organization_id)
    column = {"agent": "agent", "group": "started_by__memberships__groups", "organization": _ORGANIZATION}[per]
    rows = turns.filter(**{f"{column}__in": subjects})
    return dict(rows.values_list(column).annotate(Count("pk")))


_ORGANIZATION = "conversation__organization"


def _subjects(actor: Actor, agent_id: UUID) -> Subjects:
    return {
        "organization": [actor.organization_id],
        "user": [actor.user_id],
        "agent": [agent_id],
        "group": sorted(actor.groups),
    }


@dataclass(frozen=True, slots=True)
class _Nearly:
    """A limit of which more than `WARN_AT` is used."""

    limit: Limit
    key: Key
    spent: float


def _judge(
    limits: Sequence[Limit], spent: Mapping[Key, Spent], subjects: Subjects, now: datetime, *, beginning: bool
) -> list[_Nearly]:
    """The limits that are nearly reached. Raises `BudgetExceededError` for the first that is reached.

    Of calls and requests the last one is still allowed; they are counted before they are made.
    """
    nearly = []
    for limit, subject in bounding(limits, subjects):
        key = counters.key_of(limit, subject, now)
        value = spent[key].of(limit.measure)
        counted_ahead = limit.measure == "requests" or (limit.measure == "calls" and not beginning)
        if value > limit.amount or (value == limit.amount and not counted_ahead):
            raise exceeded(limit, now)
        if value >= WARN_AT * limit.amount and limit.measure != "requests":
            nearly.append(_Nearly(limit, key, value))
    return nearly


def _first_time(actor: Actor, nearly: Sequence[_Nearly], now: datetime) -> Iterator[str]:
    """Words for what the person was not told of in this period yet."""
    for each in nearly:
        _, told_now = BudgetWarning.objects.as_system().get_or_create(
            organization_id=actor.organization_id,
            user_id=actor.user_id,
            limit=f"{each.limit.key}:{str(each.key.subject)[:18]}",
            began=each.key.began,
        )
        if told_now:
            yield warning(each.limit, each.spent, now)


@dataclass(frozen=True, slots=True)
class StoredRound:
    """A round's questions by call, and words for the person about budgets that are nearly used up."""

    questions: dict[UUID, StoredQuestion]
    warnings: tuple[str, ...] = ()


def store_round(
    actor: Actor,
    turn: Turn,
    round: int,
    calls: Sequence[tuple[UUID, PreparedCall]],
    progress: Progress,
    offered: Mapping[str, Sequence[str]] | None = None,
) -> StoredRound:
    """`rounds.store_round`, with what was spent; `BudgetExceededError` if that was the last of it."""
    stored = rounds.store_round(turn, round, calls, progress, offered)
    limits = usage.limits_of_rounds(usage.budgets_of.first(actor.organization_id) or ())
    if not limits:
        usage.record(turn, progress.usage)
        return StoredRound(stored)
    now, subjects = timezone.now(), counters.subjects_of(limits, turn)
    spent = usage.record_counted(turn, progress.usage, limits, subjects, now)
    try:
        nearly = _judge(limits, spent, subjects, now, beginning=False)
    except BudgetExceededError:
        # They were stored as running ahead of time; the turn ends before they run.
        begun = ToolCall.objects.filter(turn=turn, round=round, status=ToolCall.Status.RUNNING)
        begun.update(status=ToolCall.Status.PENDING, started_at=None)
        raise
    return StoredRound(stored, tuple(_first_time(actor, nearly, now)))
