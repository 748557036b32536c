"""Audit entries as a file, CSV or JSON Lines: streamed page by page, bounded, and harmless in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal
from uuid import UUID

from django.db.models import Count
from django.http import StreamingHttpResponse
from django.utils import timezone

from accounts import audit
from accounts.audit_query import ORDER, Rows, after, entry_json, names_of, without_contents
from accounts.models import AuditAction, AuditRecord
from chatui.errors import TooLargeError
from chatui.rows import in_rows

Format = Literal["csv", "jsonl"]
FORMATS: Mapping[Format, str] = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}
MAX_ENTRIES = 100_000
PAGE = 1_000
COLUMNS = (
    "at",
    "action",
    "via",
    "actor",
    "actor_id",
    "person",
    "person_id",
    "object_type",
    "object",
    "object_id",
    "agent",
    "server",
    "tool",
    "account_id",
    "turn_id",
    "call_id",
    "arguments_sha256",
    "verdict",
    "reason",
    "decided_by",
    "decided_by_id",
    "status",
    "duration_ms",
    "details",
    "id",
)


def start(
    rows: Rows, format: Format, *, organizations: Collection[UUID | None], filters: Sequence[str], **by: Any
) -> int:
    """Record in each of `organizations` that has entries here that they are taken out; return how many they are.

    Where none has any it is recorded in all. `by` goes to `audit.entry`. Raises `TooLargeError` for more than
    `MAX_ENTRIES` of them together.
    """
    bounded = rows.order_by().values("pk")[: MAX_ENTRIES + 1]
    counted = AuditRecord.objects.as_system().filter(pk__in=bounded).order_by().values_list("organization_id")
    counts: dict[UUID | None, int] = dict(counted.annotate(number=Count("pk")))
    total = sum(counts.values())
    if total > MAX_ENTRIES:
        words = f"An export holds at most {MAX_ENTRIES:,} entries. Choose a shorter time, or fewer of them."
        raise TooLargeError(public_message=words)
    told = {"format": format, "filters": sorted(filters)}
    audit.write(
        [
            audit.entry(AuditAction.AUDIT_EXPORTED, each, details=told | {"entries": counts.get(each, 0)}, **by)
            for each in [each for each in organizations if each in counts] or organizations
        ]
    )
    return total


def response(rows: Rows, format: Format) -> StreamingHttpResponse:
    """The file, newest first. What is recorded after now is not in it."""
    rows = rows.filter(at__lte=timezone.now())
    answer = StreamingHttpResponse(_pieces(rows, format), content_type=FORMATS[format])
    name = f"audit-{timezone.now():%Y%m%d-%H%M%S}.{format}"
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    answer["Cache-Control"] = "no-store, private"
    return answer


async def _pieces(rows: Rows, format: Format) -> AsyncIterator[bytes]:
    if format == "csv":
        yield _csv([COLUMNS])
    last: AuditRecord | None = None
    while True:
        page = await in_rows(_page, rows, last)
        if not page:
            return
        last = page[-1][0]
        entries = [entry for _, entry in page]
        yield _csv(map(_cells, entries)) if format == "csv" else _lines(entries)


def _page(rows: Rows, last: AuditRecord | None) -> list[tuple[AuditRecord, dict[str, Any]]]:
    """The entries after `last`, in the order of time and id. Two queries."""
    if last is not None:
        rows = after(rows, last.at, last.pk)
    found = list(without_contents(rows).order_by(*ORDER)[:PAGE])
    names = names_of(found)
    return [(record, entry_json(record, names)) for record in found]


def _lines(entries: Iterable[dict[str, Any]]) -> bytes:
    return "".join(f"{_escaped(json.dumps(entry, ensure_ascii=False))}\n" for entry in entries).encode()


def _csv(rows: Iterable[Iterable[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([harmless(cell) for cell in row] for row in rows)
    return text.getvalue().encode()


def _cells(entry: Mapping[str, Any]) -> Iterator[Any]:
    for column in COLUMNS:
        name, _, key = column.rpartition("_") if column.endswith("_id") else (column, "", "")
        value = entry.get(column)
        if column in ("object", "object_type"):
            value = (entry["object"] or {}).get("name" if column == "object" else "type")
        elif isinstance(entry.get(name), dict) and name != "details":
            value = entry[name].get("id" if key else "username")
        elif column == "details":
            value = json.dumps(entry["details"], ensure_ascii=False) if entry["details"] else ""
        yield "" if value is None else value


def harmless(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula: what begins like one gets an apostrophe in front.

    What turns words around, and other controls, are written as `\\u202e`: a file shows what is in it.
    """
    if not isinstance(value, str):
        return value
    value = _escaped(value)
    return f"'{value}" if value.lstrip(" \u00a0\u3000")[:1] in _FORMULA and value.strip() else value


def _escaped(text: str) -> str:
    return _TREACHEROUS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


# Controls but tab and line breaks, other breaks of lines, and overrides of the direction (Unicode TR 9).
_TREACHEROUS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_FORMULA = tuple("=+-@\t\r\n|%＝＋－＠")
