"""The list of conversations: newest activity first, pinned ones before, by pages, and searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpResponse, JsonResponse

from accounts.actors import Actor
from chatui.errors import InvalidRequestError
from chatui.text import clean
from conversations.api import body, cursors
from conversations.api.door import Call
from conversations.models import Conversation, Message, Turn
from conversations.representations import conversation_json

PAGE, PAGE_LIMIT = 50, 100
QUERY_LIMIT = 200  # characters


@dataclass(frozen=True, slots=True)
class Cursor:
    """The place after which the next page begins: the sort key of the last conversation of a page."""

    pinned: bool
    active_at: datetime
    id: UUID

    def encode(self) -> str:
        return cursors.encode([self.pinned, self.active_at, self.id])

    @classmethod
    def decode(cls, text: str) -> Cursor:
        """Raises `InvalidRequestError` for what is not one of ours."""
        return cursors.decode(
            text, lambda pinned, active_at, id: cls(bool(pinned), cursors.moment(active_at), UUID(id))
        )

    def after(self) -> Q:
        """What comes after this place in the order `-pinned, -active_at, -id`."""
        same_time = Q(active_at=self.active_at, id__lt=self.id)
        later = Q(pinned=self.pinned) & (Q(active_at__lt=self.active_at) | same_time)
        return later | Q(pinned=False) if self.pinned else later


async def index(call: Call) -> HttpResponse:
    query = call.request.GET
    cursor = Cursor.decode(query["cursor"]) if query.get("cursor") else None
    archived = body.flag(call.request, "archived")
    return JsonResponse(
        await call.rows(
            page, text=_search_text(query.get("q", "")), archived=archived, cursor=cursor, limit=read_limit(query)
        )
    )


def _search_text(text: str) -> str:
    text = " ".join(clean(text).split())
    if len(text) > QUERY_LIMIT:
        raise InvalidRequestError(public_message=f"q: at most {QUERY_LIMIT} characters.")
    return text


def read_limit(query: Mapping[str, str]) -> int:
    """`?limit=` of a list. Raises `InvalidRequestError`."""
    text = query.get("limit") or str(PAGE)
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= PAGE_LIMIT):
        raise InvalidRequestError(public_message=f"limit: between 1 and {PAGE_LIMIT}.")
    return int(text)


def page(actor: Actor, *, text: str, archived: bool, cursor: Cursor | None, limit: int) -> dict[str, Any]:
    """`{items, next}`; two queries. `text` is searched in titles and messages, without regard to case."""
    rows: QuerySet[Conversation] = Conversation.objects.visible_to(actor).listed().filter(archived=archived)
    if text:
        said = Message.objects.filter(conversation=OuterRef("pk"), search_text__icontains=text)
        rows = rows.filter(Q(title__icontains=text) | Exists(said))
    if cursor is not None:
        rows = rows.filter(cursor.after())
    found = list(rows.select_related("agent").order_by("-pinned", "-active_at", "-id")[: limit + 1])
    items, more = found[:limit], len(found) > limit
    turns = open_turns(items)
    last = items[-1] if more else None
    return {
        "items": [conversation_json(item, turns.get(item.pk)) for item in items],
        "next": Cursor(last.pinned, last.active_at, last.pk).encode() if last else None,
    }


def open_turns(conversations: Sequence[Conversation]) -> dict[UUID, Turn]:
    """The turn of each conversation that has not ended, by conversation; one query."""
    running = Turn.objects.filter(conversation__in=conversations, status__in=Turn.OPEN)
    return {turn.conversation_id: turn for turn in running}
