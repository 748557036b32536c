"""Budgets as the administration shows and takes them: a row for each, names in it, and what is wrong where it is."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from accounts.budgets import KEYS
from accounts.budgets_field import MAX_ROWS
from accounts.models import AuditAction, AuditRecord, Group, Organization, Role
from agents.models import Agent
from tests.accounts.test_tenant_admin import client_of, url
from tests.fakes.admin_world import World, post_data

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(world: World) -> Client:
    return client_of(world.acme.people[Role.OWNER])


def page(client: Client, world: World) -> Any:
    return client.get(url(Organization, "change", world.acme.organization))


def save(client: Client, world: World, **row: str) -> Any:
    """Save the page as it is, with these inputs of budgets, as `0_per="user"`."""
    changes = {f"budgets-{key.replace('_', '-', 1)}": value for key, value in row.items()}
    address = url(Organization, "change", world.acme.organization)
    return client.post(address, post_data(page(client, world)) | changes)


def stored(world: World) -> Any:
    return Organization.objects.get(pk=world.acme.organization.pk).budgets


def store(world: World, *budgets: dict[str, Any]) -> None:
    Organization.objects.filter(pk=world.acme.organization.pk).update(budgets=list(budgets))


def test_a_row_is_stored_and_the_next_one_is_there_without_a_script(owner: Client, world: World) -> None:
    group, agent = world.acme[Group], world.acme[Agent]
    text = page(owner, world).content.decode()
    assert all(f'name="budgets-0-{key}"' in text for key in ("per", "only", *KEYS))
    assert save(owner, world, **{"0_per": "group", "0_only": group.slug, "0_tokens_per_day": "5"}).status_code == 302
    assert save(owner, world, **{"1_per": "organization", "1_cost_per_month": "0.5"}).status_code == 302
    rows = {"2_per": "agent", "2_only": f" {agent.slug} , ", "2_running_turns": "2"}
    assert save(owner, world, **rows).status_code == 302
    assert stored(world) == [
        {"per": "group", "only": [{"id": str(group.pk), "name": group.slug}], "tokens_per_day": 5},
        {"per": "organization", "cost_per_month": 0.5},
        {"per": "agent", "only": [{"id": str(agent.pk), "name": agent.slug}], "running_turns": 2},
    ]


def test_saving_what_is_shown_changes_nothing(owner: Client, world: World) -> None:
    budgets = [
        {"per": "user", "tokens_per_day": 5, "cost_per_day": 0.1, "running_turns": 0},
        {"per": "agent", "tool_calls_per_day": 1.0},
    ]
    store(world, *budgets)
    assert save(owner, world).status_code == 302
    assert stored(world) == budgets
    changed = AuditRecord.objects.as_system().filter(action=AuditAction.BUDGET_CHANGED)
    assert not changed.exists()
    assert save(owner, world, **{"0_running_turns": "1"}).status_code == 302
    assert changed.exists()


def test_a_row_that_is_removed_or_emptied_is_gone(owner: Client, world: World) -> None:
    store(world, *({"per": "user", "tokens_per_day": number} for number in (1, 2, 3)))
    assert save(owner, world, **{"0_remove": "on", "1_tokens_per_day": ""}).status_code == 302
    assert stored(world) == [{"per": "user", "tokens_per_day": 3}]


@pytest.mark.parametrize(
    ("row", "place", "words"),
    [
        ({"0_tokens_per_day": "-1"}, "tokens_per_day", "Must be a number, not negative."),
        ({"0_tokens_per_day": "many"}, "tokens_per_day", "Must be a number, not negative."),
        ({"0_cost_per_day": "nan"}, "cost_per_day", "Must be a finite number."),
        ({"0_per": "team", "0_cost_per_day": "1"}, "per", "Must be one of organization, group, user, agent."),
        ({"0_per": "group", "0_only": "nobody", "0_cost_per_day": "1"}, "only", "There is no group “nobody”"),
        ({"0_per": "organization", "0_only": "acme", "0_cost_per_day": "1"}, "only", "there is one organization"),
        ({"0_per": "group", "0_only": " , ", "0_cost_per_day": "1"}, "only", "names, one at least"),
        ({"0_per": "user", "0_only": "nobody"}, "", "Bounds nothing"),
    ],
)
def test_what_is_wrong_is_said_where_it_is_and_what_was_typed_stays(
    owner: Client, world: World, row: dict[str, str], place: str, words: str
) -> None:
    answer = save(owner, world, **row)
    field = answer.context["adminform"].form["budgets"]
    assert field.errors == ["Budget 1: look at what is marked."]
    assert words in field.field.widget.errors[0, place][0]
    text = answer.content.decode()
    assert words in text
    for key, value in row.items():
        if key != "0_per":
            assert f'name="budgets-{key.replace("_", "-", 1)}" value="{value.strip()}"' in text
    assert stored(world) == []


def test_so_many_that_no_form_takes_them_are_told_and_kept(owner: Client, world: World) -> None:
    budgets = [{"per": "user", "tokens_per_day": number} for number in range(MAX_ROWS + 1)]
    store(world, *budgets[1:])
    rows = {f"budgets-{MAX_ROWS}-tokens_per_day": "5", "budgets-rows": str(MAX_ROWS + 2)}
    data = post_data(page(owner, world))
    assert len(data) < 980
    answer = owner.post(url(Organization, "change", world.acme.organization), data | rows)
    assert "use a configuration file" in answer.content.decode()
    store(world, *budgets)
    assert 'name="budgets' not in page(owner, world).content.decode()
    assert save(owner, world, **{"0_tokens_per_day": "7"}).status_code == 302
    assert stored(world) == budgets


def test_one_s_error_is_not_shown_to_another(owner: Client, world: World) -> None:
    assert save(owner, world, **{"0_tokens_per_day": "-1"}).status_code == 200
    assert "not negative" not in page(owner, world).content.decode()


def test_of_who_is_gone_the_page_says_so_and_keeps_the_budget_from_newcomers(owner: Client, world: World) -> None:
    group = world.acme[Group]
    entry = {"id": str(group.pk), "name": group.slug}
    store(world, {"per": "group", "only": [entry], "tokens_per_day": 5})
    Group.objects.filter(pk=group.pk).delete()
    Group.objects.create(organization=world.acme.organization, slug=group.slug)
    assert f"“{group.slug} (gone {entry['id'][:8]})” was deleted" in page(owner, world).content.decode()
    assert save(owner, world, **{"0_tokens_per_day": "6"}).status_code == 302
    assert stored(world) == [{"per": "group", "only": [entry], "tokens_per_day": 6}]


def test_who_may_only_look_reads_names(world: World) -> None:
    group = world.acme[Group]
    entry = {"id": str(group.pk), "name": "as it was called"}
    store(world, {"per": "group", "only": [entry], "tokens_per_day": 5000, "running_turns": 2})
    text = page(client_of(world.acme.people[Role.AUDITOR]), world).content.decode()
    assert f"Groups: {group.slug}" in text
    assert "Tokens per day: 5,000 · Answers at once: 2" in text
    assert 'name="budgets' not in text
