from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from accounts.budgets import Per, Subjects, beginning, bounding, ending, exceeded, limits_of, running_of, violations

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
        ([{"per": "user", "tokens_per_day": 10**400}], (0, "tokens_per_day")),
        ([{"per": "user", "cost_per_day": float("nan")}], (0, "cost_per_day")),
        ([{"per": "user", "tokens_per_day": "many"}], (0, "tokens_per_day")),
        ([{"per": "organization", "only": ["acme"], "tokens_per_day": 1}], (0, "only")),
        ([{"per": "user", "only": [], "tokens_per_day": 1}], (0, "only")),
        ([{"per": "user", "only": "ada", "tokens_per_day": 1}], (0, "only")),
        ([{"per": "user", "only": None, "tokens_per_day": 1}], (0, "only")),
        ([{"per": "user", "only": ["ada", 5], "tokens_per_day": 1}], (0, "only", 1)),
        ([{"per": "user", "only": ["ada", "ada"], "tokens_per_day": 1}], (0, "only", 1)),
        ([{"per": "user", "only": [{"id": str(uuid4())}], "tokens_per_day": 1}], (0, "only", 0)),
        ([{"per": "user", "only": ["ada"]}], (0,)),
    ],
)
def test_a_budget_that_cannot_be_meant_is_named(budgets: object, path: tuple[object, ...]) -> None:
    assert path in [where for where, _ in violations(budgets)]


def test_a_good_budget_has_no_violations() -> None:
    budgets = [{"per": "user", "tokens_per_day": 1_000_000}, {"per": "organization", "cost_per_month": 0.5}]
    assert violations(budgets) == []


@pytest.mark.parametrize(
    "entry", ["ada", {"name": "ada"}, {"id": "ada"}, {"id": 5}, {"id": str(uuid4()), "x": 1}, None]
)
def test_what_is_stored_has_an_id_of_whom_it_names(entry: object) -> None:
    assert violations([{"per": "user", "only": [{"id": str(uuid4())}], "tokens_per_day": 1}], stored=True) == []
    found = violations([{"per": "user", "only": [entry], "tokens_per_day": 1}], stored=True)
    assert [where for where, _ in found] == [(0, "only", 0)]


ADA, BOB, CARL = uuid4(), uuid4(), uuid4()


def only(*ids: UUID) -> dict[str, Any]:
    return {"only": [{"id": str(id)} for id in ids]}


def subjects(per: Per) -> Subjects:
    return {"organization": (), "user": (), "group": (), "agent": ()} | {per: (ADA, BOB, CARL)}


@pytest.mark.parametrize("per", ["user", "group", "agent"])
def test_who_is_named_has_the_smallest_of_their_own_and_nothing_of_everybody_s(per: Per) -> None:
    budgets = [
        {"per": per, "tokens_per_day": 100, "cost_per_day": 7, "running_turns": 3},
        {"per": per, "tokens_per_day": 80},
        {"per": per, **only(ADA), "tokens_per_day": 900, "running_turns": 9},
        {"per": per, **only(BOB, ADA), "tokens_per_day": 500, "running_turns": 1},
        {"per": per, **only(BOB), "tokens_per_month": 5},
    ]
    found: dict[UUID, list[tuple[str, float]]] = {}
    for limit, subject in bounding(limits_of(budgets), subjects(per)):
        found.setdefault(subject, []).append((f"{limit.measure} {limit.period}", limit.amount))
    assert sorted(found[ADA]) == [("cost day", 7), ("tokens day", 500)]
    assert sorted(found[BOB]) == [("cost day", 7), ("tokens day", 500), ("tokens month", 5)]
    assert sorted(found[CARL]) == [("cost day", 7), ("tokens day", 80), ("tokens day", 100)]
    assert running_of(budgets, subjects(per), None) == {(per, ADA): 1, (per, BOB): 1, (per, CARL): 3}


def test_a_user_whom_no_budget_bounds_has_the_default_at_once() -> None:
    budgets = [{"per": "user", **only(ADA), "running_turns": 9}]
    assert running_of(budgets, subjects("user"), 3) == {("user", ADA): 9, ("user", BOB): 3, ("user", CARL): 3}


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
