"""What an organization, a group, a user or an agent may spend in a period: values and words, no rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar, get_args
from uuid import UUID

from chatui.errors import ChatUIError

Per = Literal["organization", "group", "user", "agent"]
Measure = Literal["tokens", "cost", "calls", "requests"]
Period = Literal["minute", "day", "month"]
Subjects = Mapping[Per, Sequence[UUID]]  # whom something is counted for
Only = frozenset[UUID] | None  # whom a budget names; None: each of its kind

# The keys of a stored budget, and what each bounds.
LIMITS: dict[str, tuple[Measure, Period]] = {
    "tokens_per_day": ("tokens", "day"),
    "tokens_per_month": ("tokens", "month"),
    "cost_per_day": ("cost", "day"),
    "cost_per_month": ("cost", "month"),
    "tool_calls_per_day": ("calls", "day"),
    "requests_per_minute": ("requests", "minute"),
}
RUNNING = "running_turns"  # how many answers may be written at once; the user's default is TURNS_PER_USER
KEYS = (*LIMITS, RUNNING)
ONLY = "only"  # whom a budget is of: names where it is entered, `{id, name}` where it is stored
WARN_AT = 0.8  # of an amount: then people are told, once in a period


class BudgetExceededError(ChatUIError):
    """A budget is used up; `retry_after` is how many seconds remain until its period ends."""

    code = "budget_exceeded"
    status = 429
    public_message = "The budget is used up."

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message, public_message=message)
        self.retry_after = retry_after


class TooManyTurnsError(ChatUIError):
    """As many answers are being written at once as the user, or the whole organization, group or agent, may have."""

    code = "too_many_turns"
    status = 429
    public_message = "You have too many answers running at once. Wait for one to finish, or stop it."


@dataclass(frozen=True, slots=True)
class Limit:
    """One bound of one budget: at most `amount` of `measure` for each `per`, in each calendar `period` (UTC)."""

    per: Per
    measure: Measure
    period: Period
    amount: float
    only: Only = None

    @property
    def key(self) -> str:
        return f"{self.per}:{self.measure}:{self.period}"


@dataclass(frozen=True, slots=True)
class Running:
    """How many turns may run at once for each `per`."""

    per: Per
    amount: int
    only: Only = None

    @property
    def key(self) -> str:
        return f"{self.per}:{RUNNING}"


def limits_of(budgets: Iterable[Mapping[str, Any]]) -> list[Limit]:
    """The limits in an organization's stored budgets. Unknown keys were refused when they were stored."""
    return [
        Limit(budget["per"], *LIMITS[key], float(amount), only_of(budget))
        for budget in budgets
        for key, amount in budget.items()
        if key in LIMITS and amount is not None
    ]


def only_of(budget: Mapping[str, Any]) -> Only:
    """The ids of those whom a stored budget names."""
    return frozenset(UUID(entry["id"]) for entry in budget[ONLY]) if ONLY in budget else None


B = TypeVar("B", Limit, Running)


def bounding(bounds: Iterable[B], subjects: Subjects) -> list[tuple[B, UUID]]:
    """What bounds whom. What names a subject stands in for what of its kind names nobody; of several the smallest."""
    kinds: dict[str, list[B]] = {}
    for bound in bounds:
        kinds.setdefault(bound.key, []).append(bound)
    found: list[tuple[B, UUID]] = []
    for alike in kinds.values():
        everybody = [bound for bound in alike if bound.only is None]
        for subject in subjects[alike[0].per]:
            own = [bound for bound in alike if bound.only is not None and subject in bound.only]
            found += [(bound, subject) for bound in ([min(own, key=_amount)] if own else everybody)]
    return found


def _amount(bound: Limit | Running) -> float:
    return bound.amount


def running_of(
    budgets: Iterable[Mapping[str, Any]], subjects: Subjects, default: int | None
) -> dict[tuple[Per, UUID], int]:
    """How many turns may run at once, by whose; of several the smallest. `default` is a user's, where none is said."""
    bounds = [
        Running(budget["per"], int(budget[RUNNING]), only_of(budget))
        for budget in budgets
        if budget.get(RUNNING) is not None
    ]
    found: dict[tuple[Per, UUID], int] = {}
    for bound, subject in bounding(bounds, subjects):
        whose = (bound.per, subject)
        found[whose] = min(found.get(whose, bound.amount), bound.amount)
    if default is not None:
        for subject in subjects["user"]:
            found.setdefault(("user", subject), default)
    return found


Violation = tuple[tuple[str | int, ...], str]


def violations(budgets: Any, *, stored: bool = False) -> list[Violation]:
    """What is wrong with budgets as they are entered: (path, words) pairs, none if they can be stored.

    Entered, they name people, groups and agents; `stored`, they have their ids (see `accounts.budget_subjects`).
    """
    if not isinstance(budgets, list):
        return [((), "must be a list")]
    found: list[Violation] = []
    for number, budget in enumerate(budgets):
        if not isinstance(budget, Mapping):
            found.append(((number,), "must be a mapping (key: value)"))
            continue
        if budget.get("per") not in get_args(Per):
            found.append(((number, "per"), f"must be one of {', '.join(get_args(Per))}"))
        for key, amount in budget.items():
            if key == "per":
                continue
            if key == ONLY:
                found += [((number, ONLY, *where), words) for where, words in _misnamed(budget, stored)]
            elif key not in KEYS:
                found.append(((number, str(key)), f"unknown key; known are per, {ONLY}, {', '.join(KEYS)}"))
            elif isinstance(amount, bool) or not isinstance(amount, int | float) or amount < 0:
                found.append(((number, key), "must be a number, not negative"))
            elif not _is_finite(amount):
                found.append(((number, key), "must be a finite number"))
        if not any(key in KEYS for key in budget):
            found.append(((number,), f"bounds nothing: give one of {', '.join(KEYS)}"))
    return found


def _is_finite(amount: float) -> bool:
    """Whether it is a number that can be counted up to: a whole one may be too large for that."""
    try:
        return math.isfinite(amount)
    except OverflowError:
        return False


def _misnamed(budget: Mapping[str, Any], stored: bool) -> Iterator[Violation]:
    """What is wrong with whom a budget names."""
    names = budget[ONLY]
    if budget.get("per") == "organization":
        yield (), "is for groups, users and agents: there is one organization"
    elif not isinstance(names, list) or not names:
        yield (), "must be a list of names, one at least"
    else:
        for number, name in enumerate(names):
            if stored and not _is_entry(name):
                yield (number,), "must have the id of whom it names"
            elif not stored and not (isinstance(name, str) and name):
                yield (number,), "must be a name (text)"
            elif name in names[:number]:
                yield (number,), f"“{name}” is named twice"


def _is_entry(entry: Any) -> bool:
    """Whether it is `{id}` or `{id, name}`."""
    try:
        UUID(entry["id"])
    except (TypeError, KeyError, ValueError, AttributeError):
        return False
    return set(entry) <= {"id", "name"}


def beginning(period: Period, now: datetime) -> datetime:
    """When the period that `now` is in began."""
    match period:
        case "minute":
            return now.replace(second=0, microsecond=0)
        case "day":
            return now.replace(hour=0, minute=0, second=0, microsecond=0)
        case "month":
            return now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def ending(period: Period, now: datetime) -> datetime:
    """When it ends and the budget is whole again."""
    began = beginning(period, now)
    match period:
        case "minute":
            return began + timedelta(minutes=1)
        case "day":
            return began + timedelta(days=1)
        case "month":
            return (began + timedelta(days=32)).replace(day=1)


def exceeded(limit: Limit, now: datetime) -> BudgetExceededError:
    """The refusal, in words, with the moment at which it ends."""
    ends = ending(limit.period, now)
    verb = "is" if limit.measure == "cost" else "are"
    return BudgetExceededError(
        f"The {_WHAT[limit.measure]} that {_WHOSE[limit.per]} may use per {limit.period} {verb} used up. "
        f"This ends at {moment(ends)}. {_WAY_OUT.get(limit.per, '')}An administrator can raise the budget.",
        retry_after=max(1.0, (ends - now).total_seconds()),
    )


_WHOSE = {"organization": "your organization", "group": "your group", "user": "you", "agent": "this agent"}
_WAY_OUT = {"agent": "Until then another agent may answer. "}
_WHAT = {"tokens": "tokens", "cost": "cost", "calls": "tool calls", "requests": "questions"}


def moment(at: datetime) -> str:
    """A moment in words that need no time zone of the reader's."""
    return f"{at:%Y-%m-%d %H:%M} UTC"


def number(measure: Measure, amount: float) -> str:
    """An amount as people read it: whole numbers with separators, money with what is left of it."""
    return f"{amount:,.2f}" if measure == "cost" else f"{amount:,.0f}"


def warning(limit: Limit, spent: float, now: datetime) -> str:
    """That a limit is nearly reached, in words, with the moment at which it starts anew."""
    share = 100 * spent / limit.amount if limit.amount else 100
    # Of what others have spent too, a person is told the share alone.
    amounts = (
        f": {number(limit.measure, spent)} of {number(limit.measure, limit.amount)}" if limit.per == "user" else ""
    )
    return (
        f"{share:.0f} % of the {_WHAT[limit.measure]} that {_WHOSE[limit.per]} may use per {limit.period} are "
        f"used{amounts}. The count starts anew at {moment(ending(limit.period, now))}."
    )


def too_many_running(per: Per, amount: int) -> TooManyTurnsError:
    """The refusal of one more answer at once, in words."""
    if per == "user":
        return TooManyTurnsError()
    words = (
        f"At most {amount} answers may be written at once for {_WHOSE[per]}, and so many are. Try again in a moment."
    )
    return TooManyTurnsError(words, public_message=words)
