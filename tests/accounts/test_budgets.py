from datetime import UTC, datetime

import pytest

from accounts.budgets import beginning, ending, exceeded, limits_of, violations

NOW = datetime(2026, 12, 31, 23, 59, 30, tzinfo=UTC)


def test_each_bound_of_a_budget_is_a_limit() -> None:
    found = limits_of([{"per": "user", "tokens_per_day": 1000, "cost_per_month": 5}])
    assert [(limit.per, limit.measure, limit.period, limit.amount) for limit in found] == [
        ("user", "tokens", "day", 1000.0),
        ("user", "cost", "month", 5.0),
    ]


@pytest.mark.parametrize(
    ("budgets", "path"),
    [
        ({}, ()),
        ([5], (0,)),
        ([{"per": "team", "tokens_per_day": 1}], (0, "per")),
        ([{"tokens_per_day": 1}], (0, "per")),
        ([{"per": "user"}], (0,)),
        ([{"per": "user", "tokens_per_week": 1}], (0, "tokens_per_week")),
        ([{"per": "user", "tokens_per_day": -1}], (0, "tokens_per_day")),
        ([{"per": "user", "tokens_per_day": True}], (0, "tokens_per_day")),
        ([{"per": "user", "tokens_per_day": "many"}], (0, "tokens_per_day")),
    ],
)
def test_a_budget_that_cannot_be_meant_is_named(budgets: object, path: tuple[object, ...]) -> None:
    assert path in [where for where, _ in violations(budgets)]


def test_a_good_budget_has_no_violations() -> None:
    budgets = [{"per": "user", "tokens_per_day": 1_000_000}, {"per": "organization", "cost_per_month": 0.5}]
    assert violations(budgets) == []


def test_periods_are_calendar_periods_in_utc() -> None:
    assert beginning("day", NOW) == datetime(2026, 12, 31, tzinfo=UTC)
    assert ending("day", NOW) == datetime(2027, 1, 1, tzinfo=UTC)
    assert ending("month", NOW) == datetime(2027, 1, 1, tzinfo=UTC)
    assert beginning("month", NOW) == datetime(2026, 12, 1, tzinfo=UTC)
    assert ending("minute", NOW) == datetime(2027, 1, 1, tzinfo=UTC)


def test_a_refusal_says_what_whose_and_until_when() -> None:
    (limit,) = limits_of([{"per": "user", "tokens_per_day": 10}])
    error = exceeded(limit, NOW)
    assert "tokens" in error.public_message
    assert "2027-01-01 00:00 UTC" in error.public_message
    assert error.retry_after == 30
