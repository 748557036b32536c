"""What an organization, a group, a user or an agent may spend in a period: values and words, no rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

from chatui.errors import ChatUIError

Per = Literal["organization", "group", "user", "agent"]
Measure = Literal["tokens", "cost", "calls", "requests"]
Period = Literal["minute", "day", "month"]

# The keys of a stored budget, and what each bounds.
LIMITS: dict[str, tuple[Measure, Period]] = {
    "tokens_per_day": ("tokens", "day"),
    "tokens_per_month": ("tokens", "month"),
    "cost_per_day": ("cost", "day"),
    "cost_per_month": ("cost", "month"),
    "tool_calls_per_day": ("calls", "day"),
    "requests_per_minute": ("requests", "minute"),
}


class BudgetExceededError(ChatUIError):
    """A budget is used up; `retry_after` is how many seconds remain until its period ends."""

    code = "budget_exceeded"
    status = 429
    public_message = "The budget is used up."

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message, public_message=message)
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Limit:
    """One bound of one budget: at most `amount` of `measure` for each `per`, in each calendar `period` (UTC)."""

    per: Per
    measure: Measure
    period: Period
    amount: float


def limits_of(budgets: Iterable[Mapping[str, Any]]) -> list[Limit]:
    """The limits in an organization's stored budgets. Unknown keys were refused when they were stored."""
    return [
        Limit(budget["per"], *LIMITS[key], float(amount))
        for budget in budgets
        for key, amount in budget.items()
        if key in LIMITS and amount is not None
    ]


def violations(budgets: Any) -> list[tuple[tuple[str | int, ...], str]]:
    """What is wrong with budgets as they are entered: (path, words) pairs, none if they can be stored."""
    if not isinstance(budgets, list):
        return [((), "must be a list")]
    found: list[tuple[tuple[str | int, ...], str]] = []
    for number, budget in enumerate(budgets):
        if not isinstance(budget, Mapping):
            found.append(((number,), "must be a mapping (key: value)"))
            continue
        if budget.get("per") not in get_args(Per):
            found.append(((number, "per"), f"must be one of {', '.join(get_args(Per))}"))
        for key, amount in budget.items():
            if key == "per":
                continue
            if key not in LIMITS:
                found.append(((number, str(key)), f"unknown key; known are per, {', '.join(LIMITS)}"))
            elif isinstance(amount, bool) or not isinstance(amount, int | float) or amount < 0:
                found.append(((number, key), "must be a number, not negative"))
        if not any(key in LIMITS for key in budget):
            found.append(((number,), f"bounds nothing: give one of {', '.join(LIMITS)}"))
    return found


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
    whose = {"organization": "your organization", "group": "your group", "user": "you", "agent": "this agent"}
    what = {"tokens": "tokens", "cost": "cost", "calls": "tool calls", "requests": "questions"}
    ends = ending(limit.period, now)
    when = f"{ends:%Y-%m-%d %H:%M} UTC"
    return BudgetExceededError(
        f"The {what[limit.measure]} that {whose[limit.per]} may use per {limit.period} are used up. "
        f"This ends at {when}.",
        retry_after=max(1.0, (ends - now).total_seconds()),
    )
