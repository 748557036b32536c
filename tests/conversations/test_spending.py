"""Budgets as turns meet them: before one begins, between its rounds, and counted whatever becomes of the chat."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.actors import Actor, find_actor
from accounts.budgets import BudgetExceededError, TooManyTurnsError
from accounts.models import BudgetCounter, Group, Membership, Organization, User
from agents.models import Agent
from agents.parts import Decision, PreparedCall, ToolRequest
from chatui.rows import in_rows
from conversations import spending, transitions, turns, usage
from conversations.models import Conversation, Message, Turn, UsageRecord
from conversations.transitions import Progress
from conversations.turns import NewTurn
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


def begun(actor: Actor, agent: Agent, **fields: Any) -> Turn:
    new = NewTurn(request_id=uuid4(), agent=agent.slug, content=[{"type": "text", "text": "x"}], **fields)
    found = turns.begin_turn(actor, new).turn
    assert found is not None
    return found


def spend(actor: Actor, turn: Turn, round: int = 1, calls: int = 0, cost: float | None = None, **tokens: int) -> Any:
    """Store a round of `turn`; `tokens` are what it has used so far."""
    made = [(uuid4(), PreparedCall(ToolRequest(str(n), "t", "{}"), Decision.ALLOW)) for n in range(calls)]
    return spending.store_round(actor, turn, round, made, Progress([], round, {"cost": cost, **tokens}, 1.0))


def over(turn: Turn) -> None:
    transitions.end(turn.pk, Message.Status.COMPLETED, None)


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
@pytest.mark.parametrize("since", ["before the budget", "after the budget"])
def test_every_kind_of_bound_refuses_at_its_amount_and_not_below(
    db: None,
    alice: User,
    organization: Organization,
    make_agent: Callable[..., Agent],
    budget: dict[str, Any],
    since: str,
) -> None:
    agent = make_agent(organization)
    group = Group.objects.create(organization=organization, slug="analysts")
    Membership.objects.get(user=alice).groups.add(group)
    actor = actor_in(alice)
    if since == "after the budget":
        bound(organization, budget)
        spending.require(actor, agent.pk)
    turn = begun(actor, agent)
    try:
        spend(actor, turn, calls=2, cost=0.5, input_tokens=6, output_tokens=4)
    except BudgetExceededError:
        assert since == "after the budget"
    over(turn)
    bound(organization, budget)
    with pytest.raises(BudgetExceededError):
        begun(actor, agent)
    with pytest.raises(BudgetExceededError):
        spending.require(actor, agent.pk)


class TestCounting:
    """What a budget counts: each round once, everybody whom it is of, from the moment it is asked."""

    @pytest.fixture
    def agent(self, organization: Organization, make_agent: Callable[..., Agent]) -> Agent:
        return make_agent(organization)

    @pytest.fixture
    def actor(self, alice: User, agent: Agent) -> Actor:
        return actor_in(alice)

    def tokens(self) -> dict[str, int]:
        return {row.per: row.tokens for row in BudgetCounter.objects.as_system().all()}

    def test_rounds_add_up_once_and_the_end_adds_the_last(
        self, actor: Actor, agent: Agent, organization: Organization
    ) -> None:
        bound(organization, {"per": "organization", "tokens_per_day": 900}, {"per": "user", "tokens_per_day": 900})
        turn = begun(actor, agent)
        spend(actor, turn, 1, input_tokens=60, output_tokens=40)
        assert self.tokens() == {"organization": 100, "user": 100}
        spend(actor, turn, 2, input_tokens=160, output_tokens=90)
        last = Progress([], 3, {"input_tokens": 260, "output_tokens": 140}, 1.0)
        transitions.end(turn.pk, Message.Status.COMPLETED, last, turn=turn)
        assert self.tokens() == {"organization": 400, "user": 400}
        assert UsageRecord.objects.as_system().get().input_tokens == 260

    def test_what_a_dead_process_had_spent_is_counted_once_by_who_ends_its_turn(
        self, actor: Actor, agent: Agent, organization: Organization
    ) -> None:
        bound(organization, {"per": "user", "tokens_per_day": 900})
        turn = begun(actor, agent)
        spend(actor, turn, 1, input_tokens=60)
        transitions.claim(turn.pk, "dead")
        used = {"input_tokens": 100, "output_tokens": 0, "estimated": True, "cost": None}
        assert transitions.checkpoint("dead", {turn.pk: Progress([], 2, used, 1.0)})
        assert len(transitions.reap(everything=True)) == 1
        assert not transitions.reap(everything=True)
        assert transitions.end(turn.pk, Message.Status.STOPPED, Progress([], 3, used, 1.0), turn=turn) is None
        record = UsageRecord.objects.as_system().get()
        assert (record.input_tokens, record.estimated) == (100, True)
        assert self.tokens() == {"user": 100}
        assert Message.objects.get(turns=turn).usage == used

    def test_what_was_spent_before_a_budget_counts_for_it(
        self, actor: Actor, agent: Agent, organization: Organization
    ) -> None:
        turn = begun(actor, agent)
        spend(actor, turn, input_tokens=70)
        over(turn)
        bound(organization, {"per": "user", "tokens_per_month": 100})
        again = begun(actor, agent)
        with pytest.raises(BudgetExceededError):
            spend(actor, again, input_tokens=30)
        assert self.tokens() == {"user": 100}

    def test_a_new_period_begins_at_nothing(
        self, actor: Actor, agent: Agent, organization: Organization, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bound(organization, {"per": "user", "tokens_per_day": 10})
        turn = begun(actor, agent)
        with pytest.raises(BudgetExceededError):
            spend(actor, turn, input_tokens=10)
        over(turn)
        tomorrow = timezone.now() + timedelta(days=1)
        monkeypatch.setattr(spending.timezone, "now", lambda: tomorrow)
        assert begun(actor, agent)

    def test_a_round_stored_as_a_period_ends_is_counted_in_one(
        self, actor: Actor, agent: Agent, organization: Organization, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bound(organization, {"per": "user", "tokens_per_day": 900})
        turn = begun(actor, agent)
        days, began = count(1), timezone.now()
        monkeypatch.setattr(spending.timezone, "now", lambda: began + timedelta(days=next(days)))  # at every look
        assert spend(actor, turn, input_tokens=10).warnings == ()
        tokens = BudgetCounter.objects.as_system().order_by("began").values_list("tokens", flat=True)
        assert list(tokens) == [0, 10]

    def test_a_round_of_yesterdays_turn_is_counted_today_in_a_counter_of_todays_own(
        self, actor: Actor, agent: Agent, organization: Organization, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bound(organization, {"per": "user", "tokens_per_day": 900, "tokens_per_month": 9000})
        evening = timezone.now().replace(day=14, hour=23)
        monkeypatch.setattr(spending.timezone, "now", lambda: evening)
        turn = begun(actor, agent)
        spend(actor, turn, 1, input_tokens=100)
        monkeypatch.setattr(spending.timezone, "now", lambda: evening + timedelta(hours=2))
        spend(actor, turn, 2, input_tokens=130)
        spend(actor, turn, 3, input_tokens=135)
        rows = BudgetCounter.objects.as_system().order_by("period", "began").values_list("period", "tokens")
        assert list(rows) == [("day", 100), ("day", 35), ("month", 135)]

    def test_a_round_locks_no_counter_of_requests(
        self, actor: Actor, agent: Agent, organization: Organization, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bound(organization, {"per": "user", "requests_per_minute": 9}, {"per": "agent", "tokens_per_day": 900})
        noon = timezone.now().replace(hour=12)
        monkeypatch.setattr(spending.timezone, "now", lambda: noon)
        turn = begun(actor, agent)
        minute = BudgetCounter.objects.as_system().get(period="minute")
        with CaptureQueriesContext(connection) as made:
            spend(actor, turn, input_tokens=10)
        ours = [query["sql"] for query in made if "budgetcounter" in query["sql"]]
        assert ours
        assert not [sql for sql in ours if str(minute.subject_id) in sql or minute.subject_id.hex in sql]

    def test_a_round_counts_no_requests(
        self, actor: Actor, agent: Agent, organization: Organization, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bound(organization, {"per": "user", "requests_per_minute": 9, "tokens_per_day": 900})
        noon = timezone.now().replace(hour=12)
        monkeypatch.setattr(spending.timezone, "now", lambda: noon)
        turn = begun(actor, agent)
        monkeypatch.setattr(spending.timezone, "now", lambda: noon + timedelta(minutes=1))
        spend(actor, turn, 1, input_tokens=10)
        transitions.end(turn.pk, Message.Status.COMPLETED, Progress([], 2, {"input_tokens": 20}, 1.0), turn=turn)
        rows = BudgetCounter.objects.as_system().order_by("period").values_list("period", "requests", "tokens")
        assert list(rows) == [("day", 1, 20), ("minute", 1, 0)]

    def test_the_last_call_is_made_and_the_next_is_not(
        self, actor: Actor, agent: Agent, organization: Organization
    ) -> None:
        bound(organization, {"per": "user", "tool_calls_per_day": 2})
        turn = begun(actor, agent)
        spend(actor, turn, 1, calls=2)
        with pytest.raises(BudgetExceededError) as refused:
            spend(actor, turn, 2, calls=1)
        assert "tool calls" in refused.value.public_message
        made = list(turn.calls.order_by("round").values_list("status", flat=True))
        assert made == ["running", "running", "pending"]  # the third was never begun

    def test_where_calls_are_used_up_a_turn_without_tools_may_begin(
        self, actor: Actor, agent: Agent, organization: Organization
    ) -> None:
        bound(organization, {"per": "user", "tool_calls_per_day": 0})
        with pytest.raises(BudgetExceededError):
            begun(actor, agent)
        assert begun(actor, agent, tools=False)

    def test_a_refused_question_does_not_count_as_one(
        self, actor: Actor, agent: Agent, organization: Organization, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        noon = timezone.now().replace(hour=12)
        monkeypatch.setattr(spending.timezone, "now", lambda: noon)
        bound(organization, {"per": "user", "requests_per_minute": 1, "tokens_per_day": 100})
        over(begun(actor, agent))
        for _ in range(3):
            with pytest.raises(BudgetExceededError):
                begun(actor, agent)
        assert {row.requests for row in BudgetCounter.objects.as_system().filter(period="minute")} == {1}

    def test_a_colleague_of_the_same_group_uses_the_same_budget(
        self, actor: Actor, agent: Agent, organization: Organization, alice: User, bob: User
    ) -> None:
        group = Group.objects.create(organization=organization, slug="analysts")
        for user in (alice, bob):
            Membership.objects.get(user=user).groups.add(group)
        bound(organization, {"per": "group", "tokens_per_day": 10})
        turn = begun(actor_in(alice), agent)
        with pytest.raises(BudgetExceededError):
            spend(actor_in(alice), turn, input_tokens=10)
        with pytest.raises(BudgetExceededError):
            begun(actor_in(bob), agent)

    @pytest.mark.parametrize("per", ["organization", "group", "agent", "user"])
    def test_as_many_answers_at_once_as_a_budget_says(
        self, per: str, agent: Agent, organization: Organization, alice: User, bob: User
    ) -> None:
        group = Group.objects.create(organization=organization, slug="analysts")
        for user in (alice, bob):
            Membership.objects.get(user=user).groups.add(group)
        bound(organization, {"per": per, "running_turns": 1})
        turn = begun(actor_in(alice), agent)
        second = alice if per == "user" else bob
        with pytest.raises(TooManyTurnsError):
            begun(actor_in(second), agent)
        over(turn)
        assert begun(actor_in(second), agent)

    def test_a_budget_gives_a_user_more_at_once_than_the_default(
        self, actor: Actor, agent: Agent, organization: Organization, settings: Any
    ) -> None:
        settings.TURN = settings.TURN | {"PER_USER": 1}
        bound(organization, {"per": "user", "running_turns": 2})
        begun(actor, agent)
        begun(actor, agent)
        with pytest.raises(TooManyTurnsError):
            begun(actor, agent)

    @pytest.fixture
    def who(self, agent: Agent, alice: User, bob: User) -> dict[str, Any]:
        organization = agent.organization
        groups = [Group.objects.create(organization=organization, slug=slug) for slug in ("analysts", "interns")]
        Membership.objects.get(user=alice).groups.set(groups)
        return {"user": alice, "agent": agent, "group": groups[1]}

    @pytest.mark.parametrize("per", ["user", "group", "agent"])
    @pytest.mark.parametrize(("everybody", "named"), [(10, 900), (900, 10)])
    def test_a_named_budget_stands_in_for_that_of_everybody(
        self, agent: Agent, organization: Organization, alice: User, who: Any, per: str, everybody: int, named: int
    ) -> None:
        entry = {"id": str(who[per].pk)}
        budgets = [{"per": per, "tokens_per_day": everybody}, {"per": per, "only": [entry], "tokens_per_day": named}]
        if per == "group":  # the other group's is everybody's
            budgets[0]["tokens_per_day"] = 900
        bound(organization, *budgets)
        turn = begun(actor_in(alice), agent)
        if named == 900:
            assert spend(actor_in(alice), turn, input_tokens=720).warnings  # four fifths of one's own
        else:
            with pytest.raises(BudgetExceededError, match="UTC"):
                spend(actor_in(alice), turn, input_tokens=10)

    @pytest.mark.parametrize("per", ["user", "group", "agent"])
    def test_who_is_not_named_is_bound_as_everybody_and_nothing_is_counted_of_who_is_not_bound(
        self, agent: Agent, organization: Organization, bob: User, who: Any, per: str
    ) -> None:
        bound(organization, {"per": per, "only": [{"id": str(uuid4())}], "tokens_per_day": 0, "running_turns": 0})
        turn = begun(actor_in(bob), agent)
        spend(actor_in(bob), turn, input_tokens=10)
        assert self.tokens() == {}

    @pytest.mark.parametrize("per", ["user", "group", "agent"])
    def test_who_is_named_has_as_many_answers_at_once_as_their_own_budget_says(
        self, agent: Agent, organization: Organization, alice: User, who: Any, per: str
    ) -> None:
        entry = {"id": str(who[per].pk)}
        bound(organization, {"per": per, "running_turns": 9}, {"per": per, "only": [entry], "running_turns": 1})
        begun(actor_in(alice), agent)
        with pytest.raises(TooManyTurnsError):
            begun(actor_in(alice), agent)
        bound(organization, {"per": per, "running_turns": 1}, {"per": per, "only": [entry], "running_turns": 9})
        if per == "group":
            Membership.objects.get(user=alice).groups.set([who["group"]])
        assert begun(actor_in(alice), agent)

    def test_named_budgets_and_more_groups_cost_no_more_queries(
        self, agent: Agent, organization: Organization, alice: User, who: Any
    ) -> None:
        def queries() -> list[int]:
            actor = actor_in(alice)
            with CaptureQueriesContext(connection) as beginning:
                turn = begun(actor, agent)
            with CaptureQueriesContext(connection) as round:
                spend(actor, turn, 1, input_tokens=1)
            return [len(beginning), len(round)]

        pers = ("user", "group", "agent")
        bound(organization, *[{"per": per, "tokens_per_day": 900, "running_turns": 90} for per in pers])
        queries()  # which makes the counters
        before = queries()
        for number in range(4):
            group = Group.objects.create(organization=organization, slug=f"more-{number}")
            Membership.objects.get(user=alice).groups.add(group)
        named = [
            {"per": per, "only": [{"id": str(who[per].pk)}], "tokens_per_day": 800 - number, "running_turns": 80}
            for per in pers
            for number in range(5)
        ]
        budgets = Organization.objects.get(pk=organization.pk).budgets
        bound(organization, *budgets, *named)
        queries()  # which makes the counters of the new groups
        assert queries() == before

    def test_a_warning_comes_once_in_a_period(self, actor: Actor, agent: Agent, organization: Organization) -> None:
        bound(organization, {"per": "user", "tokens_per_day": 100})
        turn = begun(actor, agent)
        assert spend(actor, turn, 1, input_tokens=79).warnings == ()
        (words,) = spend(actor, turn, 2, input_tokens=85).warnings
        assert words.startswith("85 % of the tokens that you may use per day are used: 85 of 100.")
        assert "UTC" in words
        assert spend(actor, turn, 3, input_tokens=90).warnings == ()
        assert begun(actor, agent).options["warnings"] == ()

    def test_without_budgets_a_round_is_counted_nowhere_and_costs_one_query_more_than_itself(
        self, actor: Actor, agent: Agent, django_assert_num_queries: Any
    ) -> None:
        turn = begun(actor, agent)
        spend(actor, turn, 1, input_tokens=1)
        assert not BudgetCounter.objects.as_system().exists()
        with django_assert_num_queries(1):
            usage.record(turn, {"input_tokens": 2})


async def test_a_person_is_told_when_a_budget_is_nearly_used_up(
    owner: User, organization: Organization, endpoint: Endpoint
) -> None:
    await in_rows(bound, organization, {"per": "user", "tokens_per_day": 120})
    endpoint.script(text("one", usage=TOKENS), text("two", usage=TOKENS))
    async with await Chat.of(owner) as chat:
        await chat.ask()
        turn_id = await chat.start()
        notice = await chat.until("notice")
        assert notice["code"] == "budget_nearly_used"
        assert "83 % of the tokens" in notice["message"]
        finished = await chat.until("turn.finished", lambda frame: frame["turn_id"] == str(turn_id))
        assert finished["outcome"] == "completed"
        assert any(part["type"] == "notice" for part in finished["message"]["parts"])
