"""What a file has changed is recorded once, by the operator, without what is in it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from django.core.management import call_command

from accounts.models import AuditRecord, Organization, User
from conversations.configuration.problems import ConfigurationError
from mcpservers.models import MCPServer
from tests.conversations.configuration.conftest import SECRETS
from tests.conversations.configuration.test_applying import Apply, acme

pytestmark = pytest.mark.django_db


def entries() -> list[AuditRecord]:
    return list(AuditRecord.objects.as_system().order_by("at"))


def test_applying_is_recorded_object_by_object_and_as_a_whole(apply: Apply) -> None:
    apply()
    acme_id = Organization.objects.get().pk
    assert Counter(entry.action for entry in entries()) == {
        "user.created": 2,
        "organization.created": 1,
        "member.added": 2,
        "group.created": 1,
        "definition.created": 5,
        "grant.added": 4,
        "configuration.applied": 1,
    }
    assert {(entry.via, entry.actor_id) for entry in entries()} == {("command", None)}
    assert {entry.organization_id for entry in entries()} == {acme_id}
    added = {entry.person_id: entry.details for entry in entries() if entry.action == "member.added"}
    assert added.keys() == set(User.objects.values_list("pk", flat=True))
    assert added[User.objects.get(username="alice").pk]["values"] == {"role": ["member", "admin"]}
    assert {entry.server for entry in entries()} == {"", "tickets", "clock"}


def test_nothing_secret_and_nobody_s_name_is_in_it(apply: Apply) -> None:
    apply()
    text = json.dumps(list(AuditRecord.objects.as_system().values()), default=str)
    for word in (*SECRETS.values(), "alice", "bob", "example.org"):
        assert word not in text


def test_applying_again_planning_and_what_is_refused_leave_no_entry(apply: Apply) -> None:
    apply()
    before = len(entries())
    apply()
    apply(acme(name="Other"), plan_only=True)
    with pytest.raises(ConfigurationError):
        apply(acme(members={"nobody": "member"}))
    assert len(entries()) == before


def test_a_change_names_its_fields(apply: Apply) -> None:
    apply()
    before = len(entries())
    apply(acme(servers={"clock": {"timeout": 9, "rules": []}}))
    changed, whole = entries()[before:]
    assert (changed.action, changed.server, set(changed.details["fields"])) == (
        "definition.changed",
        "clock",
        {"timeout", "rules"},
    )
    assert whole.details == {"changes": 1}


def test_a_grant_is_told_as_the_admin_tells_it(apply: Apply) -> None:
    apply()
    before, bob = len(entries()), User.objects.get(username="bob")
    apply(acme(servers={"clock": {"grants": [{"user": "bob", "tool": "now", "deny": True}]}}))
    server = MCPServer.objects.as_system().get(slug="clock")
    told = {entry.action: entry for entry in entries()[before:]}
    assert set(told) == {"grant.added", "grant.removed", "configuration.applied"}
    added = told["grant.added"]
    assert (added.server, added.server_id, added.person_id) == ("clock", server.pk, bob.pk)
    assert added.details == {
        "for": {"user": str(bob.pk)},
        "deny": True,
        "tool": "now",
        "of": {"kind": "server", "id": str(server.pk), "name": "clock"},
    }
    assert told["grant.removed"].server_id == server.pk


def test_what_is_harmless_is_told_with_its_values_and_rows_by_their_ids(apply: Apply) -> None:
    apply()
    before = len(entries())
    apply(acme(audit_days=30, servers={"clock": {"enabled": False}}))
    told = {entry.action: entry for entry in entries()[before:]}
    assert told["organization.changed"].details["values"] == {"audit_days": [None, 30]}
    changed = told["definition.changed"]
    assert changed.details == {"fields": ["enabled"], "values": {"enabled": [True, False]}}
    assert changed.object_id == str(changed.server_id) == str(MCPServer.objects.as_system().get(slug="clock").pk)


def test_new_budgets_are_told_with_the_old_ones(apply: Apply) -> None:
    apply()
    before, budgets = len(entries()), [{"per": "user", "tokens_per_day": 5}]
    apply(acme(budgets=budgets))
    told = {entry.action: entry.details for entry in entries()[before:]}
    assert told["organization.changed"]["fields"] == ["budgets"]
    assert told["budget.changed"]["values"]["budgets"][1] == budgets


def test_writing_the_configuration_out_is_recorded(apply: Apply, capsys: Any) -> None:
    apply()
    before = len(entries())
    call_command("export_config", "acme")
    (entry,) = entries()[before:]
    assert (entry.action, entry.via) == ("configuration.exported", "command")
