"""Audit entries as a file, CSV or JSON Lines: streamed page by page, bounded, and harmless in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal
from uuid import UUID

from django.http import StreamingHttpResponse
from django.utils import timezone

from accounts import audit
from accounts.audit_query import Rows, entry_json, names_of, without_contents
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


def start(rows: Rows, format: Format, *, organization_id: UUID | None, filters: Sequence[str], **by: Any) -> int:
    """Record that these entries are taken out, and return how many they are. `by` goes to `audit.record`.

    Raises `TooLargeError` for more than `MAX_ENTRIES`.
    """
    count = rows.order_by()[: MAX_ENTRIES + 1].count()
    if count > MAX_ENTRIES:
        words = f"An export holds at most {MAX_ENTRIES:,} entries. Choose a shorter time, or fewer of them."
        raise TooLargeError(public_message=words)
    details = {"format": format, "entries": count, "filters": sorted(filters)}
    audit.record(AuditAction.AUDIT_EXPORTED, organization_id=organization_id, details=details, **by)
    return count


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
        rows = rows.filter(at__lte=last.at).exclude(at=last.at, id__gte=last.pk)
    found = list(without_contents(rows).order_by("-at", "-id")[:PAGE])
    names = names_of(found)
    return [(record, entry_json(record, names)) for record in found]


def _lines(entries: Iterable[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries).encode()


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
    """A cell that no spreadsheet takes for a formula: what begins like one gets an apostrophe in front."""
    if not isinstance(value, str):
        return value
    return f"'{value}" if value.lstrip(" \u00a0\u3000")[:1] in _FORMULA and value.strip() else value


_FORMULA = tuple("=+-@\t\r\n|%＝＋－＠")
