"""What was spent, added up: one's own, and an organization's by user, group, agent, model, server and tool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Literal, get_args
from uuid import UUID

from django.db.models import Avg, Count, F, Q, QuerySet, Sum
from django.utils.translation import gettext as _

from accounts.actors import Actor
from accounts.models import AuditAction, AuditRecord, Group, User
from agents.models import Agent
from chatui.errors import InvalidRequestError
from conversations.models import UsageRecord
from mcpservers.visible import revealed

By = Literal["user", "group", "agent", "model", "server", "tool"]
BYS: tuple[By, ...] = get_args(By)
SHOWN = 200  # rows of a page, the largest first
LONGEST = timedelta(days=1100)


# --- Periods ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Span:
    """From `since` to before `until`, in UTC. `name` is the choice that it came from, "days" for dates of one's own."""

    name: str
    since: datetime
    until: datetime

    @property
    def last_day(self) -> date:
        return (self.until - timedelta(microseconds=1)).date()


SPANS = ("today", "week", "month", "last_month", "year")


def span_of(query: Mapping[str, str], now: datetime) -> Span:
    """The span of `?period=` (one of `SPANS`), or of `?from=` and `?to=` (days, both included).

    Raises `InvalidRequestError`, which names what makes no sense.
    """
    if query.get("from") or query.get("to"):
        since, last = _day(query, "from", now.date().replace(day=1)), _day(query, "to", now.date())
        if last < since:
            raise InvalidRequestError(public_message="to: not before the first day.")
        if last - since > LONGEST:
            raise InvalidRequestError(public_message=f"from: at most {LONGEST.days} days before the last one.")
        return Span("days", _midnight(since), _midnight(last + timedelta(days=1)))
    name = query.get("period") or "month"
    tomorrow = _midnight(now.date() + timedelta(days=1))
    first = now.date().replace(day=1)
    match name:
        case "today":
            return Span(name, _midnight(now.date()), tomorrow)
        case "week":
            return Span(name, tomorrow - timedelta(days=7), tomorrow)
        case "month":
            return Span(name, _midnight(first), tomorrow)
        case "last_month":
            return Span(name, _midnight((first - timedelta(days=1)).replace(day=1)), _midnight(first))
        case "year":
            return Span(name, _midnight(now.date().replace(month=1, day=1)), tomorrow)
    raise InvalidRequestError(public_message=f"period: one of {', '.join(SPANS)}.")


def _day(query: Mapping[str, str], name: str, absent: date) -> date:
    text = query.get(name, "").strip()
    try:
        return date.fromisoformat(text) if text else absent
    except ValueError:
        raise InvalidRequestError(public_message=f"{name}: a day as 2026-01-31.") from None


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)


# --- Sums ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """Sums of one user, agent … . Of servers and tools there are calls alone; `milliseconds` is their mean duration.

    `cost` is None where no model that was used has a price.
    """

    key: str
    name: str
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    calls: int = 0
    failed: int | None = None
    milliseconds: float | None = None

    def json(self) -> dict[str, Any]:
        return asdict(self)


_SUMS = {
    "turns": Count("pk"),
    "input_tokens": Sum("input_tokens"),
    "output_tokens": Sum("output_tokens"),
    "cost": Sum("cost"),
    "calls": Sum("calls"),
}
Records = QuerySet[UsageRecord]


def records_of(actor: Actor, span: Span) -> Records:
    records: Records = UsageRecord.objects.visible_to(actor)
    return records.filter(created_at__gte=span.since, created_at__lt=span.until)


def own_records(actor: Actor, span: Span) -> Records:
    return records_of(actor, span).filter(user=actor.user_id)


def total(records: Records) -> Row:
    """Everything of these records; one query."""
    return _row("", "", records.aggregate(**_SUMS))


def grouped(actor: Actor, records: Records, by: By) -> list[Row]:
    """Sums by user, group, agent or model, the most tokens first; two queries. Who is in two groups counts in both."""
    found: Any
    match by:
        case "user":
            found = records.values(of=F("user_id"))
            names: Mapping[Any, str] = _Names(User.objects.all(), "username", _("Deleted accounts"))
        case "agent":
            found = records.values(of=F("agent_id"))
            names = _Names(Agent.objects.visible_to(actor), "name", _("Deleted agents"))
        case "group":
            inside = {"user__memberships__organization": actor.organization_id}
            found = records.filter(**inside, user__memberships__groups__isnull=False)
            found = found.values(of=F("user__memberships__groups"))
            names = _Names(Group.objects.filter(organization=actor.organization_id), "slug", "")
        case "model":
            found = records.values(of=F("model"))
            names = {"": _("Not recorded")}
        case _:
            raise ValueError(by)
    rows = list(found.annotate(**_SUMS).order_by())
    if isinstance(names, _Names):
        names.load(row["of"] for row in rows)
    made = [_row(str(row["of"] or ""), str(names.get(row["of"], row["of"])), row) for row in rows]
    return sorted(made, key=lambda row: (-(row.input_tokens + row.output_tokens), row.name))


class _Names(dict[Any, str]):
    """Names of rows by their keys, once they are known; `gone` is who is not there any more."""

    def __init__(self, rows: QuerySet[Any, Any], field: str, gone: str) -> None:
        super().__init__({None: gone})
        self._rows, self._field, self._gone = rows, field, gone

    def load(self, keys: Iterable[UUID | None]) -> None:
        wanted = {key for key in keys if key is not None}
        found = dict(self._rows.filter(pk__in=wanted).values_list("pk", self._field))
        self.update({key: found.get(key, self._gone) for key in wanted})


def _row(key: str, name: str, sums: Mapping[str, Any]) -> Row:
    cost = sums["cost"]
    return Row(
        key,
        name,
        turns=sums["turns"] or 0,
        input_tokens=sums["input_tokens"] or 0,
        output_tokens=sums["output_tokens"] or 0,
        cost=None if cost is None else round(cost, 6),
        calls=sums["calls"] or 0,
    )


def called(actor: Actor, span: Span, by: By) -> list[Row]:
    """Calls by server or tool, the most first, from the audit (and so as far back as that is kept); one query."""
    entries = AuditRecord.objects.visible_to(actor).filter(
        action=AuditAction.TOOL_CALL, at__gte=span.since, at__lt=span.until
    )
    columns = ("server",) if by == "server" else ("server", "tool")
    sums = {
        "calls": Count("pk"),
        "failed": Count("pk", filter=~Q(status="ok")),
        "milliseconds": Avg("duration_ms"),
    }
    rows = [
        Row(
            "/".join(row[column] for column in columns),
            " › ".join(revealed(row[column]) or _("built in") for column in columns),
            calls=row["calls"],
            failed=row["failed"],
            milliseconds=None if row["milliseconds"] is None else round(float(row["milliseconds"]), 1),
        )
        for row in entries.order_by().values(*columns).annotate(**sums)
    ]
    return sorted(rows, key=lambda row: (-row.calls, row.name))


def report(actor: Actor, span: Span, by: By) -> list[Row]:
    """The organization's usage by `by`, the largest first."""
    if by in ("server", "tool"):
        return called(actor, span, by)
    return grouped(actor, records_of(actor, span), by)
