"""Row work: transactions of many threads, each whole."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from accounts.models import Organization
from chatui.rows import writing


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
