"""The audit over the API: the list with the filters of the admin, as a file, and what was kept of one call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.http import HttpResponse, JsonResponse
from django.http.response import HttpResponseBase

from accounts import audit, audit_export
from accounts.actors import Actor
from accounts.audit_query import (
    ORDER,
    STATUSES,
    VERDICTS,
    Rows,
    Selection,
    after,
    entry_json,
    names_of,
    without_contents,
)
from accounts.models import AuditAction, AuditRecord
from chatui.errors import ChatUIError, InvalidRequestError, NotFoundError
from chatui.fields import DecryptionError
from conversations.api import cursors
from conversations.api.door import Call
from conversations.api.listing import read_limit

NAMES = ("action", "person", "agent", "server", "tool", "status", "verdict")
_KNOWN: Mapping[str, tuple[str, ...]] = {
    "action": tuple(AuditAction.values),
    "status": STATUSES,
    "verdict": VERDICTS,
}


class ContentsLostError(ChatUIError):
    """What was kept was encrypted with a key that this installation has no more."""

    code = "contents_lost"
    status = 410
    public_message = "The contents were encrypted with a key that this installation has no more."


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last entry of a page."""

    at: datetime
    id: UUID

    def encode(self) -> str:
        return cursors.encode([self.at, self.id])

    @classmethod
    def decode(cls, text: str) -> Cursor:
        """Raises `InvalidRequestError` for what is not one of ours."""
        return cursors.decode(text, lambda at, id: cls(cursors.moment(at), UUID(id)))


def selection_of(query: Mapping[str, str]) -> Selection:
    """The filters of a request. Raises `InvalidRequestError`, which names the first that makes no sense."""
    values: dict[str, Any] = {name: query.get(name, "").strip()[:200] for name in NAMES}
    for name, known in _KNOWN.items():
        if values[name] and values[name] not in known:
            raise InvalidRequestError(public_message=f"{name}: one of {', '.join(known)}.")
    return Selection(since=_moment(query, "since"), until=_moment(query, "until"), **values)


def _moment(query: Mapping[str, str], name: str) -> datetime | None:
    text = query.get(name, "").strip()
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text.replace(" ", "+"))  # a plus that was not escaped
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    except ValueError:
        raise InvalidRequestError(public_message=f"{name}: a time as 2026-01-31T14:30:00Z.") from None


def _rows(actor: Actor) -> Rows:
    return AuditRecord.objects.visible_to(actor)


async def index(call: Call) -> HttpResponse:
    query = call.request.GET
    cursor = Cursor.decode(query["cursor"]) if query.get("cursor") else None
    found = await call.rows(page, selection_of(query), cursor=cursor, limit=read_limit(query))
    return JsonResponse(found)


def page(actor: Actor, selection: Selection, *, cursor: Cursor | None, limit: int) -> dict[str, Any]:
    """`{items, next}`, newest first; two queries."""
    rows = selection.narrow(without_contents(_rows(actor)))
    if cursor is not None:
        rows = after(rows, cursor.at, cursor.id)
    found = list(rows.order_by(*ORDER)[: limit + 1])
    items, more = found[:limit], len(found) > limit
    names = names_of(items)
    return {
        "items": [entry_json(item, names) for item in items],
        "next": Cursor(items[-1].at, items[-1].pk).encode() if more else None,
    }


async def export(call: Call) -> HttpResponseBase:
    """What the filters leave, as a file: `?format=csv` or `jsonl`. POST, since that it was taken out is recorded."""
    query = call.request.GET
    match query.get("format", "csv"):
        case "csv":
            form: audit_export.Format = "csv"
        case "jsonl":
            form = "jsonl"
        case _:
            raise InvalidRequestError(public_message="format: csv or jsonl.")
    names = [name for name in (*NAMES, "since", "until") if query.get(name)]
    return audit_export.response(await call.rows(_begin, selection_of(query), form, names), form)


def _begin(actor: Actor, selection: Selection, form: audit_export.Format, filters: list[str]) -> Rows:
    rows = selection.narrow(_rows(actor))
    by = {"actor_id": actor.user_id, "via": audit.via_of(actor)}
    audit_export.start(rows, form, organizations=[actor.organization_id], filters=filters, **by)
    return rows


async def contents(call: Call, entry: UUID) -> HttpResponse:
    return JsonResponse(await call.rows(kept_contents, entry))


def kept_contents(actor: Actor, entry_id: UUID) -> dict[str, Any]:
    """`{arguments, result, cut?}` of a call. That one looked is recorded.

    Raises `NotFoundError`, `ContentsLostError`.
    """
    found = without_contents(_rows(actor)).filter(pk=entry_id).first()
    if found is None or not getattr(found, "has_contents", False):
        raise NotFoundError(public_message="There is no such entry, or nothing was kept with it.")
    audit.record(
        AuditAction.AUDIT_BODY_READ,
        organization_id=actor.organization_id,
        actor_id=actor.user_id,
        via=audit.via_of(actor),
        target=audit.Target("entry", entry_id),
        person_id=found.actor_id,
    )
    try:
        body: Any = _rows(actor).values_list("body", flat=True).get(pk=entry_id)
    except DecryptionError:
        raise ContentsLostError from None
    return dict(body)
