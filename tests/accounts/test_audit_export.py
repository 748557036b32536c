"""A file of entries: complete, in order, tame in a spreadsheet, bounded, and itself recorded."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts import audit, audit_export
from accounts.audit_query import Selection
from accounts.models import AuditAction, AuditRecord, Organization, User
from chatui.errors import TooLargeError

Rows = list[dict[str, Any]]


def written(format: audit_export.Format) -> bytes:
    """The whole file. Sync tests read it as a server does, piece by piece."""
    answer = audit_export.response(AuditRecord.objects.as_system(), format)

    async def read() -> bytes:
        return b"".join([piece async for piece in answer])

    return async_to_sync(read)()


def as_csv() -> Rows:
    return list(csv.DictReader(io.StringIO(written("csv").decode())))


def as_jsonl() -> Rows:
    return [json.loads(line) for line in written("jsonl").splitlines()]


@pytest.fixture
def call(transactional_db: None, organization: Organization, alice: User, bob: User) -> None:
    audit.record(
        AuditAction.TOOL_CALL,
        organization_id=organization.pk,
        actor_id=alice.pk,
        approved_by_id=bob.pk,
        agent="helper",
        server="files",
        tool="=HYPERLINK(0)",
        reason="+1",
        verdict="ask",
        status="ok",
        duration_ms=7,
        details={"a": "ü"},
        body={"arguments": "canary"},
    )


def test_both_forms_tell_the_same(call: None, alice: User, bob: User) -> None:
    (line,), (row,) = as_jsonl(), as_csv()
    assert line["actor"] == {"id": str(alice.pk), "username": "alice"}
    assert line["decided_by"] == {"id": str(bob.pk), "username": "bob"}
    assert (row["actor"], row["actor_id"], row["decided_by"]) == ("alice", str(alice.pk), "bob")
    assert (row["agent"], row["server"], row["status"], row["duration_ms"]) == ("helper", "files", "ok", "7")
    assert json.loads(row["details"]) == line["details"] == {"a": "ü"}
    assert row["id"] == line["id"]


def test_contents_are_in_neither(call: None) -> None:
    assert b"canary" not in written("csv") + written("jsonl")
    assert as_jsonl()[0]["has_contents"] is True


def test_no_cell_is_a_formula(call: None) -> None:
    (row,) = as_csv()
    assert (row["tool"], row["reason"]) == ("'=HYPERLINK(0)", "'+1")


@pytest.mark.parametrize(
    "text", ["=1", "+1", "-1", "@SUM", "\t=1", "\r=1", "\n=1", " =1", "\u00a0=1", "＝1", "|x", "%x"]
)
def test_what_begins_like_a_formula_gets_an_apostrophe(text: str) -> None:
    assert audit_export.harmless(text) == "'" + text


@pytest.mark.parametrize("value", ["read", "a=1", "", 5, None, "'=1"])
def test_the_rest_stays_as_it_is(value: Any) -> None:
    assert audit_export.harmless(value) == value


def test_every_entry_comes_once_whatever_the_page(
    transactional_db: None, organization: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_export, "PAGE", 3)
    same = timezone.now() - timedelta(minutes=1)
    for number in range(8):
        audit.record(AuditAction.SIGN_IN, organization_id=organization.pk, at=same, tool=str(number))
    tools = [line["tool"] for line in as_jsonl()]
    assert sorted(tools) == [str(number) for number in range(8)]


def test_an_export_is_recorded_and_a_huge_one_refused(
    db: None, organization: Organization, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit.record(AuditAction.SIGN_IN, organization_id=organization.pk)
    rows = AuditRecord.objects.as_system().filter(organization_id=organization.pk)
    audit_export.start(rows, "csv", organizations=[organization.pk], filters=["tool"], actor_id=alice.pk)
    entry = AuditRecord.objects.as_system().get(action="audit.exported")
    assert (entry.actor_id, entry.details) == (alice.pk, {"format": "csv", "entries": 1, "filters": ["tool"]})
    monkeypatch.setattr(audit_export, "MAX_ENTRIES", 1)
    with pytest.raises(TooLargeError) as refused:
        audit_export.start(rows, "csv", organizations=[organization.pk], filters=[])
    assert "shorter time" in refused.value.public_message


def test_an_export_of_several_is_told_to_each_and_bounded_in_all(
    db: None, organization: Organization, other_organization: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in (organization, organization, other_organization):
        audit.record(AuditAction.SIGN_IN, organization_id=each.pk)
    both = [organization.pk, other_organization.pk]
    rows = AuditRecord.objects.as_system().filter(organization_id__in=both)
    monkeypatch.setattr(audit_export, "MAX_ENTRIES", 2)
    with pytest.raises(TooLargeError):
        audit_export.start(rows, "csv", organizations=both, filters=[])
    monkeypatch.setattr(audit_export, "MAX_ENTRIES", 3)
    with CaptureQueriesContext(connection) as queries:
        assert audit_export.start(rows, "csv", organizations=both, filters=[]) == 3
    assert len(queries) == 2  # counted once, recorded in one statement
    told = AuditRecord.objects.as_system().filter(action="audit.exported")
    assert {(row.organization_id, row.details["entries"]) for row in told} == {(both[0], 2), (both[1], 1)}


@pytest.mark.parametrize(
    "text", ["one\r\n=cmd|' /C calc'!A0", 'a","b', "read\u202etxt.exe", "end\u2028=1", "\x1b[2Jgone", "\x85next"]
)
def test_nothing_that_a_server_says_adds_a_line_or_turns_one_around(
    text: str, transactional_db: None, organization: Organization
) -> None:
    audit.record(AuditAction.TOOL_CALL, organization_id=organization.pk, server="files", tool=text, reason=text)
    lines = written("jsonl").decode()
    assert len(lines.splitlines()) == 1  # also for who takes U+2028 for the end of one
    (entry,) = as_jsonl()
    assert entry["reason"] == AuditRecord.objects.as_system().get().reason
    (row,) = as_csv()
    assert row["server"] == "files"
    for shown in (lines, row["tool"], row["reason"]):
        assert not {"\u202e", "\u2028", "\x1b", "\x85"} & set(shown)


# --- Filters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selection", "found"),
    [
        ({}, "abc"),
        ({"action": "sign_in"}, "a"),
        ({"person": "alice"}, "ac"),
        ({"person": "bob@example.org"}, "b"),
        ({"person": "nobody"}, ""),
        ({"server": "FIL"}, "bc"),
        ({"tool": "read"}, "b"),
        ({"agent": "help"}, "c"),
        ({"status": "ok"}, "b"),
        ({"verdict": "deny"}, "c"),
        ({"verdict": "deny", "person": "bob"}, ""),
    ],
)
def test_filters_narrow(
    selection: dict[str, str], found: str, organization: Organization, alice: User, bob: User
) -> None:
    def made(reason: str, action: AuditAction, **fields: Any) -> None:
        audit.record(action, organization_id=organization.pk, reason=reason, **fields)

    made("a", AuditAction.SIGN_IN, actor_id=alice.pk)
    made("b", AuditAction.TOOL_CALL, actor_id=bob.pk, server="files", tool="read_file", status="ok")
    made("c", AuditAction.TOOL_CALL, approved_by_id=alice.pk, server="files", agent="helper", verdict="deny")
    rows = Selection(**selection).narrow(AuditRecord.objects.as_system().all())
    assert "".join(sorted(row.reason for row in rows)) == found
    if selection == {"person": "alice"}:
        assert [row.reason for row in Selection(person=str(bob.pk)).narrow(AuditRecord.objects.as_system().all())] == [
            "b"
        ]


def test_times_are_from_and_until(organization: Organization, db: None) -> None:
    now = timezone.now()
    for hours in (1, 2, 3):
        audit.record(AuditAction.SIGN_IN, organization_id=organization.pk, at=now - timedelta(hours=hours))
    rows = Selection(since=now - timedelta(hours=2), until=now - timedelta(hours=1)).narrow(
        AuditRecord.objects.as_system().all()
    )
    assert [row.at for row in rows] == [now - timedelta(hours=2)]
