"""From what an endpoint counts, and a model's prices, to the numbers that people are shown: rows, API and page."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from django.test import AsyncClient

from accounts.models import BudgetCounter, Organization, User
from agents.models import Agent, ModelProfile
from chatui.rows import in_rows
from conversations.checkpoints import Checkpoints
from conversations.models import UsageRecord
from conversations.transitions import Progress
from tests.conversations.chat import Chat
from tests.fakes.endpoint import Endpoint, calls, chunks, delta, failure, never, text


def tokens(given: int, made: int) -> dict[str, int]:
    return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}


def price(agent: Agent, given: str | None, made: str | None) -> None:
    ModelProfile.objects.as_system().filter(pk=agent.model_id).update(input_price=given, output_price=made)


async def get(owner: User, address: str) -> Any:
    client = AsyncClient()
    await in_rows(client.force_login, owner)
    response = await client.get(address)
    assert response.status_code == 200
    return response


async def test_what_a_turn_cost_is_the_same_wherever_it_is_told(
    owner: User, agent: Agent, organization: Organization, endpoint: Endpoint
) -> None:
    await in_rows(price, agent, "250", "1000")
    budgets = [{"per": "user", "cost_per_month": 4}]
    await in_rows(lambda: Organization.objects.filter(pk=organization.pk).update(budgets=budgets))
    endpoint.script(
        calls(("nothing__here", {}), usage=tokens(1000, 100)),
        # Some count in every chunk what there was until then: the last of it counts, and once.
        chunks(
            delta("Hel", usage=tokens(3000, 1)),
            delta("lo.", usage=tokens(3000, 40)),
            delta(finish="stop", usage=tokens(3000, 60)),
        ),
    )
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
    cost = 1.16  # 4000 tokens at 250 the million, and 160 at 1000
    assert finished["message"]["usage"] == {
        "input_tokens": 4000,
        "output_tokens": 160,
        "cost": cost,
        "estimated": False,
    }

    record = await UsageRecord.objects.as_system().aget()
    assert (record.input_tokens, record.output_tokens, record.calls, record.estimated) == (4000, 160, 1, False)
    assert float(record.cost or 0) == pytest.approx(cost)
    counter = await BudgetCounter.objects.as_system().aget()
    assert (float(counter.cost), counter.tokens, counter.calls) == (pytest.approx(cost), 4160, 1)

    told = (await get(owner, "/api/v1/usage?period=today")).json()
    total = {"turns": 1, "input_tokens": 4000, "output_tokens": 160, "cost": pytest.approx(cost), "calls": 1}
    assert told["total"] == total
    assert [(row["name"], row["cost"]) for row in told["models"]] == [(record.model, pytest.approx(cost))]
    assert told["budgets"][0]["spent"] == pytest.approx(cost)
    page = (await get(owner, "/o/acme/usage/?period=today")).content.decode()
    assert "<dd>1.16</dd>" in page
    assert "1.16 of 4" in page


async def test_a_model_without_prices_costs_nothing_that_could_be_told(
    owner: User, agent: Agent, endpoint: Endpoint
) -> None:
    await in_rows(price, agent, "2.5", None)
    endpoint.script(text("Hello.", usage=tokens(10, 5)))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
    assert finished["message"]["usage"]["cost"] is None
    record = await UsageRecord.objects.as_system().aget()
    assert (record.input_tokens, record.output_tokens, record.cost) == (10, 5, None)


@pytest.mark.parametrize("how", ["stopped", "failed"])
async def test_an_answer_that_is_cut_on_its_way_counts_what_was_sent_and_what_came(
    owner: User, agent: Agent, organization: Organization, endpoint: Endpoint, how: str
) -> None:
    """Whoever stops each answer just before its end has spent tokens all the same."""
    budgets = [{"per": "user", "tokens_per_day": 100}]
    await in_rows(lambda: Organization.objects.filter(pk=organization.pk).update(budgets=budgets))
    words, question = "word " * 80, {"agent": "helper", "content": [{"type": "text", "text": "why?"}]}
    endpoint.script(text(words, asyncio.Event()) if how == "stopped" else chunks(delta(words), end="reset"))
    async with await Chat.of(owner) as chat:
        turn_id = await chat.start("why?")
        if how == "stopped":
            await chat.until("text.delta")
            await chat.send("turn.stop", turn_id=str(turn_id))
        finished = await chat.until("turn.finished")
        assert finished["outcome"] == how
        usage = finished["message"]["usage"]
        assert usage["output_tokens"] == 100
        assert usage["input_tokens"] > 0
        assert usage["estimated"] is True
        counter = await BudgetCounter.objects.as_system().aget()
        assert counter.tokens == usage["input_tokens"] + usage["output_tokens"]
        await chat.send("turn.start", **question, request_id=str(uuid4()))
        assert (await chat.until("error"))["code"] == "budget_exceeded"


async def test_an_answer_that_is_stopped_before_its_first_word_counts_what_was_sent_once(
    owner: User, agent: Agent, organization: Organization, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    budgets = [{"per": "user", "tokens_per_day": 900}]
    await in_rows(lambda: Organization.objects.filter(pk=organization.pk).update(budgets=budgets))
    taken: asyncio.Queue[Progress] = asyncio.Queue()
    monkeypatch.setattr(Checkpoints, "due", lambda self, turn_id, take: taken.put_nowait(take()))
    endpoint.script(never())
    async with await Chat.of(owner) as chat:
        turn_id = await chat.start("why?")
        stored = await taken.get()  # what a process leaves behind that dies here
        await chat.send("turn.stop", turn_id=str(turn_id))
        finished = await chat.until("turn.finished")
    usage = finished["message"]["usage"]
    assert (finished["outcome"], usage["output_tokens"], usage["estimated"]) == ("stopped", 0, True)
    assert usage["input_tokens"] > 0
    assert stored.usage == usage
    record = await UsageRecord.objects.as_system().aget()
    assert (record.input_tokens, record.estimated) == (usage["input_tokens"], True)
    assert (await BudgetCounter.objects.as_system().aget()).tokens == usage["input_tokens"]


async def test_an_answer_that_never_began_costs_nothing(owner: User, agent: Agent, endpoint: Endpoint) -> None:
    endpoint.script(*[failure(500, "boom")] * (1 + agent.model.endpoint.retries))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
    assert (finished["outcome"], finished["message"]["usage"]) == ("failed", None)
