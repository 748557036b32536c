"""The audit in the admin: found by every filter, taken out by POST alone, contents for those who are meant."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import Client
from django.urls import reverse

from accounts import audit, audit_export
from accounts.models import AuditAction, AuditRecord, Membership, Role
from mcpservers.models import LinkedAccount, MCPServer
from tests.accounts.test_tenant_admin import client_of, listed, url
from tests.fakes.admin_world import CANARY, World, world
from tests.fakes.own_servers import own

__all__ = ["world"]
pytestmark = pytest.mark.django_db
HOSTILE = "<script>alert(1)</script>=1"


@pytest.fixture
def auditor(world: World) -> Client:
    return client_of(world.acme.people[Role.AUDITOR])


@pytest.fixture
def call(world: World) -> AuditRecord:
    audit.record(
        AuditAction.TOOL_CALL,
        organization_id=world.acme.organization.pk,
        actor_id=world.acme.people[Role.MEMBER].pk,
        approved_by_id=world.acme.people[Role.OWNER].pk,
        agent="helper",
        server="files",
        tool=f"read_{HOSTILE}",
        reason=HOSTILE,
        verdict="ask",
        status="ok",
        details={"note": HOSTILE},
        body={"arguments": {"path": HOSTILE}, "result": f"{CANARY}-result", "cut": ["result"]},
    )
    return AuditRecord.objects.as_system().get(action="tool.call")


def taken(client: Client, query: str = "", format: str = "jsonl") -> list[dict[str, Any]]:
    answer = client.post(reverse("admin:accounts_auditrecord_export") + query, {"format": format})
    assert answer.status_code == 200

    async def read() -> bytes:
        return b"".join([piece async for piece in answer])

    return [json.loads(line) for line in async_to_sync(read)().splitlines()]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("action=tool.call", True),
        ("action=sign_out", False),
        ("person=acme-member", True),
        ("person=acme-owner", True),
        ("person=acme-guest", False),
        ("person=nobody", False),
        ("server=file", True),
        ("server=other", False),
        ("tool=READ", True),
        ("agent=helper", True),
        ("status=ok", True),
        ("status=error", False),
        ("verdict=ask", True),
        ("at_from_0=2020-01-01&at_from_1=00:00:00", True),
        ("at_to_0=2020-01-01&at_to_1=00:00:00", False),
        ("at_from_0=2020-01-01", True),
        ("at_from_0=31.1.2020", False),
        ("at_from_1=00:00", False),
    ],
)
def test_each_filter_narrows(auditor: Client, call: AuditRecord, query: str, found: bool) -> None:
    page = auditor.get(f"{url(AuditRecord, 'changelist')}?{query}")
    assert page.status_code == 200
    assert (call.pk in {row.pk for row in page.context["cl"].queryset}) is found


def test_a_time_that_cannot_be_read_is_said_to_be_none(auditor: Client) -> None:
    page = auditor.get(f"{url(AuditRecord, 'changelist')}?at_to_0=yesterday").content.decode()
    assert "A time is written like 2026-01-31" in page


def test_who_reads_several_organizations_chooses_one(world: World, call: AuditRecord) -> None:
    root, address = client_of(world.root), url(AuditRecord, "changelist")
    for organization, found in ((world.acme.organization, True), (world.globex.organization, False)):
        page = root.get(address, {"of": str(organization.pk)})
        assert (call.pk in {row.pk for row in page.context["cl"].queryset}) is found
    assert not root.get(address, {"of": "nonsense"}).context["cl"].queryset.exists()


def test_a_list_is_a_constant_number_of_queries(
    auditor: Client, call: AuditRecord, world: World, django_assert_max_num_queries: Any
) -> None:
    for _ in range(30):
        audit.record(AuditAction.SIGN_IN, organization_id=world.acme.organization.pk, actor_id=call.actor_id)
    with django_assert_max_num_queries(12):
        auditor.get(url(AuditRecord, "changelist"))


def test_names_are_as_they_are_now_and_gone_with_the_account(auditor: Client, call: AuditRecord, world: World) -> None:
    assert "acme-member" in auditor.get(url(AuditRecord, "change", call)).content.decode()
    member = world.acme.people[Role.MEMBER]
    key = member.pk
    member.delete()
    page = auditor.get(url(AuditRecord, "change", call)).content.decode()
    assert "acme-member" not in page
    assert f"deleted account {key}" in page


def test_an_account_is_named_but_not_one_at_a_persons_own_server(auditor: Client, world: World) -> None:
    member, organization = world.acme.people[Role.MEMBER], world.acme.organization
    server = own(member, organization)
    account = LinkedAccount.objects.create(organization=organization, server=server, user=member, name="Private name")
    audit.record(AuditAction.TOOL_CALL, organization_id=organization.pk, server=server.slug, account_id=account.pk)
    address = url(AuditRecord, "change", AuditRecord.objects.as_system().get(account_id=account.pk))
    page = auditor.get(address).content.decode()
    assert "Private name" not in page
    assert str(account.pk) in page
    MCPServer.objects.as_system().filter(pk=server.pk).update(owner=None)
    assert "Private name" in auditor.get(address).content.decode()


def test_what_servers_say_is_text_and_contents_are_not_on_the_page(auditor: Client, call: AuditRecord) -> None:
    for page in ("changelist", "change"):
        text = auditor.get(url(AuditRecord, page, call if page == "change" else None)).content.decode()
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert" in text
        assert CANARY not in text


# --- Contents -----------------------------------------------------------------------------------------------------


def test_an_auditor_who_looks_at_contents_is_recorded(auditor: Client, call: AuditRecord, world: World) -> None:
    address = reverse("admin:accounts_auditrecord_contents", args=[call.pk])
    assert auditor.get(address).status_code == 405
    assert address in auditor.get(url(AuditRecord, "change", call)).content.decode()
    page = auditor.post(address)
    text = page.content.decode()
    assert f"{CANARY}-result" in text
    assert "The rest was not kept" in text
    assert "<script>alert" not in text
    assert "no-store" in page["Cache-Control"]
    looked = AuditRecord.objects.as_system().get(action="audit.body_read")
    assert (looked.actor_id, looked.object_id) == (world.acme.people[Role.AUDITOR].pk, str(call.pk))


def test_contents_are_for_owners_and_auditors_of_the_organization_alone(call: AuditRecord, world: World) -> None:
    address = reverse("admin:accounts_auditrecord_contents", args=[call.pk])
    people = world.acme.people
    assert client_of(people[Role.OWNER]).post(address).status_code == 200
    for user in (people[Role.ADMIN], world.globex.people[Role.OWNER], world.globex.people[Role.AUDITOR], world.root):
        assert client_of(user).post(address).status_code in (302, 403)
    assert client_of(people[Role.MEMBER]).post(address, follow=True).status_code == 403
    Membership.objects.create(user=world.root, organization=world.acme.organization, role=Role.AUDITOR)
    assert client_of(world.root).post(address).status_code == 200


def test_contents_whose_key_is_gone_are_said_to_be(auditor: Client, call: AuditRecord, settings: Any) -> None:
    settings.ENCRYPTION_KEYS = ["another"]
    assert auditor.get(url(AuditRecord, "changelist")).status_code == 200
    page = auditor.post(reverse("admin:accounts_auditrecord_contents", args=[call.pk]))
    assert "a key that this installation has no more" in page.content.decode()


# --- Export -------------------------------------------------------------------------------------------------------


def test_what_the_filters_leave_is_taken_out_and_that_is_recorded(
    transactional_db: None, world: World, call: AuditRecord
) -> None:
    auditor = client_of(world.acme.people[Role.AUDITOR])
    lines = taken(auditor, "?action=tool.call&server=files")
    assert [line["id"] for line in lines] == [str(call.pk)]
    assert CANARY not in json.dumps(lines)
    told = AuditRecord.objects.as_system().get(action="audit.exported")
    assert (told.via, told.organization_id) == ("admin", world.acme.organization.pk)
    assert told.details == {"format": "jsonl", "entries": 1, "filters": ["action", "server"]}


def test_nobody_takes_out_what_is_another_organization_s(transactional_db: None, world: World) -> None:
    lines = taken(client_of(world.globex.people[Role.OWNER]))
    assert lines
    members = {str(user.pk) for user in world.acme.people.values()}
    assert not members & {line["actor"]["id"] for line in lines if line["actor"]}


def test_a_superuser_takes_out_what_is_one_organization_s_and_is_recorded_there(
    transactional_db: None, world: World, call: AuditRecord
) -> None:
    root, address = client_of(world.root), reverse("admin:accounts_auditrecord_export")
    for query in ("", "?of=nonsense", f"?of={call.pk}"):
        page = root.post(address + query, {"format": "csv"}, follow=True)
        assert "Choose an organization under “Filters” first" in page.content.decode()
    assert not AuditRecord.objects.as_system().filter(action="audit.exported").exists()
    assert str(call.pk) in {line["id"] for line in taken(root, f"?of={world.acme.organization.pk}")}
    audit.record(AuditAction.SIGN_IN_FAILED, organization_id=None)
    assert [line["action"] for line in taken(root, "?of=none&action=sign_in.failed")] == ["sign_in.failed"]
    told = AuditRecord.objects.as_system().filter(action="audit.exported")
    assert {row.organization_id for row in told} == {world.acme.organization.pk, None}


def test_who_reads_several_organizations_is_recorded_in_those_that_the_file_is_of(
    transactional_db: None, world: World, call: AuditRecord
) -> None:
    auditor, acme = world.acme.people[Role.AUDITOR], world.acme.organization
    Membership.objects.create(user=auditor, organization=world.globex.organization, role=Role.AUDITOR)
    client, told = client_of(auditor), AuditRecord.objects.as_system().filter(action="audit.exported")
    assert [line["id"] for line in taken(client, f"?of={acme.pk}&action=tool.call")] == [str(call.pk)]
    assert [row.organization_id for row in told] == [acme.pk]
    assert taken(client, "?action=sign_in")
    assert told.filter(organization_id=world.globex.organization.pk).exists()


def test_an_export_is_made_by_post_and_by_who_may(world: World, call: AuditRecord) -> None:
    address = reverse("admin:accounts_auditrecord_export")
    assert client_of(world.acme.people[Role.OWNER]).get(address).status_code == 405
    assert client_of(world.acme.people[Role.ADMIN]).post(address)["Location"] == reverse("admin:index")
    assert client_of(world.acme.people[Role.MEMBER]).post(address, follow=True).status_code == 403
    assert not AuditRecord.objects.as_system().filter(action="audit.exported").exists()


def test_too_many_entries_are_refused_with_a_way_out(
    auditor: Client, call: AuditRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_export, "MAX_ENTRIES", 0)
    page = auditor.post(reverse("admin:accounts_auditrecord_export") + "?server=files", {"format": "csv"}, follow=True)
    assert "Choose a shorter time" in page.content.decode()
    assert page.redirect_chain[-1][0].endswith("?server=files")


def test_the_sidebar_names_the_audit_for_who_may_read_it(world: World) -> None:
    address = url(AuditRecord, "changelist")
    for role, shown in ((Role.OWNER, True), (Role.AUDITOR, True), (Role.ADMIN, False)):
        page = client_of(world.acme.people[role]).get(reverse("admin:index")).content.decode()
        assert (address in page) is shown
    assert world.acme[AuditRecord].pk in listed(client_of(world.root), AuditRecord)
