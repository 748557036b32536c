"""Budgets that change: what was spent meanwhile counts for those that come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from accounts.budgets import BudgetExceededError
from accounts.models import BudgetCounter, Organization, User
from agents.models import Agent
from tests.conversations.test_spending import actor_in, begun, over, spend


def test_what_was_spent_while_a_budget_named_others_counts_when_it_is_everybody_s_again(
    organization: Organization,
    make_agent: Callable[..., Agent],
    alice: User,
    django_capture_on_commit_callbacks: Any,
) -> None:
    agent, actor = make_agent(organization), actor_in(alice)

    def bound(**budget: Any) -> None:
        with django_capture_on_commit_callbacks(execute=True):
            organization.budgets = [{"per": "user", "tokens_per_day": 250, **budget}]
            organization.save()

    def spend_a_hundred() -> None:
        turn = begun(actor, agent)
        spend(actor, turn, input_tokens=100)
        over(turn)

    bound()
    spend_a_hundred()
    bound(only=[{"id": str(uuid4())}])
    spend_a_hundred()
    bound()
    with pytest.raises(BudgetExceededError):
        spend_a_hundred()
    assert BudgetCounter.objects.as_system().get().tokens == 300


def test_other_changes_of_an_organization_leave_its_counters(
    organization: Organization, make_agent: Callable[..., Agent], alice: User, django_capture_on_commit_callbacks: Any
) -> None:
    organization.budgets = [{"per": "user", "tokens_per_day": 250}]
    organization.save()
    begun(actor_in(alice), make_agent(organization))
    with django_capture_on_commit_callbacks(execute=True) as made:
        organization.name = "Other"
        organization.save()
    assert not made
    assert BudgetCounter.objects.as_system().exists()
