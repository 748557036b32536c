"""Usage added up: one's own and everybody's, by everything that it is asked by, on the page and over the API."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from accounts import audit
from accounts.actors import Actor, find_actor
from accounts.models import AuditAction, AuditRecord, BudgetCounter, Group, Membership, Organization, Role, User
from agents.models import Agent
from chatui.errors import InvalidRequestError
from conversations import usage_report
from conversations.budget_states import bounds_of
from conversations.models import UsageRecord
from conversations.usage_report import span_of

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 3, 15, 12, 30, tzinfo=UTC)


def days(query: dict[str, str]) -> tuple[str, str]:
    span = span_of(query, NOW)
    return f"{span.since:%m-%d}", f"{span.until:%m-%d}"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ("03-01", "03-16")),
        ({"period": "today"}, ("03-15", "03-16")),
        ({"period": "week"}, ("03-09", "03-16")),
        ({"period": "last_month"}, ("02-01", "03-01")),
        ({"period": "year"}, ("01-01", "03-16")),
        ({"from": "2026-02-10", "to": "2026-02-12"}, ("02-10", "02-13")),
        ({"from": "2026-03-02"}, ("03-02", "03-16")),
    ],
)
def test_periods_are_whole_days_in_utc(query: dict[str, str], expected: tuple[str, str]) -> None:
    assert days(query) == expected


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ({"period": "decade"}, "period"),
        ({"from": "1.2.2026"}, "from"),
        ({"to": "2026-13-01"}, "to"),
        ({"from": "2026-03-02", "to": "2026-03-01"}, "to"),
        ({"from": "1999-01-01"}, "from"),
    ],
)
def test_a_period_that_makes_no_sense_is_named(query: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        span_of(query, NOW)
    assert refused.value.public_message.startswith(f"{named}:")


@pytest.fixture
def agent(organization: Organization, make_agent: Callable[..., Agent]) -> Agent:
    return make_agent(organization)


@pytest.fixture
def spent(agent: Agent, alice: User, bob: User, charlie: User) -> None:
    """Alice and Bob have used 100 and 300 tokens today, Bob 1,000 long ago; Charlie is somebody else's."""

    def record(user: User, tokens: int, **fields: Any) -> None:
        fields = {"agent": agent, "model": "helper-endpoint/gpt", "cost": 0.5, "calls": 2} | fields
        organization = Membership.objects.get(user=user).organization
        UsageRecord.objects.create(
            organization=organization,
            user=user,
            turn_id=uuid4(),
            input_tokens=tokens - 10,
            output_tokens=10,
            **{"created_at": timezone.now()} | fields,
        )

    record(alice, 100, model="=cmd", cost=None)
    record(bob, 300)
    record(bob, 1000, created_at=timezone.now() - timedelta(days=400))
    record(charlie, 7777, agent=None)
    for status, tool in (("ok", "read"), ("ok", "read"), ("error", "write")):
        audit.record(
            AuditAction.TOOL_CALL,
            organization_id=agent.organization_id,
            server="files",
            tool=tool,
            status=status,
            duration_ms=10,
        )
    audit.record(AuditAction.TOOL_CALL, organization_id=uuid4(), server="theirs", tool="x", status="ok")


@pytest.fixture
def actor(spent: None, alice: User, actor_of: Callable[[User], Actor]) -> Actor:
    return actor_of(alice)


def rows(actor: Actor, by: usage_report.By) -> dict[str, int]:
    found = usage_report.report(actor, span_of({"period": "today"}, timezone.now()), by)
    return {row.name: row.calls if by in ("server", "tool") else row.input_tokens + row.output_tokens for row in found}


def test_a_report_adds_up_by_everything(actor: Actor, organization: Organization, alice: User, bob: User) -> None:
    team, all_of_us = (Group.objects.create(organization=organization, slug=slug) for slug in ("team", "all"))
    Membership.objects.get(user=bob).groups.set([team, all_of_us])
    Membership.objects.get(user=alice).groups.set([all_of_us])
    assert rows(actor, "user") == {"bob": 300, "alice": 100}
    assert rows(actor, "group") == {"all": 400, "team": 300}
    assert rows(actor, "agent") == {"Helper": 400}
    assert rows(actor, "model") == {"helper-endpoint/gpt": 300, "=cmd": 100}
    assert rows(actor, "server") == {"files": 3}
    assert rows(actor, "tool") == {"files › read": 2, "files › write": 1}


def test_calls_tell_how_many_failed_and_how_long_they_took(actor: Actor) -> None:
    (row,) = usage_report.report(actor, span_of({}, timezone.now()), "server")
    assert (row.calls, row.failed, row.milliseconds) == (3, 1, 10.0)


def test_what_nobody_sees_in_the_name_of_a_tool_is_written_out(actor: Actor) -> None:
    audit.record(
        AuditAction.TOOL_CALL, organization_id=actor.organization_id, server="trap", tool="re\u202ead", status="ok"
    )
    assert rows(actor, "tool")["trap › re⟨U+202E⟩ad"] == 1


def test_who_and_what_is_gone_is_still_counted(actor: Actor, agent: Agent, bob: User) -> None:
    agent.delete()
    bob.delete()
    assert rows(actor, "agent") == {"Deleted agents": 400}
    assert rows(actor, "user") == {"Deleted accounts": 300, "alice": 100}


@pytest.mark.parametrize("by", usage_report.BYS)
def test_a_report_is_a_constant_number_of_queries(actor: Actor, by: Any, django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(2):
        usage_report.report(actor, span_of({}, timezone.now()), by)


# --- The page -----------------------------------------------------------------------------------------------------


PAGE = "/o/acme/usage/"


def client_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def bound(organization: Organization, *budgets: dict[str, Any]) -> None:
    Organization.objects.filter(pk=organization.pk).update(budgets=list(budgets))


def test_a_member_sees_their_own_and_nobody_else_s(spent: None, bob: User) -> None:
    page = client_of(bob).get(f"{PAGE}?period=today").content.decode()
    assert ">290<" in page  # tokens read
    assert "alice" not in page
    assert "Everybody" not in page
    assert client_of(bob).post(f"{PAGE}export/").status_code == 404


def test_who_may_read_usage_sees_everybody_s(
    spent: None, alice: User, organization: Organization, make_member: Callable[..., User]
) -> None:
    for user in (alice, make_member("dora", organization, Role.AUDITOR), make_member("eve", organization, Role.ADMIN)):
        page = client_of(user).get(f"{PAGE}?by=user&period=today").content.decode()
        assert "bob" in page
        assert "7,777" not in page


def test_a_stranger_finds_nothing_and_a_visitor_signs_in(spent: None, charlie: User) -> None:
    assert client_of(charlie).get(PAGE).status_code == 404
    assert Client().get(PAGE)["Location"].startswith("/accounts/login/")


def test_budgets_are_shown_with_the_moment_at_which_they_start_anew_and_nothing_is_written(
    spent: None, bob: User, organization: Organization
) -> None:
    bound(
        organization,
        {"per": "user", "tokens_per_day": 350},
        {"per": "organization", "tokens_per_month": 400, "cost_per_month": 100},
    )
    page = client_of(bob).get(PAGE)
    states = {(budget.per, budget.measure): budget for budget in page.context["budgets"]}
    assert [states["user", "tokens"].state, states["organization", "tokens"].state] == ["nearly", "used_up"]
    text = page.content.decode()
    assert "300 of 350" in text
    assert "400 of 400" not in text  # of the whole organization a member is told the share alone
    assert "100 %" in text
    assert "Starts anew on" in text
    assert not BudgetCounter.objects.as_system().exists()


def test_an_empty_page_says_so(alice: User) -> None:
    page = client_of(alice).get(PAGE).content.decode()
    assert "You have used nothing in this time." in page
    assert "No budget bounds what you may use here." in page
    assert "Nothing was used in this time." in page
    assert "No tool was called" in client_of(alice).get(f"{PAGE}?by=tool").content.decode()


def test_a_bad_period_is_said_and_the_month_is_shown(spent: None, alice: User) -> None:
    page = client_of(alice).get(f"{PAGE}?period=decade")
    assert page.status_code == 200
    assert "period: one of" in page.content.decode()


def test_names_from_outside_are_text(agent: Agent, alice: User) -> None:
    hostile = "<script>alert(1)</script>"
    audit.record(AuditAction.TOOL_CALL, organization_id=agent.organization_id, server="s", tool=hostile)
    page = client_of(alice).get(f"{PAGE}?by=tool").content.decode()
    assert hostile not in page
    assert "&lt;script&gt;" in page


def test_the_file_holds_every_row_without_formulas_and_is_recorded(spent: None, alice: User) -> None:
    answer = client_of(alice).post(f"{PAGE}export/?period=today&by=model")
    found = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert {row["name"]: row["input_tokens"] for row in found} == {"helper-endpoint/gpt": "290", "'=cmd": "90"}
    assert answer["Content-Disposition"].startswith('attachment; filename="usage-model-')
    told = AuditRecord.objects.as_system().get(action="usage.exported")
    assert (told.actor_id, told.details["by"], told.details["rows"]) == (alice.pk, "model", 2)
    assert client_of(alice).get(f"{PAGE}export/").status_code == 405


def test_the_page_is_a_constant_number_of_queries(
    spent: None, alice: User, organization: Organization, django_assert_max_num_queries: Any
) -> None:
    bound(organization, {"per": "user", "tokens_per_day": 350})
    client = client_of(alice)
    with django_assert_max_num_queries(22):
        client.get(PAGE)


def test_what_bounds_one_is_read_once(bob: User, organization: Organization, django_assert_num_queries: Any) -> None:
    actor = find_actor(bob.pk, organization.pk)
    assert actor is not None
    bounds_of(actor)  # whose queries are written once
    with django_assert_num_queries(2):
        assert bounds_of(actor).budgets == ()
    bound(organization, {"per": "user", "tokens_per_day": 600, "running_turns": 5})
    with django_assert_num_queries(4) as queries:  # two of them for what is spent, which was never counted
        bounds = bounds_of(actor)
    assert len([query for query in queries if "accounts_organization" in query["sql"]]) == 1
    assert (len(bounds.budgets), bounds.place.amount, bounds.place.taken) == (1, 5, 0)


def test_a_budget_that_names_one_is_shown_in_place_of_everybody_s(
    spent: None, bob: User, alice: User, organization: Organization
) -> None:
    only = [{"id": str(bob.pk)}]
    bound(
        organization,
        {"per": "user", "tokens_per_day": 350, "running_turns": 2},
        {"per": "user", "only": only, "tokens_per_day": 3000, "running_turns": 7},
    )
    page = client_of(bob).get(PAGE).content.decode()
    assert "300 of 3,000" in page
    assert "of 350" not in page
    assert "you may have 7 answers" in page
    theirs = client_of(alice).get(PAGE).content.decode()
    assert "100 of 350" in theirs
    assert "you may have 2 answers" in theirs


# --- The API ------------------------------------------------------------------------------------------------------


def test_one_s_own_over_the_api(transactional_db: None, spent: None, bob: User, organization: Organization) -> None:
    bound(
        organization,
        {"per": "user", "tokens_per_day": 600, "running_turns": 5},
        {"per": "organization", "cost_per_month": 10},
    )
    body = client_of(bob).get("/api/v1/usage?period=today").json()
    assert body["total"] == {"turns": 1, "input_tokens": 290, "output_tokens": 10, "cost": 0.5, "calls": 2}
    assert [row["name"] for row in body["agents"]] == ["Helper"]
    assert body["running"] == {"now": 0, "at_once": 5}
    own, whole = body["budgets"]
    assert (own["per"], own["measure"], own["spent"], own["amount"], own["share"]) == ("user", "tokens", 300, 600, 0.5)
    assert (whole["per"], whole["measure"], whole["share"]) == ("organization", "cost", 0.05)
    assert not whole.keys() & {"spent", "amount"}
    assert own["resets_at"].endswith("+00:00")


def test_everybody_s_over_the_api_with_the_role(transactional_db: None, spent: None, alice: User, bob: User) -> None:
    address = "/api/v1/usage/report"
    body = client_of(alice).get(f"{address}?period=today").json()
    assert [(row["name"], row["input_tokens"]) for row in body["items"]] == [("bob", 290), ("alice", 90)]
    assert body["total"]["calls"] == 4
    (files,) = client_of(alice).get(f"{address}?by=server").json()["items"]
    assert files == {"id": "files", "name": "files", "calls": 3, "failed": 1, "mean_ms": 10.0}
    assert client_of(bob).get(address).status_code == 403
    for query in ("by=planet", "period=decade", "from=x"):
        refused = client_of(alice).get(f"{address}?{query}")
        assert refused.status_code == 400
        assert refused.json()["error"]["message"].startswith(query.partition("=")[0])
