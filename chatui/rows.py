"""Where async code crosses to rows: one pool of threads, sized like the database's connection pool."""

import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, ParamSpec, TypeVar

from channels.db import database_sync_to_async
from django.conf import settings
from django.db import connection, transaction

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
    crossing: Callable[P, Coroutine[Any, Any, T]] = database_sync_to_async(
        function, thread_sensitive=False, executor=_executor()
    )
    return await crossing(*args, **kwargs)


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
