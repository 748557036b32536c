"""What makes SQLite fit for turns that run side by side, on a file of its own: whatever the tests' own database is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import ConnectionHandler
from pytest_django import DjangoDbBlocker

from chatui.settings import database

Connect = Callable[[], BaseDatabaseWrapper]


@pytest.fixture
def connect(tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> Iterator[Connect]:
    """A new connection to one and the same file."""
    opened: list[BaseDatabaseWrapper] = []

    def make() -> BaseDatabaseWrapper:
        connection = ConnectionHandler({"default": database(f"sqlite:///{tmp_path / 'x.sqlite3'}")})["default"]
        connection.inc_thread_sharing()  # the fixture closes it, whichever thread used it
        opened.append(connection)
        return connection

    with django_db_blocker.unblock():  # the file is the test's own
        with make().cursor() as cursor:
            cursor.execute("CREATE TABLE counter (n INTEGER)")
            cursor.execute("INSERT INTO counter VALUES (0)")
        yield make
        for connection in opened:
            connection.close()


def count(connection: BaseDatabaseWrapper) -> int:
    with connection.cursor() as cursor:
        return int(cursor.execute("SELECT n FROM counter").fetchone()[0])


def write(connection: BaseDatabaseWrapper, value: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE counter SET n = %s", [value])


def test_it_keeps_a_write_ahead_log(connect: Connect) -> None:
    with connect().cursor() as cursor:
        assert cursor.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert cursor.execute("PRAGMA synchronous").fetchone()[0] == 1, "NORMAL: no wait for the disk at each commit"


def test_who_writes_does_not_wait_for_who_reads_and_changes_nothing_before_his_eyes(connect: Connect) -> None:
    writing, reading = connect(), connect()
    with reading.cursor() as cursor:
        cursor.execute("BEGIN DEFERRED")
        assert count(reading) == 0
        write(writing, 1)
        assert count(reading) == 0
        cursor.execute("ROLLBACK")
    assert count(reading) == 1


def test_transactions_that_read_and_then_write_wait_for_each_other(connect: Connect) -> None:
    failures: list[OperationalError] = []

    def add() -> None:
        connection = connect()
        try:
            for _ in range(20):
                connection.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
                write(connection, count(connection) + 1)
                connection.commit()
                connection.set_autocommit(True)
        except OperationalError as error:
            failures.append(error)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert count(connect()) == 80
