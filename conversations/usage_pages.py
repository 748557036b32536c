"""The page of usage: one's own and one's budgets, and the organization's for who may read that; it needs no scripts."""

from __future__ import annotations

import csv
import io
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from accounts import audit, policy
from accounts.actors import Actor, find_actor
from accounts.audit_export import harmless
from accounts.models import AuditAction, Organization
from accounts.policy import Action
from chatui.errors import InvalidRequestError
from conversations import budget_states, usage_report
from conversations.usage_report import BYS, SHOWN, By, Row, Span

CSV_COLUMNS = ("key", "name", "turns", "input_tokens", "output_tokens", "cost", "calls", "failed", "milliseconds")


def _actor(request: HttpRequest, organization: str) -> Actor:
    assert request.user.is_authenticated
    actor = find_actor(request.user.pk, organization)
    if actor is None:
        raise Http404
    return actor


def _by(request: HttpRequest) -> By:
    wanted = request.GET.get("by")
    return next((by for by in BYS if by == wanted), "user")


@require_safe
@login_required
@never_cache
def usage(request: HttpRequest, organization: str) -> HttpResponse:
    """`/o/<org>/usage/?period=&by=`, for members; to everybody else there is nothing at that address."""
    actor = _actor(request, organization)
    now = timezone.now()
    try:
        span = usage_report.span_of(request.GET, now)
    except InvalidRequestError as error:
        messages.error(request, error.public_message)
        span = usage_report.span_of({}, now)
    context = {
        "organization": Organization.objects.get(pk=actor.organization_id),
        "span": span,
        "periods": _periods(span),
        "chats": bool(policy.allows(actor, Action.CHAT)),
        "manages": bool(policy.allows(actor, Action.MANAGE)),
        **_own(actor, span),
        **(_whole(request, actor, span) if policy.allows(actor, Action.READ_USAGE) else {}),
    }
    return render(request, "usage/page.html", context)


def _periods(span: Span) -> list[tuple[str, str, bool]]:
    words = {
        "today": _("Today"),
        "week": _("7 days"),
        "month": _("This month"),
        "last_month": _("Last month"),
        "year": _("This year"),
    }
    return [(name, word, name == span.name) for name, word in words.items()]


def _own(actor: Actor, span: Span) -> dict[str, Any]:
    records = usage_report.own_records(actor, span)
    bounds = budget_states.bounds_of(actor)
    return {
        "own": usage_report.total(records),
        "own_agents": _shown(usage_report.grouped(actor, records, "agent")),
        "own_models": _shown(usage_report.grouped(actor, records, "model")),
        "budgets": bounds.budgets,
        "place": bounds.place,
        "amounts": bool(policy.allows(actor, Action.READ_USAGE)),
    }


def _whole(request: HttpRequest, actor: Actor, span: Span) -> dict[str, Any]:
    by = _by(request)
    rows = usage_report.report(actor, span, by)
    words = {
        "user": _("Users"),
        "group": _("Groups"),
        "agent": _("Agents"),
        "model": _("Models"),
        "server": _("Servers"),
        "tool": _("Tools"),
    }
    return {
        "whole": usage_report.total(usage_report.records_of(actor, span)),
        "by": by,
        "by_words": words[by],
        "tabs": [(each, words[each], _query(span, each), each == by) for each in BYS],
        "calls_only": by in ("server", "tool"),
        "rows": _shown(rows),
        "more": max(0, len(rows) - SHOWN),
        "export_query": _query(span, by),
    }


def _query(span: Span, by: str) -> str:
    if span.name != "days":
        return urlencode({"period": span.name, "by": by})
    return urlencode({"from": span.since.date().isoformat(), "to": span.last_day.isoformat(), "by": by})


def _shown(rows: list[Row]) -> list[dict[str, Any]]:
    """Rows with what part of the largest each is, in hundredths, for the bar beside it."""
    sizes = [row.input_tokens + row.output_tokens or row.calls for row in rows]
    largest = max(sizes, default=0) or 1
    return [
        {"row": row, "tokens": row.input_tokens + row.output_tokens, "part": round(100 * size / largest)}
        for row, size in zip(rows[:SHOWN], sizes, strict=False)
    ]


@require_POST
@login_required
@never_cache
def export(request: HttpRequest, organization: str) -> HttpResponse:
    """The whole report as CSV. By POST, since that it was taken out is recorded."""
    actor = _actor(request, organization)
    if not policy.allows(actor, Action.READ_USAGE):
        raise Http404
    by = _by(request)
    try:
        span = usage_report.span_of(request.GET, timezone.now())
    except InvalidRequestError as error:
        messages.error(request, error.public_message)
        return redirect("usage", organization=actor.organization_slug)
    rows = usage_report.report(actor, span, by)
    audit.record(
        AuditAction.USAGE_EXPORTED,
        organization_id=actor.organization_id,
        actor_id=actor.user_id,
        via=audit.via_of(actor),
        details={"by": by, "rows": len(rows), "since": span.since.isoformat(), "until": span.until.isoformat()},
    )
    response = HttpResponse(_csv(rows), content_type="text/csv; charset=utf-8")
    name = f"usage-{by}-{span.since:%Y%m%d}-{span.last_day:%Y%m%d}.csv"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _csv(rows: list[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(CSV_COLUMNS)
    for row in rows:
        values = row.json()
        writer.writerow(["" if values[name] is None else harmless(values[name]) for name in CSV_COLUMNS])
    return text.getvalue()
