"""Queries that are written once: Django takes longer to write a small query's SQL than a database to answer it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Generic, TypeVar
from uuid import UUID, uuid4

from django.db import connections
from django.db.models import QuerySet

R = TypeVar("R")
Value = UUID | str | datetime


class PreparedQuery(Generic[R]):
    """A queryset with parameters, for what is asked at every frame and turn: a call gives fresh rows, as a list.

        members = PreparedQuery(lambda user: Membership.objects.filter(user_id=user).select_related("user"), UUID)
        members(user_id)

    `build` is called with a stand-in for each of `kinds` (`UUID`, `str`, `datetime`), once in each thread that asks.
    It must hand them on to the queryset as they are, and whatever else it reads (a clock, a setting) stays as it
    was then. A parameter is never None, whose SQL would be another.
    """

    def __init__(self, build: Callable[..., QuerySet[Any, R]], *kinds: type[Value]) -> None:
        self._build, self._kinds = build, kinds
        self._of_thread = threading.local()

    def __call__(self, *values: Value) -> list[R]:
        """The rows for these parameters. Raises `TypeError` for others than were announced."""
        if len(values) != len(self._kinds) or not all(map(isinstance, values, self._kinds)):
            raise TypeError(f"expected {[kind.__name__ for kind in self._kinds]}")
        written: _Written[R] | None = getattr(self._of_thread, "written", None)
        if written is None or not written.is_current():
            written = self._of_thread.written = _Written(self._build, self._kinds)
        return written.rows(values)

    def first(self, *values: Value) -> R | None:
        """The first row, or None."""
        rows = self(*values)
        return rows[0] if rows else None


class _Written(Generic[R]):
    """The SQL of one thread's connection, and which parameter goes where in it."""

    def __init__(self, build: Callable[..., QuerySet[Any, R]], kinds: Sequence[type[Value]]) -> None:
        stand_ins = [_stand_in(kind) for kind in kinds]
        self._queryset = build(*stand_ins)
        self._database = self._queryset.db
        self._connection = connections[self._database]
        compiler: Any = self._queryset.query.get_compiler(using=self._queryset.db)
        self._sql, params = compiler.as_sql()
        adapted = [self._adapted(value) for value in stand_ins]
        self._places = [adapted.index(param) if param in adapted else None for param in params]
        if set(range(len(kinds))) - set(self._places):
            raise TypeError("a parameter does not reach the query as it is")
        self._params = list(params)
        # The rows are made by Django as ever. Done once are the writing and finding out how to convert columns; left
        # out are a clone of the queryset and the layers between the cursor and the rows, which take longer than SQLite.
        columns = [column[0] for column in compiler.select[: compiler.col_count]]
        self._converters = list(compiler.get_converters(columns).items())
        self._columns = compiler.col_count if compiler.has_extra_select else None
        internal: Any = self._queryset
        self._lean = not internal._prefetch_related_lookups and not compiler.has_composite_fields(columns)
        if self._lean:
            compiler.execute_sql = lambda *_, **__: None
            compiler.results_iter = self._found
        else:
            converters = dict(self._converters)
            compiler.as_sql = lambda *_, **__: (self._sql, tuple(self._params))
            compiler.get_converters = lambda _: converters
        self._rows: Callable[[QuerySet[Any, R]], Iterable[R]] = internal._iterable_class
        self._queryset.query.get_compiler = lambda *_, **__: compiler  # type: ignore[method-assign]  # of this query alone

    def is_current(self) -> bool:
        """Whether the thread still uses the connection that this was written for."""
        return self._connection is connections[self._database]

    def rows(self, values: Sequence[Value]) -> list[R]:
        adapted = [self._adapted(value) for value in values]
        for place, which in enumerate(self._places):
            if which is not None:
                self._params[place] = adapted[which]
        if self._lean:
            return list(self._rows(self._queryset))
        return list(self._queryset.all())

    def _found(self, *_: object, **__: object) -> Iterator[Any]:
        """The rows with their columns converted, in place of `SQLCompiler.results_iter`."""
        cursor: Any = self._connection.cursor()
        try:
            if self._connection.vendor == "sqlite":
                cursor.cursor.convert_query = _with_question_marks
            cursor.execute(self._sql, tuple(self._params))
            rows: list[Any] = cursor.fetchall()
        finally:
            cursor.close()
        if self._columns is not None:
            rows = [row[: self._columns] for row in rows]
        return map(self._converted, rows) if self._converters else iter(rows)

    def _converted(self, row: Sequence[Any]) -> tuple[Any, ...]:
        values = list(row)
        for place, (converters, expression) in self._converters:
            value = values[place]
            for convert in converters:
                value = convert(value, expression, self._connection)
            values[place] = value
        return tuple(values)

    def _adapted(self, value: Value) -> Any:
        """`value` as a field hands it to the database."""
        match value:
            case UUID():
                return value if self._connection.features.has_native_uuid_field else value.hex
            case datetime():
                return self._connection.ops.adapt_datetimefield_value(value)
        return value


@lru_cache(maxsize=1000)
def _with_question_marks(sql: str, **options: Any) -> str:
    """`SQLiteCursorWrapper.convert_query`, remembered: it reads the SQL through at every execution."""
    from django.db.backends.sqlite3.base import SQLiteCursorWrapper

    cursors: Any = SQLiteCursorWrapper
    return str(cursors.convert_query(None, sql, **options))  # of no cursor


def _stand_in(kind: type[Value]) -> Value:
    """A value that no query holds by itself."""
    if kind is UUID:
        return uuid4()
    if kind is datetime:
        return datetime(1990, 1, 1, tzinfo=UTC) + timedelta(microseconds=uuid4().int % 10**15)
    return f"stand-in-{uuid4().hex}"
