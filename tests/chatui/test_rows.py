"""Row work: crossing to it and back, and transactions of many threads, each whole."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings
from django.db import connection
from django.utils import translation

from accounts.models import Organization
from chatui.rows import in_rows, writing


@pytest.mark.django_db(transaction=True)
def test_transactions_of_many_threads_follow_each_other_and_lose_nothing() -> None:
    row = Organization.objects.create(slug="acme", name="0")

    def count(_: int) -> None:
        try:
            for _ in range(20):
                with writing():
                    found = Organization.objects.select_for_update().get(pk=row.pk)
                    found.name = str(int(found.name) + 1)
                    found.save()
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(count, range(8)))
    row.refresh_from_db()
    assert row.name == "160"


@pytest.mark.django_db(transaction=True)
def test_what_fails_is_undone_and_the_next_may_write() -> None:
    def fail() -> None:
        with writing():
            Organization.objects.create(slug="acme", name="Acme")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with writing(), writing():
        Organization.objects.create(slug="globex", name="Globex")
    assert [row.slug for row in Organization.objects.all()] == ["globex"]


# --- Crossing ---------------------------------------------------------------------------------------------------------


async def test_a_value_and_an_error_cross_back() -> None:
    assert await in_rows(lambda: threading.current_thread().name) != threading.current_thread().name
    assert await in_rows(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await in_rows(divmod, 7, 0)
    with pytest.raises(RuntimeError):
        await in_rows(next, iter(()))


async def test_what_holds_for_the_caller_holds_in_the_thread_and_what_is_set_there_holds_after() -> None:
    language: ContextVar[str] = ContextVar("language")
    language.set("de")
    with translation.override("de"):

        def work() -> tuple[str, str | None]:
            found = language.get(), translation.get_language()
            language.set("fr")
            return found

        assert await in_rows(work) == ("de", "de")
    assert language.get() == "fr"


async def test_row_work_may_go_back_to_the_loop_that_it_came_from() -> None:
    loop = asyncio.get_running_loop()

    async def which() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    assert await in_rows(async_to_sync(which)) is loop


async def test_a_cancelled_caller_leaves_at_once_and_the_work_is_done() -> None:
    begun, go, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go.wait()
        done.set()

    caller = asyncio.create_task(in_rows(work))
    await asyncio.to_thread(begun.wait)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert not done.is_set()
    go.set()
    await asyncio.to_thread(done.wait)


async def test_cancelled_work_that_still_waits_for_a_thread_is_done_too() -> None:
    go = threading.Event()
    busy = [asyncio.create_task(in_rows(go.wait)) for _ in range(settings.DB_POOL_SIZE)]
    done = threading.Event()
    caller = asyncio.create_task(in_rows(done.set))
    await asyncio.sleep(0)
    caller.cancel()
    go.set()
    await asyncio.to_thread(done.wait)
    await asyncio.gather(*busy)
