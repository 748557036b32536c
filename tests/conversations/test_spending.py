"""Budgets as turns meet them: before one begins, between its rounds, and counted whatever becomes of the chat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from accounts.actors import Actor, find_actor
from accounts.budgets import BudgetExceededError
from accounts.models import Group, Membership, Organization, User
from agents.models import Agent
from chatui.rows import in_rows
from conversations import spending
from conversations.models import Conversation, UsageRecord
from tests.conversations.chat import Chat
from tests.fakes.endpoint import Endpoint, calls, text

TOKENS = {"prompt_tokens": 60, "completion_tokens": 40, "total_tokens": 100}


def actor_in(user: User) -> Actor:
    found = find_actor(user.pk, "acme")
    assert found is not None
    return found


def bound(organization: Organization, *budgets: dict[str, Any]) -> None:
    Organization.objects.filter(pk=organization.pk).update(budgets=list(budgets))


async def test_what_a_turn_used_is_counted_and_the_next_one_is_refused_with_the_moment_it_ends(
    owner: User, organization: Organization, endpoint: Endpoint
) -> None:
    await in_rows(bound, organization, {"per": "user", "tokens_per_day": 100})
    endpoint.script(text("one", usage=TOKENS))
    async with await Chat.of(owner) as chat:
        await chat.ask()
        await chat.send("turn.start", request_id=str(uuid4()), agent="helper", content=[{"type": "text", "text": "x"}])
        error = await chat.until("error")
        assert error["code"] == "budget_exceeded"
        assert "UTC" in error["message"]
    assert len(endpoint.requests) == 1
    record = await in_rows(UsageRecord.objects.as_system().get)
    assert (record.input_tokens, record.output_tokens, record.user_id) == (60, 40, owner.pk)


async def test_a_budget_that_ends_between_two_rounds_ends_the_turn_before_the_next_request(
    owner: User, organization: Organization, endpoint: Endpoint
) -> None:
    await in_rows(bound, organization, {"per": "organization", "tokens_per_day": 50})
    endpoint.script(calls(("nothing__here", {}), text="Let me see.", usage=TOKENS), text("never asked"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert finished["outcome"] == "failed"
        assert finished["error"]["code"] == "budget_exceeded"
        assert finished["message"]["parts"][0]["text"] == "Let me see."
    assert len(endpoint.requests) == 1


async def test_another_user_has_a_budget_of_their_own(
    owner: User, bob: User, organization: Organization, endpoint: Endpoint
) -> None:
    await in_rows(bound, organization, {"per": "user", "tokens_per_day": 100})
    endpoint.script(text("a", usage=TOKENS), text("b", usage=TOKENS))
    for user in (owner, bob):
        async with await Chat.of(user) as chat:
            assert (await chat.ask())["outcome"] == "completed"


async def test_deleting_the_chat_does_not_give_the_budget_back(
    owner: User, organization: Organization, endpoint: Endpoint
) -> None:
    await in_rows(bound, organization, {"per": "user", "tokens_per_day": 100})
    endpoint.script(text("a", usage=TOKENS))
    async with await Chat.of(owner) as chat:
        await chat.ask()
    await in_rows(lambda: Conversation.objects.as_system().all().delete())
    agent = await in_rows(Agent.objects.as_system().get)
    actor = await in_rows(actor_in, owner)
    with pytest.raises(BudgetExceededError):
        await in_rows(spending.require, actor, agent.pk)


@pytest.mark.parametrize(
    "budget",
    [
        {"per": "agent", "tokens_per_month": 10},
        {"per": "group", "tokens_per_day": 10},
        {"per": "user", "cost_per_day": 0.5},
        {"per": "organization", "tool_calls_per_day": 2},
        {"per": "user", "requests_per_minute": 1},
    ],
)
def test_every_kind_of_bound_refuses_at_its_amount_and_not_below(
    db: None, alice: User, organization: Organization, make_agent: Callable[..., Agent], budget: dict[str, Any]
) -> None:
    agent = make_agent(organization)
    group = Group.objects.create(organization=organization, slug="analysts")
    Membership.objects.get(user=alice).groups.add(group)
    actor = actor_in(alice)
    bound(organization, budget)
    spending.require(actor, agent.pk)
    from django.utils import timezone

    UsageRecord.objects.create(
        organization=organization,
        user=alice,
        agent=agent,
        turn_id=uuid4(),
        input_tokens=6,
        output_tokens=4,
        cost=0.5,
        calls=2,
        created_at=timezone.now(),
    )
    with pytest.raises(BudgetExceededError):
        spending.require(actor, agent.pk)
