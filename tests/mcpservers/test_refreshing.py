"""The catalogue is refreshed by a worker: what is old or unknown, over connections that end, one worker at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.cache import cache
from django.utils import timezone

from accounts.models import Organization
from chatui.celery import app
from chatui.rows import in_rows
from mcpservers import connections, entries, refreshing, tasks
from mcpservers.models import CatalogueEntry, MCPServer
from mcpservers.refreshing import Refreshed, refresh_stale
from tests.fakes.mcp_server import FakeMCPServer, hang

pytestmark = pytest.mark.django_db(transaction=True)
Made = Callable[..., MCPServer]


@pytest.fixture
async def fake() -> AsyncIterator[FakeMCPServer]:
    entries.memory.clear()
    cache.clear()
    async with FakeMCPServer() as server:
        yield server


@pytest.fixture
def make(organization: Organization, fake: FakeMCPServer) -> Made:
    def made(slug: str = "s", **fields: Any) -> MCPServer:
        fields = {"url": fake.url, "timeout": 60, "connect_timeout": 60, "organization": organization} | fields
        return MCPServer.objects.create(slug=slug, title=slug.title(), **fields)

    return made


def age(hours: float) -> None:
    CatalogueEntry.objects.update(fetched_at=timezone.now() - timedelta(hours=hours))
    entries.memory.clear()


async def test_what_is_unknown_is_listed_and_what_is_fresh_is_left_alone(make: Made, fake: FakeMCPServer) -> None:
    await in_rows(make)
    assert await refresh_stale() == Refreshed(listed=1)
    entry = await in_rows(CatalogueEntry.objects.get)
    assert [tool["name"] for tool in entry.tools] == ["echo", "write"]
    heard = len(fake.exchanges)
    assert await refresh_stale() == Refreshed()
    assert len(fake.exchanges) == heard


async def test_what_is_twelve_hours_old_is_listed_anew(make: Made, fake: FakeMCPServer) -> None:
    await in_rows(make)
    await refresh_stale()
    fake.tools = fake.tools[:1]
    await in_rows(age, 11.9)
    assert await refresh_stale() == Refreshed()
    await in_rows(age, 12.1)
    assert await refresh_stale() == Refreshed(listed=1)
    assert [tool["name"] for tool in (await in_rows(CatalogueEntry.objects.get)).tools] == ["echo"]


async def test_its_connections_end_and_the_pool_is_not_used(make: Made, fake: FakeMCPServer) -> None:
    await in_rows(make)
    await refresh_stale()
    assert connections.manager().list_connections() == []
    await fake.until(lambda: fake.ended == set(fake.sessions))


async def test_a_server_that_fails_or_hangs_costs_no_other_its_list(make: Made, fake: FakeMCPServer) -> None:
    async with FakeMCPServer() as bad:
        bad.on("POST", hang)
        await in_rows(make)
        await in_rows(lambda: make("hung", url=bad.url, connect_timeout=1))
        await in_rows(lambda: make("gone", url="http://127.0.0.1:9/mcp"))
        assert await refresh_stale() == Refreshed(listed=1, failed=2)
    failed = await in_rows(lambda: list(MCPServer.objects.as_system().exclude(last_error="").values_list("slug")))
    assert sorted(failed) == [("gone",), ("hung",)]


async def test_only_servers_that_everybody_shares_and_may_use_are_listed(
    make: Made, fake: FakeMCPServer, other_organization: Organization
) -> None:
    def others() -> None:
        make("off", enabled=False)
        make("own", headers={"X-User": "{{user.id}}"})
        make("turn", headers={"X-Turn": "{{request.turn_id}}"})
        make("closed", organization=other_organization)
        Organization.objects.filter(pk=other_organization.pk).update(is_active=False)

    await in_rows(others)
    assert await refresh_stale() == Refreshed()
    assert not fake.exchanges


async def test_one_worker_at_a_time_and_a_run_that_failed_keeps_nobody_out(
    make: Made, fake: FakeMCPServer, monkeypatch: Any
) -> None:
    await in_rows(make)

    async def broken(*_: Any) -> bool:
        assert await refresh_stale() == Refreshed(), "another run is under way"
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(refreshing, "_refresh", broken)
        with pytest.raises(RuntimeError, match="broken"):
            await refresh_stale()
    assert await refresh_stale() == Refreshed(listed=1)


async def test_a_server_that_is_deleted_meanwhile_is_no_error(make: Made, monkeypatch: Any) -> None:
    server = await in_rows(make)
    find = refreshing.fetching.outdated

    def found() -> Any:
        targets = find()
        MCPServer.objects.as_system().filter(pk=server.pk).delete()
        return targets

    monkeypatch.setattr(refreshing.fetching, "outdated", found)
    assert await refresh_stale() == Refreshed(failed=1)


def test_the_task_is_on_the_schedule_and_runs_without_a_loop(make: Made, monkeypatch: Any) -> None:
    scheduled = {entry["task"] for entry in django_settings.CELERY_BEAT_SCHEDULE.values()}
    app.finalize()
    assert tasks.refresh_catalogue.name in scheduled & set(app.tasks)
    make(url="http://127.0.0.1:9/mcp")
    tasks.refresh_catalogue.apply()
    assert MCPServer.objects.as_system().get().last_error
