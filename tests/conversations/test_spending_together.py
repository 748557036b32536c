"""Four processes at once on PostgreSQL: what they spend and begin together is what the budget allows."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from accounts.models import BudgetCounter, Group, Membership, Organization, User
from agents.models import Agent
from conversations.models import Turn
from tests.fakes.spender import TOKENS

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite serves one process"),
]
PROCESSES = 4


Process = subprocess.Popen[str]
Together = Callable[[str, list[str], int], list[int]]


def told(process: Process) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture(scope="module")
def processes(django_db_setup: None) -> Iterator[list[Process]]:
    command = [sys.executable, "-m", "tests.fakes.spender", connection.settings_dict["NAME"]]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    started = [subprocess.Popen(command, text=True, bufsize=1, **pipes) for _ in range(PROCESSES)]
    try:
        assert [told(process) for process in started] == ["ready"] * PROCESSES
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


@pytest.fixture
def together(processes: list[Process]) -> Together:
    """Have each process act as one of these users, all from the same moment; what each has done."""

    def act(what: str, usernames: list[str], number: int) -> list[int]:
        for process, name in zip(processes, usernames, strict=True):
            assert process.stdin is not None
            process.stdin.write(f"{name} {what} {number}\n")
        return [int(told(process)) for process in processes]

    return act


@pytest.fixture
def people(organization: Organization, make_agent: Callable[..., Agent], make_member: Callable[..., User]) -> list[str]:
    make_agent(organization)
    group = Group.objects.create(organization=organization, slug="all")
    users = [make_member(f"person-{number}", organization) for number in range(PROCESSES)]
    for user in users:
        Membership.objects.get(user=user).groups.add(group)
    return [user.username for user in users]


def bound(organization: Organization, *budgets: dict[str, Any]) -> None:
    Organization.objects.filter(pk=organization.pk).update(budgets=list(budgets))


@pytest.mark.parametrize("named", [False, True])
def test_the_last_tokens_are_overspent_by_no_more_than_one_round_each(
    organization: Organization, people: list[str], together: Together, named: bool
) -> None:
    amount = 400
    budgets: list[dict[str, Any]] = [
        {"per": "organization", "tokens_per_day": 10 * amount if named else amount},
        {"per": "group", "tokens_per_month": 10 * amount},
        {"per": "agent", "tokens_per_month": 10 * amount},
    ]
    if named:  # of the one agent that there is
        only = [{"id": str(Agent.objects.as_system().get().pk)}]
        budgets.append({"per": "agent", "only": only, "tokens_per_month": amount})
    bound(organization, *budgets)
    spent = together("spend", people, 100)
    assert amount <= sum(spent) <= amount + PROCESSES * TOKENS
    counted = {row.per: row.tokens for row in BudgetCounter.objects.as_system().all()}
    assert counted == dict.fromkeys(("organization", "group", "agent"), sum(spent))


def test_as_many_questions_are_begun_as_a_minute_allows(
    organization: Organization, people: list[str], together: Together
) -> None:
    # Of two minutes, should one end meanwhile.
    bound(organization, {"per": "organization", "requests_per_minute": 5}, {"per": "user", "running_turns": 100})
    begun = together("begin", people, 5)
    minutes = BudgetCounter.objects.as_system().filter(per="organization", period="minute")
    assert sum(begun) == sum(minutes.values_list("requests", flat=True))
    assert all(count <= 5 for count in minutes.values_list("requests", flat=True))
    assert sum(begun) >= 5


def test_one_person_in_four_processes_has_as_many_answers_at_once_as_is_allowed(
    people: list[str], together: Together
) -> None:
    begun = together("begin", [people[0]] * PROCESSES, 3)
    assert sum(begun) == Turn.objects.count() == 3
