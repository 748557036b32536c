"""What an entry holds, in whose name it is made, and that signing in and out leaves one."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import cache
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts import audit
from accounts.models import AuditAction, AuditRecord, Membership, Organization, User
from tests.accounts.test_signin import sign_in

pytestmark = pytest.mark.django_db


def entries() -> list[AuditRecord]:
    return list(AuditRecord.objects.as_system().order_by("at"))


@pytest.fixture(autouse=True)
def _fresh_limits() -> None:
    cache.clear()


# --- Entries ------------------------------------------------------------------------------------------------------


def test_an_entry_is_one_statement(organization: Organization) -> None:
    with CaptureQueriesContext(
        connection,
    ) as queries:
        audit.record(AuditAction.KEY_CREATED, organization_id=organization.pk)
    assert len(queries) == 1


def test_an_action_that_is_not_known_is_refused(organization: Organization) -> None:
    with pytest.raises(ValueError, match=r"tool\.cal"):
        audit.record("tool.cal", organization_id=organization.pk)


def test_who_acts_in_the_context_is_who_did_it_unless_somebody_else_is_named(alice: User, bob: User) -> None:
    with audit.acting(alice.pk, audit.Via.ADMIN):
        audit.record(AuditAction.PIN_ACCEPTED, organization_id=None)
        audit.record(AuditAction.PIN_ACCEPTED, organization_id=None, actor_id=bob.pk, via=audit.Via.KEY)
    audit.record(AuditAction.PIN_ACCEPTED, organization_id=None)
    audit.record(AuditAction.PIN_ACCEPTED, organization_id=None, actor_id=bob.pk)
    assert [(entry.actor_id, entry.via) for entry in entries()] == [
        (alice.pk, "admin"),
        (bob.pk, "key"),
        (None, "system"),
        (bob.pk, "web"),
    ]


def test_long_and_unstorable_text_is_cut_and_cleaned(organization: Organization) -> None:
    audit.record(
        AuditAction.TOOL_CALL,
        organization_id=organization.pk,
        target=audit.Target("server", None, "x" * 999),
        tool="nul\x00 \ud800" + "y" * 999,
        reason="why " * 999,
        details={"a\x00": "b\ud800"},
    )
    (entry,) = entries()
    assert entry.tool.startswith("nul\N{REPLACEMENT CHARACTER} ")
    assert (len(entry.object_name), len(entry.tool), len(entry.reason)) == (200, 200, 500)
    assert entry.details == {"a\N{REPLACEMENT CHARACTER}": "b\N{REPLACEMENT CHARACTER}"}


def test_the_hash_of_arguments_does_not_depend_on_their_order_and_anybody_can_compute_it() -> None:
    assert audit.arguments_hash({"b": [1, {"d": "ü", "c": None}], "a": 2}) == audit.arguments_hash(
        {"a": 2, "b": [1, {"c": None, "d": "ü"}]}
    )
    # echo -n '{"a":1}' | sha256sum
    assert audit.arguments_hash({"a": 1}) == "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"
    assert audit.arguments_hash({"a": 1}) != audit.arguments_hash({"a": "1"})
    assert len(audit.arguments_hash('{"not": json \ud800')) == 64


def test_kept_contents_are_cut_and_say_so() -> None:
    assert audit.body_of({"a": 1}, "done", 100) == {"arguments": {"a": 1}, "result": "done"}
    kept = audit.body_of({"a": "x" * 200}, "y" * 200, 100)
    assert (len(kept["arguments"]), len(kept["result"]), kept["cut"]) == (100, 100, ["arguments", "result"])


def test_kept_contents_are_encrypted_in_the_database(organization: Organization) -> None:
    audit.record(AuditAction.TOOL_CALL, organization_id=organization.pk, body={"arguments": {"a": "visible?"}})
    with connection.cursor() as cursor:
        cursor.execute("SELECT body FROM accounts_auditrecord")
        assert "visible" not in cursor.fetchone()[0]
    assert entries()[0].body == {"arguments": {"a": "visible?"}}


def test_many_entries_are_stored_by_the_batch(organization: Organization) -> None:
    made = [audit.entry(AuditAction.GRANT_ADDED, organization.pk) for _ in range(audit.BATCH + 1)]
    with CaptureQueriesContext(connection) as queries:
        audit.write(made)
    assert len(queries) == 2
    assert AuditRecord.objects.as_system().count() == audit.BATCH + 1


def test_an_entry_outlives_the_person_and_the_organization(alice: User, organization: Organization) -> None:
    audit.record(AuditAction.SIGN_IN, organization_id=organization.pk, actor_id=alice.pk)
    ids = (organization.pk, alice.pk)
    organization.delete()
    alice.delete()
    assert [(entry.organization_id, entry.actor_id) for entry in entries()] == [ids]


# --- Signing in and out -------------------------------------------------------------------------------------------


def facts() -> list[tuple[Any, ...]]:
    return [(entry.action, entry.organization_id, entry.actor_id, entry.person_id) for entry in entries()]


def test_signing_in_and_out_is_recorded_in_each_organization_of_the_person(
    client: Client, bob: User, organization: Organization, other_organization: Organization
) -> None:
    Membership.objects.create(user=bob, organization=other_organization)
    sign_in(client)
    client.post("/accounts/logout/")
    here, there = organization.pk, other_organization.pk
    assert set(facts()) == {
        (action, where, bob.pk, bob.pk) for action in ("sign_in", "sign_out") for where in (here, there)
    }
    assert {entry.via for entry in entries()} == {"web"}


def test_a_failed_sign_in_names_the_person_it_was_tried_for_and_nobody_who_did_it(client: Client, bob: User) -> None:
    sign_in(client, password="wrong")
    sign_in(client, "bob@example.org", "wrong")
    organization = Membership.objects.get(user=bob).organization_id
    assert facts() == [("sign_in.failed", organization, None, bob.pk)] * 2
    assert entries()[0].details == {"factor": "password"}


def test_what_was_typed_as_an_unknown_name_is_not_kept(client: Client, bob: User) -> None:
    sign_in(client, "correct horse", "bob")
    assert facts() == [("sign_in.failed", None, None, None)]
    rows = str(list(AuditRecord.objects.as_system().values()))
    assert "correct horse" not in rows
    assert "bob" not in rows


def test_a_person_without_an_organization_is_recorded_for_none(client: Client, db: None) -> None:
    User.objects.create_user("loner", "loner@example.org", "correct horse")
    sign_in(client, "loner")
    assert [(entry.action, entry.organization_id) for entry in entries()] == [("sign_in", None)]


def test_a_one_time_link_is_recorded_when_it_is_made_and_when_it_is_used(
    client: Client, bob: User, capsys: Any
) -> None:
    call_command("signin_link", "bob")
    link = capsys.readouterr().out.strip()
    client.post(link.removeprefix("http://testserver"))
    made, used = entries()
    assert (made.action, made.via, made.actor_id, made.person_id) == ("sign_in.link_made", "command", None, bob.pk)
    assert (used.action, used.actor_id, used.details) == ("sign_in", bob.pk, {"methods": ["link"]})
    assert link.rstrip("/").rpartition("/")[2] not in str(list(AuditRecord.objects.as_system().values()))


def test_a_changed_password_is_recorded_without_it(client: Client, bob: User) -> None:
    sign_in(client)
    fields = {"oldpassword": "correct horse", "password1": "battery-staple-7", "password2": "battery-staple-7"}
    assert client.post("/accounts/password/change/", fields).status_code == 302
    assert [entry.details for entry in entries() if entry.action == "sign_in.changed"] == [{"changed": "password"}]
    assert "battery" not in str(list(AuditRecord.objects.as_system().values()))


def test_a_key_that_is_made_at_the_command_line_is_recorded(bob: User, capsys: Any) -> None:
    call_command("createapikey", "bob", org="acme", name="ci", scope="chat,read")
    secret = capsys.readouterr().out.strip()
    (entry,) = entries()
    assert (entry.action, entry.via, entry.person_id) == ("key.created", "command", bob.pk)
    assert entry.details == {"scopes": ["chat", "read"]}
    assert secret not in str(list(AuditRecord.objects.as_system().values()))
