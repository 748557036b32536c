"""What one used, and the audit taken out of the admin, in a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone
from playwright.async_api import expect

from accounts import audit
from accounts.models import AuditAction, Organization, User
from agents.models import Agent
from chatui.rows import in_rows
from conversations.models import UsageRecord
from tests.e2e.site import Site
from tests.e2e.test_composer import send
from tests.fakes.endpoint import Endpoint

pytestmark = [pytest.mark.e2e, pytest.mark.deadline(120)]  # a browser on a loaded machine
HOSTILE = "<img src=x onerror=\"document.title='owned'\">"


@pytest.fixture
def used(owner: User, agent: Agent, organization: Organization) -> None:
    UsageRecord.objects.create(
        organization=organization,
        user=owner,
        agent=agent,
        turn_id=uuid4(),
        input_tokens=900,
        output_tokens=34,
        calls=1,
        created_at=timezone.now(),
    )
    audit.record(
        AuditAction.TOOL_CALL,
        organization_id=organization.pk,
        actor_id=owner.pk,
        server="files",
        tool=HOSTILE,
        status="ok",
        duration_ms=3,
    )
    Organization.objects.filter(pk=organization.pk).update(budgets=[{"per": "user", "tokens_per_day": 1000}])


async def test_a_person_finds_what_they_used_and_how_much_is_left(site: Site, owner: User, used: None) -> None:
    page = await site.open(owner, viewport={"width": 375, "height": 800})
    await page.get_by_role("button", name="Show the sidebar").click()
    await page.locator(".user-button").click()
    await page.get_by_role("menuitem", name="Usage").click()
    await expect(page.get_by_role("heading", name="Usage")).to_be_visible()
    bar = page.get_by_role("progressbar", name="You · tokens per day")
    assert await bar.get_attribute("value") == "934"
    await expect(page.get_by_text("Nearly used up.")).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth") <= 375
    await page.get_by_role("link", name="Tools").click()
    await expect(page.get_by_text(HOSTILE)).to_be_visible()
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Download CSV").click()
    assert (await download.value).suggested_filename.startswith("usage-tool-")
    assert await page.title() != "owned"


async def test_a_used_up_budget_refuses_with_the_moment_it_ends_and_keeps_what_was_written(
    site: Site, owner: User, used: None, organization: Organization, endpoint: Endpoint
) -> None:
    budget = {"per": "user", "tokens_per_day": 900}
    await in_rows(Organization.objects.filter(pk=organization.pk).update, budgets=[budget])
    page = await site.open(owner)
    await send(page, "one more question")
    notice = page.locator(".composer-notice.error")
    await expect(notice).to_contain_text("used up")
    await expect(notice).to_contain_text(re.compile(r"\d\d:\d\d UTC"))
    await expect(page.locator("#composer-text")).to_have_value("one more question")
    await expect(page.locator(".question")).to_have_count(0)
    assert endpoint.requests == []


async def test_an_owner_takes_the_audit_out(site: Site, owner: User, used: None, tmp_path: Path) -> None:
    page = await site.open(owner, "/admin/accounts/auditrecord/?action=tool.call", ready=False)
    await expect(page.get_by_text(f"files › {HOSTILE}")).to_be_visible()
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Export as JSON Lines").click()
    await (await download.value).save_as(tmp_path / "audit.jsonl")
    (line,) = (tmp_path / "audit.jsonl").read_text().splitlines()
    entry: dict[str, Any] = json.loads(line)
    assert (entry["actor"]["username"], entry["tool"]) == (owner.username, HOSTILE)
    assert await page.title() != "owned"
