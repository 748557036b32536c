"""One process without Redis: it alone serves its SQLite file, and its own thread runs Celery's tasks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from django.db import connection

from chatui import embedded
from chatui.embedded_worker import Worker
from tests.settings import SQLITE

HOLD = """
import sys; from pathlib import Path; from chatui.embedded import claim, AlreadyServedError
try:
    claim(Path(sys.argv[1]))
except AlreadyServedError as error:
    sys.exit(error.public_message)
print("held", flush=True)
sys.stdin.read()
"""


def another_process(database: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(database)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_second_process_on_the_same_file_is_refused_and_told_whose_it_is(tmp_path: Path) -> None:
    database = tmp_path / "chatui.sqlite3"
    with another_process(database) as first:
        assert first.stdout
        assert first.stdout.readline() == "held\n"
        with pytest.raises(embedded.AlreadyServedError) as caught:
            embedded.claim(database)
        assert f"process {first.pid}" in caught.value.public_message
        assert "REDIS_URL" in caught.value.public_message
        with another_process(database) as second:
            assert second.communicate()[1].startswith("Another server (process ")
            assert second.returncode == 1
        first.communicate("")


CLAIM_POSTGRESQL = """
import sys, django; django.setup()
from chatui.embedded import claim_postgresql, AlreadyServedError
try:
    claim_postgresql()
except AlreadyServedError as error:
    sys.exit(error.public_message)
print("held")
"""


@pytest.mark.skipif(SQLITE, reason="claims a PostgreSQL database; run without TEST_DATABASE=sqlite")
def test_a_second_process_on_the_same_postgresql_database_is_refused_without_redis(db: None) -> None:
    parameters = connection.get_connection_params()
    url = f"postgresql://{parameters['user']}@/{parameters['dbname']}?host={parameters['host']}"
    environment = {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "chatui.settings"}

    def claiming() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", CLAIM_POSTGRESQL]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)

    assert claiming().stdout == "held\n"
    embedded.claim_postgresql()
    try:
        embedded.claim_postgresql()
        refused = claiming()
        assert refused.returncode == 1
        assert "REDIS_URL" in refused.stderr
    finally:
        embedded.release_postgresql()
    assert claiming().stdout == "held\n"


def test_a_claim_ends_with_its_process_however_that_ends(tmp_path: Path) -> None:
    database = tmp_path / "chatui.sqlite3"
    with another_process(database) as first:
        assert first.stdout
        assert first.stdout.readline() == "held\n"
        first.kill()
    embedded.claim(database)
    embedded.claim(database)  # again is harmless
    embedded.release(database)


def test_two_databases_are_served_by_two_processes(tmp_path: Path) -> None:
    with another_process(tmp_path / "a.sqlite3") as first:
        assert first.stdout
        assert first.stdout.readline() == "held\n"
        embedded.claim(tmp_path / "b.sqlite3")
        embedded.release(tmp_path / "b.sqlite3")
        first.communicate("")


@pytest.mark.parametrize(
    ("engine", "name", "redis", "claimed"),
    [
        ("django.db.backends.sqlite3", "/x/chatui.sqlite3", "", True),
        ("django.db.backends.sqlite3", "/x/chatui.sqlite3", "redis://localhost", False),
        ("django.db.backends.sqlite3", ":memory:", "", False),
        ("django.db.backends.postgresql", "chatui", "", False),
    ],
)
def test_only_a_sqlite_file_without_redis_is_claimed(
    settings: Any, monkeypatch: pytest.MonkeyPatch, engine: str, name: str, redis: str, claimed: bool
) -> None:
    settings.REDIS_URL = redis
    monkeypatch.setitem(settings.DATABASES["default"], "ENGINE", engine)
    monkeypatch.setitem(settings.DATABASES["default"], "NAME", name)
    assert (embedded.database_file() is not None) is claimed


@pytest.fixture
def app() -> Iterator[Celery]:
    app = Celery("tests", set_as_current=False, broker=f"memory://{id(object())}")
    app.conf.task_default_queue = f"queue-{id(app)}"
    app.conf.task_ignore_result = True
    yield app
    app.close()


@pytest.fixture
def started(app: Celery) -> Iterator[list[Worker]]:
    workers: list[Worker] = []
    yield workers
    for worker in workers:
        assert worker.stop()


class Ran:
    """What tasks did, with an event for the `count`th."""

    def __init__(self, count: int) -> None:
        self.calls: list[Any] = []
        self._count, self._done = count, threading.Event()

    def __call__(self, value: Any) -> None:
        self.calls.append(value)
        if len(self.calls) == self._count:
            self._done.set()

    def wait(self) -> list[Any]:
        assert self._done.wait(15), self.calls
        return self.calls


def run(app: Celery, workers: list[Worker]) -> None:
    workers.append(Worker(app))
    workers[-1].start()


def test_queued_tasks_run_in_order_in_another_thread(app: Celery, started: list[Worker]) -> None:
    ran = Ran(3)

    @app.task(shared=False)
    def note(value: int, *, name: str) -> None:
        ran((value, name, threading.current_thread().name))

    run(app, started)
    for number in range(3):
        note.delay(number, name="x")
    assert ran.wait() == [(number, "x", "celery-embedded") for number in range(3)]


def test_what_was_queued_before_the_start_runs_too(app: Celery, started: list[Worker]) -> None:
    ran = Ran(1)

    @app.task(shared=False)
    def note() -> None:
        ran("early")

    note.delay()
    run(app, started)
    assert ran.wait() == ["early"]


def test_a_task_that_fails_is_logged_and_the_next_one_runs(
    app: Celery, started: list[Worker], caplog: pytest.LogCaptureFixture
) -> None:
    ran = Ran(1)

    @app.task(shared=False)
    def fail() -> None:
        raise ValueError("broken")

    @app.task(shared=False)
    def note() -> None:
        ran("next")

    run(app, started)
    fail.delay()
    app.send_task("nobody.knows.it")
    note.delay()
    assert ran.wait() == ["next"]
    assert any("fail failed" in record.getMessage() for record in caplog.records)
    assert any("There is no task nobody.knows.it" in record.getMessage() for record in caplog.records)


def test_a_task_with_a_countdown_runs_after_what_is_due_now(app: Celery, started: list[Worker]) -> None:
    ran = Ran(2)

    @app.task(shared=False)
    def note(value: str) -> None:
        ran(value)

    note.apply_async(["later"], countdown=0.5)
    note.delay("now")
    run(app, started)
    assert ran.wait() == ["now", "later"]


def test_the_beat_table_is_ticked(app: Celery, started: list[Worker]) -> None:
    ran = Ran(2)

    @app.task(name="tests.note", shared=False)
    def note(value: str) -> None:
        ran(value)

    app.conf.beat_schedule = {
        "often": {"task": "tests.note", "schedule": timedelta(seconds=0.1), "args": ["beat"]},
        "rarely": {"task": "tests.note", "schedule": timedelta(days=1), "args": ["never"]},
    }
    run(app, started)
    assert ran.wait()[:2] == ["beat", "beat"]


@pytest.mark.django_db(transaction=True)
def test_a_task_uses_the_database_and_leaves_no_connection(app: Celery, started: list[Worker]) -> None:
    ran = Ran(1)

    @app.task(shared=False)
    def look() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            ran(cursor.fetchone())

    run(app, started)
    look.delay()
    assert ran.wait() == [(1,)]


def test_a_stop_waits_for_the_running_task(app: Celery) -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    @app.task(shared=False)
    def slow() -> None:
        begun.set()
        assert go_on.wait(15)
        ended.set()

    worker = Worker(app)
    worker.start()
    slow.delay()
    assert begun.wait(15)
    assert not worker.stop(timeout=0.01)
    go_on.set()
    assert worker.stop()
    assert ended.is_set()


def test_with_redis_there_is_no_thread(settings: Any) -> None:
    settings.REDIS_URL = "redis://localhost"
    embedded.start_worker()
    assert embedded._worker is None
    embedded.stop_worker()


def test_the_product_s_own_worker_starts_once_and_stops() -> None:
    embedded.start_worker()
    first = embedded._worker
    embedded.start_worker()
    assert embedded._worker is first
    embedded.stop_worker()
    assert not any(thread.name == "celery-embedded" for thread in threading.enumerate())


EVERY_TASK = """
import django; django.setup()
from chatui import embedded
from chatui.celery import app
from django.conf import settings
embedded.start_worker()
embedded.stop_worker()
print([entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values() if entry["task"] not in app.tasks])
"""


def test_a_fresh_process_knows_every_task_that_is_on_the_schedule() -> None:
    run = subprocess.run([sys.executable, "-c", EVERY_TASK], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, "[]"), run.stderr
