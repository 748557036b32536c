"""Budgets of a file name groups, people and agents of the same file; stored, they hold on to whom they named."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import yaml

from accounts.models import AuditRecord, Group, Membership, Organization
from conversations.configuration.applying import apply_configuration
from conversations.configuration.exporting import export_configuration
from conversations.configuration.plan import Plan
from conversations.configuration.problems import ConfigurationError

pytestmark = pytest.mark.django_db
Apply = Callable[..., Plan]

BUDGETS = [
    {"per": "group", "tokens_per_day": 9},
    {"per": "group", "only": ["analysts"], "tokens_per_day": 5},
    {"per": "user", "only": ["bob", "alice"], "cost_per_day": 0.5},
    {"per": "agent", "only": ["helper"], "running_turns": 2},
]


def test_budgets_name_what_the_same_file_makes_and_are_exported_by_name(apply: Apply) -> None:
    apply({"organizations": {"acme": {"budgets": BUDGETS}}})
    export = export_configuration()
    assert yaml.safe_load(export.text)["organizations"]["acme"]["budgets"] == BUDGETS
    assert not apply_configuration(export.text, environment=export.secrets, prune=True)
    assert "bob" not in json.dumps(list(AuditRecord.objects.as_system().values_list("details", flat=True)))
    # Under another name it is the same group, and the same budget.
    Group.objects.filter(slug="analysts").update(slug="people")
    assert '"bob"' not in json.dumps(Organization.objects.get().budgets)
    renamed = export_configuration()
    assert yaml.safe_load(renamed.text)["organizations"]["acme"]["budgets"][1]["only"] == ["people"]
    assert not apply_configuration(renamed.text, environment=renamed.secrets, prune=True)


def test_a_budget_of_who_is_gone_is_in_no_file_and_stays_where_it_is(apply: Apply) -> None:
    apply({"organizations": {"acme": {"budgets": BUDGETS}}})
    Group.objects.filter(slug="analysts").delete()
    before = Organization.objects.get().budgets
    export = export_configuration()
    told = yaml.safe_load(export.text)["organizations"]["acme"]
    assert told["budgets"] == [BUDGETS[0], *BUDGETS[2:]]
    del told["groups"]
    assert not apply_configuration(export.text, environment=export.secrets)
    assert Organization.objects.get().budgets == before


def test_who_is_switched_off_keeps_a_budget_whatever_the_file_says_to_others(apply: Apply) -> None:
    apply({"organizations": {"acme": {"budgets": BUDGETS}}})
    Membership.objects.filter(user__username="bob").update(is_active=False)
    export = export_configuration()
    assert not apply_configuration(export.text, environment=export.secrets, prune=True)
    text = export.text.replace("cost_per_day: 0.5", "cost_per_day: 7")
    assert apply_configuration(text, environment=export.secrets)
    assert not apply_configuration(text, environment=export.secrets)
    Membership.objects.filter(user__username="bob").update(is_active=True)
    told = yaml.safe_load(export_configuration().text)["organizations"]["acme"]["budgets"]
    assert [budget for budget in told if budget["per"] == "user"] == [
        {"per": "user", "only": ["alice"], "cost_per_day": 7},
        {"per": "user", "only": ["bob"], "cost_per_day": 0.5},
    ]


def test_a_budget_cannot_name_what_the_same_file_takes_away(apply: Apply) -> None:
    apply({"organizations": {"acme": {"budgets": BUDGETS}}})
    text = export_configuration().text.replace("    groups:\n      analysts:\n      - bob\n", "")
    assert "analysts:" not in text
    with pytest.raises(ConfigurationError, match=r"budgets.1.only.0: there is no group “analysts”"):
        apply_configuration(text, environment=export_configuration().secrets, prune=True)


@pytest.mark.parametrize(
    ("per", "name", "words"),
    [
        ("group", "nobody", "there is no group “nobody”"),
        ("user", "carl", "there is no member “carl”"),
        ("agent", "main/gpt", "there is no agent “main/gpt”"),
    ],
)
def test_a_name_that_the_organization_has_not_is_refused_with_its_path(
    apply: Apply, per: str, name: str, words: str
) -> None:
    budgets = [{"per": "organization", "cost_per_day": 1}, {"per": per, "only": [name], "tokens_per_day": 1}]
    with pytest.raises(ConfigurationError) as refused:
        apply({"users": {"carl": {}}, "organizations": {"acme": {"budgets": budgets}}})
    (problem,) = refused.value.problems
    assert str(problem).startswith(f"organizations.acme.budgets.1.only.0: {words}")
    assert not Organization.objects.exists()


def test_a_budget_of_what_could_not_be_made_is_no_problem_of_its_own(apply: Apply) -> None:
    agents = {"helper": {"model": "main/none"}}
    with pytest.raises(ConfigurationError) as refused:
        apply({"organizations": {"acme": {"budgets": BUDGETS, "agents": agents}}})
    assert [str(problem).split(":")[0] for problem in refused.value.problems] == [
        "organizations.acme.agents.helper.model"
    ]
