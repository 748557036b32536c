"""Usage over the API: one's own with one's budgets, and the organization's."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse, JsonResponse
from django.utils import timezone

from accounts import policy
from accounts.actors import Actor
from accounts.policy import Action
from chatui.errors import InvalidRequestError
from conversations import budget_states, usage_report
from conversations.api.door import Call
from conversations.usage_report import BYS, By, Row, Span


async def own(call: Call) -> HttpResponse:
    span = usage_report.span_of(call.request.GET, timezone.now())
    return JsonResponse(await call.rows(own_json, span))


def own_json(actor: Actor, span: Span) -> dict[str, Any]:
    """`{since, until, total, agents, models, budgets, running}`. Of others' budgets only the share is told."""
    records = usage_report.own_records(actor, span)
    bounds = budget_states.bounds_of(actor)
    everything = bool(policy.allows(actor, Action.READ_USAGE))
    return {
        **_span_json(span),
        "total": _sums(usage_report.total(records)),
        "agents": [_named(row) for row in usage_report.grouped(actor, records, "agent")],
        "models": [_named(row) for row in usage_report.grouped(actor, records, "model")],
        "budgets": [state.json(amounts=everything or state.per == "user") for state in bounds.budgets],
        "running": {"now": bounds.place.taken, "at_once": bounds.place.amount},
    }


async def report(call: Call) -> HttpResponse:
    query = call.request.GET
    wanted = query.get("by") or "user"
    by: By | None = next((by for by in BYS if by == wanted), None)
    if by is None:
        raise InvalidRequestError(public_message=f"by: one of {', '.join(BYS)}.")
    return JsonResponse(await call.rows(report_json, usage_report.span_of(query, timezone.now()), by))


def report_json(actor: Actor, span: Span, by: By) -> dict[str, Any]:
    """`{since, until, by, total, items}`, the largest first."""
    records = usage_report.records_of(actor, span)
    shape = _calls if by in ("server", "tool") else _named
    return {
        **_span_json(span),
        "by": by,
        "total": _sums(usage_report.total(records)),
        "items": [shape(row) for row in usage_report.report(actor, span, by)],
    }


def _span_json(span: Span) -> dict[str, str]:
    return {"since": span.since.isoformat(), "until": span.until.isoformat()}


def _sums(row: Row) -> dict[str, Any]:
    names = ("turns", "input_tokens", "output_tokens", "cost", "calls")
    return {name: getattr(row, name) for name in names}


def _named(row: Row) -> dict[str, Any]:
    return {"id": row.key or None, "name": row.name} | _sums(row)


def _calls(row: Row) -> dict[str, Any]:
    return {"id": row.key, "name": row.name, "calls": row.calls, "failed": row.failed, "mean_ms": row.milliseconds}
