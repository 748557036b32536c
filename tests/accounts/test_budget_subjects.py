"""Whom budgets name: found by name, kept by id."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from accounts import budget_subjects
from accounts.budgets import violations
from accounts.models import Group, Membership, Organization, User
from agents.models import Agent

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent(organization: Organization, make_agent: Callable[..., Agent]) -> Agent:
    return make_agent(organization)


@pytest.fixture
def group(organization: Organization) -> Group:
    return Group.objects.create(organization=organization, slug="interns")


@pytest.fixture
def entered(organization: Organization, agent: Agent, group: Group, bob: User) -> list[dict[str, Any]]:
    return [
        {"per": "organization", "cost_per_month": 9},
        {"per": "group", "only": ["interns"], "tokens_per_day": 5},
        {"per": "user", "only": ["bob"], "tokens_per_day": 5, "running_turns": 1},
        {"per": "agent", "only": ["helper"], "tool_calls_per_day": 5},
    ]


@pytest.fixture
def stored(organization: Organization, entered: list[dict[str, Any]]) -> list[dict[str, Any]]:
    budgets, found = budget_subjects.resolved(organization.pk, entered)
    assert not found
    return budgets


def names(budgets: list[dict[str, Any]]) -> list[str]:
    return [name for budget in budgets for name in budget.get("only", ())]


def test_names_are_stored_as_ids_and_read_as_names_and_no_person_s_name_is_stored(
    organization: Organization,
    entered: list[dict[str, Any]],
    stored: list[dict[str, Any]],
    group: Group,
    bob: User,
) -> None:
    assert [budget.get("only") for budget in stored[:3]] == [
        None,
        [{"id": str(group.pk), "name": "interns"}],
        [{"id": str(bob.pk)}],
    ]
    assert violations(stored, stored=True) == []
    assert "bob" not in json.dumps(stored)
    assert budget_subjects.shown(organization.pk, stored) == entered
    assert budget_subjects.present(organization.pk, stored) == entered
    assert not [name for name in names(entered) if budget_subjects.is_gone(name)]


@pytest.mark.parametrize("per", ["group", "user", "agent"])
@pytest.mark.parametrize("name", ["nobody", "theirs"])
def test_a_name_that_nobody_has_here_is_refused_with_its_place(
    organization: Organization,
    other_organization: Organization,
    make_agent: Callable[..., Agent],
    make_member: Callable[..., User],
    per: str,
    name: str,
) -> None:
    Group.objects.create(organization=other_organization, slug="theirs")
    make_member("theirs", other_organization)
    make_agent(other_organization, slug="theirs")
    _, found = budget_subjects.resolved(organization.pk, [{"per": per, "only": [name], "tokens_per_day": 1}])
    ((where, words),) = found
    assert where == (0, "only", 0)
    assert f"“{name}”" in words


def test_who_is_renamed_keeps_the_budget(
    organization: Organization, stored: list[dict[str, Any]], group: Group, bob: User
) -> None:
    Group.objects.filter(pk=group.pk).update(slug="trainees")
    User.objects.filter(pk=bob.pk).update(username="robert")
    Group.objects.create(organization=organization, slug="interns")
    assert names(budget_subjects.shown(organization.pk, stored)) == ["trainees", "robert", "helper"]


def test_of_who_is_gone_no_newcomer_gets_the_budget(
    organization: Organization,
    make_member: Callable[..., User],
    entered: list[dict[str, Any]],
    stored: list[dict[str, Any]],
    group: Group,
    bob: User,
) -> None:
    Group.objects.filter(pk=group.pk).delete()
    User.objects.filter(pk=bob.pk).delete()
    Group.objects.create(organization=organization, slug="interns")
    make_member("bob", organization)
    told = budget_subjects.shown(organization.pk, stored)
    first, second, third = names(told)
    assert first == f"interns (gone {str(group.pk)[:8]})"
    assert second.startswith("account (gone ")
    assert third == "helper"
    assert [budget_subjects.is_gone(name) for name in (first, second, third)] == [True, True, False]
    # Saved again as it is shown, nothing moves; without what was stored nobody can enter the mark.
    assert budget_subjects.resolved(organization.pk, told, kept=stored) == (stored, [])
    assert len(budget_subjects.resolved(organization.pk, told)[1]) == 2
    # A file tells only who is there.
    assert budget_subjects.present(organization.pk, stored) == [entered[0], entered[3]]


def test_who_left_is_gone_until_they_come_back(
    organization: Organization, stored: list[dict[str, Any]], bob: User
) -> None:
    Membership.objects.filter(user=bob).update(is_active=False)
    assert f"bob (gone {str(bob.pk)[:8]})" in names(budget_subjects.shown(organization.pk, stored))
    Membership.objects.filter(user=bob).update(is_active=True)
    assert "bob" in names(budget_subjects.shown(organization.pk, stored))


def test_names_cost_one_query_for_each_kind(
    organization: Organization, entered: list[dict[str, Any]], django_assert_num_queries: Any
) -> None:
    many = entered + [{"per": "group", "only": ["interns"], "cost_per_day": 1}] * 5
    with django_assert_num_queries(3):
        stored, _ = budget_subjects.resolved(organization.pk, many)
    with django_assert_num_queries(3):
        budget_subjects.shown(organization.pk, stored)


def test_who_is_leaving_cannot_be_named(
    organization: Organization, entered: list[dict[str, Any]], group: Group
) -> None:
    _, found = budget_subjects.resolved(organization.pk, entered, leaving={group.pk, uuid4()})
    assert [where for where, _ in found] == [(1, "only", 0)]
