"""Budgets that change: what was spent meanwhile counts for those that come back."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction
from django.utils import timezone

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


_WAITS = "SELECT count(*) FROM pg_locks WHERE NOT granted"


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite locks no rows")
def test_counters_that_go_are_locked_in_the_order_in_which_a_round_locks_them(organization: Organization) -> None:
    first, second = UUID(int=1), UUID(int=2)
    for pk in (second, first):  # as they lie in the table
        about = {"per": "user", "subject_id": pk, "period": "day", "began": timezone.now()}
        BudgetCounter.objects.create(pk=pk, organization=organization, **about)
    counters = BudgetCounter.objects.as_system()

    def change() -> None:
        try:
            organization.budgets = [{"per": "user", "tokens_per_day": 250}]
            organization.save()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic(), connection.cursor() as cursor:
            counters.select_for_update().get(pk=first)
            changed = pool.submit(change)
            while not changed.done() and cursor.execute(_WAITS).fetchone() == (0,):
                pass
            counters.select_for_update(nowait=True).get(pk=second)
        changed.result()
    assert not counters.exists()
