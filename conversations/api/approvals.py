"""Approvals: what waits for one's answer, the answer, and what one has allowed for good."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from django.http import HttpResponse, JsonResponse
from pydantic import Field

from conversations import answering, pending, questions, standing, supervisor
from conversations.api import body
from conversations.api.door import Call
from conversations.decisions import Decision


class Answer(body.Body):
    """As `call.decide` on the socket."""

    decision: Literal["allow_once", "allow_always", "deny"]
    scope: Literal["conversation", "agent", "always"] | None = None
    arguments: dict[str, Any] | None = None
    note: str = Field(default="", max_length=4000)


async def index(call: Call) -> HttpResponse:
    return JsonResponse({"approvals": await call.rows(pending.listing)})


async def count(call: Call) -> HttpResponse:
    return JsonResponse({"open": await call.rows(pending.count)})


async def read(call: Call, question: UUID) -> HttpResponse:
    return JsonResponse(await call.rows(pending.one, question))


async def decide(call: Call, question: UUID) -> HttpResponse:
    given = body.read(Answer, call.request)
    supervisor.current().require_open()
    decision = Decision(given.decision, given.scope, given.arguments, given.note)
    await answering.carry(await call.rows(questions.decide, decision, question_id=question))
    return JsonResponse(await call.rows(pending.one, question))


async def standing_index(call: Call) -> HttpResponse:
    return JsonResponse({"standing": await call.rows(standing.listing)})


async def revoke(call: Call, standing_id: UUID) -> HttpResponse:
    await call.rows(standing.revoke, standing_id)
    return HttpResponse(status=204)
