"""Where async code crosses to rows: one pool of threads, sized like the database's connection pool."""

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import SyncToAsync, _restore_context
from django.conf import settings
from django.db import close_old_connections, connection, transaction

P = ParamSpec("P")
T = TypeVar("T")


@cache
def _executor() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=settings.DB_POOL_SIZE, thread_name_prefix="rows")


async def in_rows(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `function`, one unit of row work, in a thread that may use the database, and return its value.

    The loop's default executor resolves host names and is not used; a per-call thread would leak its connection.
    A cancelled caller returns at once, and the write still happens: guard status writes by the status they leave.
    """
    # What asgiref's `sync_to_async` and Channels' version of it do, in half the steps: it is done at every frame, call
    # and turn, several times.
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    crossing: asyncio.Future[T] = loop.create_future()
    _executor().submit(_cross, loop, crossing, context, partial(function, *args, **kwargs))
    try:
        return await crossing
    finally:
        _restore_context(context)


def _cross(
    loop: asyncio.AbstractEventLoop, crossing: asyncio.Future[T], context: contextvars.Context, work: Callable[[], T]
) -> None:
    here = SyncToAsync.threadlocal  # where `async_to_sync` finds the loop to go back to
    here.main_event_loop, here.main_event_loop_pid, here.task_context = loop, os.getpid(), None
    value: T | None = None
    error: BaseException | None = None
    try:
        close_old_connections()
        try:
            value = context.run(_at_home, context, work)
        finally:
            close_old_connections()
    except BaseException as raised:  # handed to whoever waits
        error = raised
    with suppress(RuntimeError):  # the loop is closed: nobody waits
        loop.call_soon_threadsafe(_hand_over, crossing, value, error)


def _at_home(context: contextvars.Context, work: Callable[[], T]) -> T:
    _restore_context(context)  # what Django keeps for the caller (its language, its time zone) holds here too
    return work()


def _hand_over(crossing: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if crossing.done():  # cancelled
        return
    if error is None:
        crossing.set_result(value)
    elif isinstance(error, StopIteration):
        crossing.set_exception(RuntimeError("a unit of row work raised StopIteration"))
    else:
        crossing.set_exception(error)


_writer = threading.Lock()


@contextmanager
def writing() -> Iterator[None]:
    """A transaction that writes: `transaction.atomic()`, before which the threads of this process queue up on SQLite.

    SQLite has one writer at a time, and who finds it busy sleeps for up to a tenth of a second and looks again:
    under load most of the threads would sleep so. A lock is handed on at once.
    """
    if connection.vendor != "sqlite" or connection.in_atomic_block:
        with transaction.atomic():
            yield
    else:
        with _writer, transaction.atomic():
            yield
