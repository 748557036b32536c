"""One process without Redis: it claims its SQLite database, and runs Celery's tasks and beat in a thread of its own."""

from __future__ import annotations

import fcntl
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings

from chatui.errors import ChatUIError

if TYPE_CHECKING:
    from chatui.embedded_worker import Worker

logger = logging.getLogger(__name__)


class AlreadyServedError(ChatUIError):
    """Another process serves this SQLite database, and without Redis the two could not know of each other."""

    code = "already_served"
    status = 503


# --- The claim -------------------------------------------------------------------------------------------------------

_claims: dict[Path, int] = {}  # open lock files by path: the lock ends with the process, however that ends


def database_file() -> Path | None:
    """The SQLite file that this process serves alone; None on another database, in memory, or with Redis."""
    database = settings.DATABASES["default"]
    name = str(database["NAME"])
    if settings.REDIS_URL or not database["ENGINE"].endswith("sqlite3") or ":memory:" in name:
        return None
    return Path(name).resolve()


def claim(database: Path) -> None:
    """Hold the lock beside `database` until the process ends. Raises `AlreadyServedError`; again is harmless."""
    path = database.with_name(database.name + ".lock")
    if path in _claims:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(file, 32).decode("ascii", "replace").strip()
        os.close(file)
        raise AlreadyServedError(public_message=_refusal(database, holder)) from None
    os.ftruncate(file, 0)
    os.write(file, str(os.getpid()).encode())
    _claims[path] = file


def _refusal(database: Path, holder: str) -> str:
    whose = f" (process {holder})" if holder else ""
    return f"Another server{whose} uses {database}. Stop it first; several need PostgreSQL and REDIS_URL."


def release(database: Path) -> None:
    """Give the claim back before the process ends."""
    file = _claims.pop(database.with_name(database.name + ".lock"), None)
    if file is not None:
        os.close(file)


def claim_or_exit() -> None:
    """For a server's start: claim the database, or end this process with the reason in one line."""
    database = database_file()
    try:
        if database is not None:
            claim(database)
        elif settings.DATABASES["default"]["ENGINE"].endswith("postgresql") and not settings.REDIS_URL:
            claim_postgresql()
    except AlreadyServedError as error:
        sys.exit(error.public_message)


_NOT_OF_LIBPQ = ("assume_role", "context", "cursor_factory", "isolation_level", "pool", "server_side_binding")
_ADVISORY_LOCK = 0x63686174_7569  # "chatui": one number for all, the lock is of one database
_session: Any = None  # holds the lock as long as this process lives


def claim_postgresql() -> None:
    """Hold an advisory lock of the database until the process ends. Raises `AlreadyServedError`; again is harmless.

    A database that cannot be reached claims nothing: `/readyz` and `check --deploy` tell of that.
    """
    global _session
    if _session is not None:
        return
    import psycopg
    from django.db import connection

    parameters = {
        name: value for name, value in connection.get_connection_params().items() if name not in _NOT_OF_LIBPQ
    }
    try:
        session = psycopg.connect(**parameters, autocommit=True)
    except psycopg.OperationalError as error:
        logger.warning("The database cannot be reached, so it is not claimed: %s", error)
        return
    held = session.execute("SELECT pg_try_advisory_lock(%s)", [_ADVISORY_LOCK]).fetchone()
    if not held or not held[0]:
        session.close()
        raise AlreadyServedError(public_message=_refusal(Path(str(parameters["dbname"])), ""))
    _session = session


def release_postgresql() -> None:
    """Give the claim back before the process ends."""
    global _session
    session, _session = _session, None
    if session is not None:
        session.close()


# --- The worker ------------------------------------------------------------------------------------------------------

_worker: Worker | None = None


def start_worker() -> None:
    """Begin to run tasks in this process, where there is no broker that a Celery worker could listen to."""
    global _worker
    if _worker is None and not settings.REDIS_URL:
        from chatui.celery import app  # Celery takes a moment to import, and most processes do not need it
        from chatui.embedded_worker import Worker

        _worker = Worker(app)
        _worker.start()


def stop_worker() -> None:
    """End what `start_worker` began; it waits for the running task."""
    global _worker
    worker, _worker = _worker, None
    if worker is not None and not worker.stop():
        logger.warning("A background task did not end in time.")
