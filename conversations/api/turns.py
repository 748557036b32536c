"""Turns over HTTP: start one, look at it, stop it, and follow its events as server-sent events."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, TypeVar
from uuid import UUID

from django.conf import settings
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from accounts.actors import Actor
from chatui.errors import ChatUIError, InvalidRequestError
from chatui.rows import in_rows
from conversations import beginning, commands, following, stopping, turns, wire
from conversations.api import body
from conversations.api.door import Call
from conversations.representations import one_message_json

T = TypeVar("T")
KEEP_ALIVE = 15.0  # seconds without an event after which a comment keeps proxies from closing the stream


async def start(call: Call) -> HttpResponse:
    """Begin a turn: the fields of the socket's `turn.start`, `request_id` optional. 201; 200 for a repeated one."""
    value = {"request_id": str(uuid.uuid4()), **body.read_json(call.request), "type": "turn.start"}
    begun = await beginning.begin(call.door, commands.new_turn(body.parse(wire.TurnStart, value)))
    answer = await call.rows(turn_json, begun.turn_id)
    return JsonResponse(answer, status=200 if begun.repeated else 201)


async def read(call: Call, turn: UUID) -> HttpResponse:
    return JsonResponse(await call.rows(turn_json, turn))


async def stop(call: Call, turn: UUID) -> HttpResponse:
    await stopping.stop(call.door, turn)
    return JsonResponse(await call.rows(turn_json, turn), status=202)


async def events(call: Call, turn: UUID) -> HttpResponseBase:
    """The turn's frames after `Last-Event-ID` (or `?after=`), live until it ends. Other than the socket, no hints."""
    await call.rows(turns.visible_turn, turn)
    response = StreamingHttpResponse(_stream(call, turn, _after(call)), content_type="text/event-stream")
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    return response


def _after(call: Call) -> int:
    text = call.request.headers.get("Last-Event-ID") or call.request.GET.get("after") or "0"
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidRequestError(public_message="Last-Event-ID: the number of an event of this turn.")
    return int(text)


def turn_json(actor: Actor, turn_id: UUID) -> dict[str, Any]:
    """A turn and its answer as stored. Raises `NotFoundError`."""
    turn = turns.visible_turn(actor, turn_id)
    return {
        "id": str(turn.pk),
        "request_id": str(turn.request_id),
        "conversation_id": str(turn.conversation_id),
        "status": turn.status,
        "seq": turn.last_seq,
        "user_message_id": str(turn.user_message_id),
        "message": one_message_json(turn.message),
        "created_at": turn.created_at.isoformat(),
        "ended_at": turn.ended_at.isoformat() if turn.ended_at else None,
    }


# --- The stream ---------------------------------------------------------------------------------------------------


async def _stream(call: Call, turn_id: UUID, after: int) -> AsyncIterator[bytes]:
    """Events as the wire format of the HTML standard, 9.2: `id`, `data`, an empty line; comments between."""
    again = time.monotonic() + settings.SOCKET["RECHECK_SECONDS"]
    async with aclosing(with_keep_alive(following.frames(call.door, turn_id, after), KEEP_ALIVE)) as numbered:
        async for event in numbered:
            if time.monotonic() >= again:
                try:
                    await in_rows(call.door.run, turns.visible_turn, turn_id)
                except ChatUIError:  # who may not look any more, sees no more; asking again says why
                    return
                again = time.monotonic() + settings.SOCKET["RECHECK_SECONDS"]
            yield b": \n\n" if event is None else f"id: {event[0]}\ndata: {event[1]}\n\n".encode()


async def with_keep_alive(events: AsyncGenerator[T], seconds: float) -> AsyncGenerator[T | None]:
    """`events`, and None whenever none came for `seconds`; closes `events` at its own end."""
    step: asyncio.Task[T] | None = None
    try:
        while True:
            step = asyncio.create_task(_step(events))
            while not (await asyncio.wait({step}, timeout=seconds))[0]:
                yield None
            try:
                event = step.result()
            except StopAsyncIteration:
                return
            yield event
    finally:
        if step is not None and not step.done():
            step.cancel()
            await asyncio.wait({step})
        await events.aclose()


async def _step(events: AsyncGenerator[T]) -> T:
    return await anext(events)
