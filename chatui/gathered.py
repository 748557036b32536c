"""Rows of a subquery in one column: what hangs on a row is read with it, by one query and without repeating it."""

from __future__ import annotations

from typing import Any

from django.db.models import Expression, Func, JSONField, QuerySet, Subquery
from django.db.models.functions import JSONObject


class Gathered(Subquery):
    """The rows of `queryset` as a list of objects, `name` → value of its column; empty without rows.

        servers.annotate(given=Gathered(ServerGrant.objects.filter(server=OuterRef("pk")), deny="deny"))

    Values are JSON's: ids are text (of 32 or 36 characters), and SQLite has 0 and 1 in place of false and true. A
    column that holds JSON itself is named as `Nested("rules")`.
    """

    template = "(SELECT COALESCE(jsonb_agg(gathered.item), '[]'::jsonb) FROM (%(subquery)s) gathered)"

    def __init__(self, queryset: QuerySet[Any], **columns: str | Expression) -> None:
        super().__init__(queryset.values(item=JSONObject(**columns)), output_field=JSONField())

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        template = "(SELECT json_group_array(json(gathered.item)) FROM (%(subquery)s) gathered)"
        return self.as_sql(compiler, connection, template=template, **context)


class Nested(Func):
    """A column of JSON within an object: SQLite, which keeps it as text, would make a text of it."""

    arity = 1
    template = "%(expressions)s"
    output_field = JSONField()

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self.as_sql(compiler, connection, template="JSON(%(expressions)s)", **context)
