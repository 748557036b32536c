"""The audit over the API: for owners and auditors, page by page, by filters that say when they make no sense."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from django.test import AsyncClient
from django.utils import timezone

from accounts import audit
from accounts.models import AuditAction, AuditRecord, Organization, Role, User
from chatui.rows import in_rows
from tests.conversations.api.conftest import Enter

ADDRESS = "/api/v1/audit"
CANARY = "canary-7f3a"


@pytest.fixture
def calls(transactional_db: None, organization: Organization, other_organization: Organization, bob: User) -> None:
    now = timezone.now()
    for number in range(5):
        audit.record(
            AuditAction.TOOL_CALL,
            organization_id=organization.pk,
            actor_id=bob.pk,
            at=now - timedelta(minutes=number // 2),
            server="files",
            tool=f"tool-{number}",
            status="ok",
            verdict="allow",
            body={"arguments": {"path": CANARY}, "result": "x"},
        )
    audit.record(AuditAction.TOOL_CALL, organization_id=other_organization.pk, tool="theirs")


@pytest_asyncio.fixture
async def auditor(as_user: Enter, calls: None, make_member: Callable[..., User], organization: Organization) -> Any:
    return await as_user(await in_rows(make_member, "dora", organization, Role.AUDITOR))


async def tools(client: AsyncClient, query: str = "") -> list[str]:
    answer = await client.get(f"{ADDRESS}?action=tool.call&{query}")
    assert answer.status_code == 200, answer.content
    return [item["tool"] for item in answer.json()["items"]]


async def test_pages_hold_every_entry_once_and_no_contents(auditor: AsyncClient) -> None:
    found, query = [], "limit=2&action=tool.call"
    for _ in range(3):
        answer = await auditor.get(f"{ADDRESS}?{query}")
        assert CANARY not in answer.content.decode()
        body = answer.json()
        found += [item["tool"] for item in body["items"]]
        query = f"limit=2&action=tool.call&cursor={body['next']}"
    assert sorted(found) == [f"tool-{number}" for number in range(5)]
    assert body["next"] is None


async def test_an_entry_says_who_what_and_how_it_went(auditor: AsyncClient, bob: User) -> None:
    item = (await auditor.get(f"{ADDRESS}?tool=tool-0")).json()["items"][0]
    assert item["actor"] == {"id": str(bob.pk), "username": "bob"}
    assert (item["server"], item["status"], item["verdict"], item["has_contents"]) == ("files", "ok", "allow", True)


async def test_filters_narrow(auditor: AsyncClient) -> None:
    assert await tools(auditor, "tool=TOOL-3") == ["tool-3"]
    assert len(await tools(auditor, "person=bob&server=file&status=ok&verdict=allow")) == 5
    assert await tools(auditor, "person=nobody") == []
    until = (timezone.now() - timedelta(seconds=90)).isoformat()
    assert await tools(auditor, f"until={until}") == ["tool-4"]
    assert len(await tools(auditor, f"since={until}")) == 4
    assert await tools(auditor, "until=2020-01-01") == []


@pytest.mark.parametrize(
    "query",
    [
        "action=made_up",
        "status=fine",
        "verdict=maybe",
        "since=yesterday",
        "until=x",
        "limit=0",
        "cursor=x",
        "cursor=W10",
    ],
)
async def test_a_filter_that_makes_no_sense_is_named(auditor: AsyncClient, query: str) -> None:
    answer = await auditor.get(f"{ADDRESS}?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(query.partition("=")[0] + ":")


async def test_it_is_read_with_the_role_and_with_the_scope(
    calls: None, as_user: Enter, as_key: Enter, alice: User, bob: User, organization: Organization, make_member: Any
) -> None:
    admin = await in_rows(make_member, "eve", organization, Role.ADMIN)
    for user in (bob, admin):
        for method, address in (("get", ADDRESS), ("post", f"{ADDRESS}/export")):
            assert (await getattr(await as_user(user), method)(address)).status_code == 403
    assert len(await tools(await as_key(alice, organization, scopes=("read",)))) == 5
    assert (await (await as_key(alice, organization, scopes=("chat",))).get(ADDRESS)).status_code == 403
    assert (await AsyncClient().get(ADDRESS)).status_code == 401


async def test_another_organization_s_entries_are_not_there(
    calls: None, as_user: Enter, charlie: User, organization: Organization
) -> None:
    client = await as_user(charlie)
    assert await tools(client) == ["theirs"]
    assert (await client.get(f"{ADDRESS}?organization=acme")).status_code == 404
    entry = await in_rows(AuditRecord.objects.as_system().filter(tool="tool-0").get)
    assert (await client.post(f"{ADDRESS}/{entry.pk}/contents")).status_code == 404


@pytest.mark.parametrize("form", ["csv", "jsonl"])
async def test_a_file_is_made_and_recorded(auditor: AsyncClient, form: str) -> None:
    answer = await auditor.post(f"{ADDRESS}/export?format={form}&action=tool.call&server=files")
    assert answer.status_code == 200
    assert f'.{form}"' in answer["Content-Disposition"]
    text = b"".join([piece async for piece in answer]).decode()
    assert len(text.strip().splitlines()) == (6 if form == "csv" else 5)
    assert CANARY not in text
    assert "theirs" not in text
    told = await in_rows(AuditRecord.objects.as_system().get, action="audit.exported")
    assert told.details == {"format": form, "entries": 5, "filters": ["action", "server"]}
    assert told.via == "web"


async def test_a_file_of_another_kind_is_refused(auditor: AsyncClient) -> None:
    assert (await auditor.post(f"{ADDRESS}/export?format=xlsx")).status_code == 400


async def test_contents_are_shown_to_who_asks_for_them_and_that_is_recorded(
    auditor: AsyncClient, settings: Any
) -> None:
    entry = (await auditor.get(f"{ADDRESS}?tool=tool-0")).json()["items"][0]["id"]
    answer = await auditor.post(f"{ADDRESS}/{entry}/contents")
    assert answer.json() == {"arguments": {"path": CANARY}, "result": "x"}
    told = await in_rows(AuditRecord.objects.as_system().get, action="audit.body_read")
    assert told.object_id == entry
    assert CANARY not in json.dumps(told.details)
    settings.ENCRYPTION_KEYS = ["another"]
    lost = await auditor.post(f"{ADDRESS}/{entry}/contents")
    assert (lost.status_code, lost.json()["error"]["code"]) == (410, "contents_lost")


async def test_a_page_is_a_constant_number_of_queries(auditor: AsyncClient, count_queries: Any) -> None:
    with count_queries() as small:
        await auditor.get(f"{ADDRESS}?limit=1")
    few = len(small)
    with count_queries() as large:
        await auditor.get(f"{ADDRESS}?limit=100")
    assert len(large) == few
