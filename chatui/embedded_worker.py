"""Celery's tasks and beat without a broker: a thread that runs what this process queues in memory."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from celery import Celery
from celery.beat import Scheduler
from django.db import close_old_connections, connections

logger = logging.getLogger(__name__)
POLL_SECONDS = 0.25  # how soon a queued task begins: the memory transport can only be asked
STOP_SECONDS = 10.0  # how long a running task may take to end at shutdown


@dataclass(order=True, slots=True)
class _Queued:
    """A task to be run at `eta`; those of the same moment in the order in which they came."""

    eta: datetime
    number: int
    name: str = field(compare=False)
    id: str = field(compare=False)
    args: list[Any] = field(compare=False)
    kwargs: dict[str, Any] = field(compare=False)


class _BeatTable(Scheduler):  # type: ignore[misc]  # Celery has no type stubs
    """Celery's own scheduler over `beat_schedule`, in memory: an entry is due one interval after the start."""

    def install_default_entries(self, data: Any) -> None:
        """None: there are no results to clean up."""


class Worker:
    """Runs the tasks that this process queues on Celery's memory transport, and ticks the beat schedule.

    One task at a time, in order. What is queued at a stop is lost with the process, as everything in memory is:
    a task that must not be lost finds its work in rows.
    """

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._queued: list[_Queued] = []
        self._numbers = itertools.count()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="celery-embedded", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float = STOP_SECONDS) -> bool:
        """Let the running task end, then end the thread; False if it takes longer than `timeout` seconds."""
        self._stopping.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._app.autodiscover_tasks(force=True)  # a Celery worker's loader does it, which we do not have
            self._app.finalize()
            table = _BeatTable(self._app)
            with self._app.connection_for_read() as connection, self._consumer(connection):
                while not self._stopping.is_set():
                    wait = min(table.tick(), POLL_SECONDS)
                    with contextlib.suppress(TimeoutError):  # nothing was queued meanwhile
                        connection.drain_events(timeout=0 if self._queued and self._queued[0].eta <= _now() else wait)
                    self._run_due()
        except Exception:  # boundary of the thread: without a line in the log it would end in silence
            logger.exception("The embedded worker ended; background tasks no longer run.")
        finally:
            connections.close_all()

    def _consumer(self, connection: Any) -> Any:
        return self._app.amqp.TaskConsumer(connection, callbacks=[self._take], accept=["json"])

    def _take(self, body: Any, message: Any) -> None:
        """Take one task off the queue before it is run: what fails is logged, not repeated for ever."""
        message.ack()
        headers, (args, kwargs, _embed) = message.headers, body
        eta = datetime.fromisoformat(headers["eta"]) if headers.get("eta") else _now()
        eta = eta if eta.tzinfo else eta.replace(tzinfo=UTC)
        heapq.heappush(self._queued, _Queued(eta, next(self._numbers), headers["task"], headers["id"], args, kwargs))

    def _run_due(self) -> None:
        while self._queued and self._queued[0].eta <= _now() and not self._stopping.is_set():
            self._run_one(heapq.heappop(self._queued))

    def _run_one(self, queued: _Queued) -> None:
        task = self._app.tasks.get(queued.name)
        if task is None:
            logger.error("There is no task %s.", queued.name)
            return
        close_old_connections()
        try:
            result = task.apply(queued.args, queued.kwargs, task_id=queued.id)
            if result.failed():
                logger.error("The task %s failed.", queued.name, exc_info=result.result)
        finally:
            close_old_connections()


def _now() -> datetime:
    return datetime.now(UTC)
