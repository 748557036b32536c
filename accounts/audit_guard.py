"""The database itself refuses to change or delete audit entries: triggers, put there after every migration.

On PostgreSQL they look at a setting of the transaction, on SQLite (which has none) at a table that is empty but inside
one. Two purposes open them: `retention` lets old entries be deleted, `rotation` lets contents be encrypted anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from accounts.models import AuditRecord
from chatui.rows import writing

Purpose = Literal["retention", "rotation"]
REFUSAL = "audit entries are never changed or deleted"
_TABLE = AuditRecord._meta.db_table
_PURPOSES = f"{_TABLE}_purpose"

_POSTGRESQL = f"""
CREATE OR REPLACE FUNCTION {_TABLE}_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE purpose text := current_setting('chatui.audit', true);
BEGIN
    IF TG_OP = 'DELETE' AND purpose = 'retention' THEN RETURN OLD; END IF;
    IF TG_OP = 'TRUNCATE' AND purpose = 'retention' THEN RETURN NULL; END IF;
    IF TG_OP = 'UPDATE' AND purpose = 'rotation' THEN
        IF to_jsonb(NEW) - 'body' = to_jsonb(OLD) - 'body' THEN RETURN NEW; END IF;
    END IF;
    RAISE EXCEPTION '{REFUSAL}' USING ERRCODE = 'restrict_violation';
END $$;
CREATE OR REPLACE TRIGGER {_TABLE}_rows BEFORE UPDATE OR DELETE ON {_TABLE}
    FOR EACH ROW EXECUTE FUNCTION {_TABLE}_guard();
CREATE OR REPLACE TRIGGER {_TABLE}_whole BEFORE TRUNCATE ON {_TABLE}
    FOR EACH STATEMENT EXECUTE FUNCTION {_TABLE}_guard();
"""


def _sqlite() -> Iterator[str]:
    fixed = ", ".join(f'"{field.column}"' for field in AuditRecord._meta.local_concrete_fields if field.name != "body")
    yield f"CREATE TABLE IF NOT EXISTS {_PURPOSES} (purpose TEXT NOT NULL)"
    for name, event, condition in (
        ("delete", "DELETE", f"WHEN NOT EXISTS (SELECT 1 FROM {_PURPOSES} WHERE purpose = 'retention')"),
        ("body", "UPDATE OF body", f"WHEN NOT EXISTS (SELECT 1 FROM {_PURPOSES} WHERE purpose = 'rotation')"),
        ("update", f"UPDATE OF {fixed}", ""),
    ):
        yield f"DROP TRIGGER IF EXISTS {_TABLE}_{name}"
        yield (
            f"CREATE TRIGGER {_TABLE}_{name} BEFORE {event} ON {_TABLE} {condition}"
            f" BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
        )


def install(connection: BaseDatabaseWrapper) -> None:
    """Put the triggers in place; again is harmless. Other databases than these two have none."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(_POSTGRESQL)
        elif connection.vendor == "sqlite":
            for statement in _sqlite():
                cursor.execute(statement)


def after_migrate(using: str, **_: Any) -> None:
    """`post_migrate`: the table may be new, and SQLite drops the triggers of a table that it changes."""
    connection = connections[using]
    if _TABLE in connection.introspection.table_names():
        install(connection)


@contextmanager
def opened(purpose: Purpose) -> Iterator[None]:
    """One transaction in which the triggers let `purpose` through."""
    connection = connections["default"]
    with writing(), connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT set_config('chatui.audit', %s, true)", [purpose])
            yield
            cursor.execute("SELECT set_config('chatui.audit', '', true)")
        elif connection.vendor == "sqlite":
            cursor.execute(f"INSERT INTO {_PURPOSES} (purpose) VALUES (%s)", [purpose])
            yield
            cursor.execute(f"DELETE FROM {_PURPOSES}")
        else:
            yield
