"""The views: a request starts a turn in a hidden conversation and follows it; the client's going away stops it."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from typing import Any
from uuid import UUID

import orjson
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from accounts import policy
from accounts.actors import Actor
from accounts.doors import SignedOutError
from accounts.policy import Action
from agents.models import Agent
from chatui.errors import ChatUIError, InvalidRequestError, NotFoundError, TooLargeError
from chatui.jsontext import encoded
from chatui.rows import in_rows
from conversations import beginning, following, stopping, uploads
from conversations.api import body, turns
from conversations.api.door import Call, MethodNotAllowedError, enter, public_error
from conversations.models import Conversation
from conversations.openai_api import answers, requests
from conversations.openai_api.answers import Shape
from conversations.openai_api.requests import InlineImage, Question
from conversations.turns import NewTurn
from conversations.uploads import UnsupportedFileError
from conversations.usable import usable_agents

logger = logging.getLogger(__name__)
# Seconds that a stream's status waits for a first sign, so that an endpoint that is down is a 502 and no empty 200.
FIRST_SIGN = 10.0
_SIGNS = frozenset({"text.delta", "reasoning.delta", "call.started", "turn.finished", "turn.snapshot"})
Handler = Callable[..., Coroutine[Any, Any, HttpResponseBase]]


class ModelNotFoundError(NotFoundError):
    """There is no agent of this name for the key's owner."""

    code = "model_not_found"
    param = "model"


def openai_view(method: str) -> Callable[[Handler], Handler]:
    """A view for API keys with `method` alone, whose errors have OpenAI's shape."""

    def decorate(handler: Handler) -> Handler:
        async def view(request: HttpRequest, **captured: Any) -> HttpResponseBase:
            try:
                if request.method != method:
                    raise MethodNotAllowedError
                if not request.headers.get("Authorization", "").lower().startswith("bearer"):
                    raise SignedOutError(public_message="Send an API key as “Authorization: Bearer …”.")
                actor, door = await in_rows(enter, request)
                policy.require(actor, Action.CHAT)
                return await handler(Call(request, actor, door), **captured)
            except Exception as error:  # the documented boundary between a request and the process
                return _error_response(error, request)

        return csrf_exempt(view)

    return decorate


def _error_response(error: Exception, request: HttpRequest) -> JsonResponse:
    told, more = public_error(error, request)
    response = JsonResponse(answers.error_object(told, more), status=told.status)
    if told.status == 401:
        response["WWW-Authenticate"] = 'Bearer realm="chatui"'
    if told.status in (429, 503):
        response["Retry-After"] = str(max(1, round(getattr(told, "retry_after", None) or 5)))
    return response


# --- Models -------------------------------------------------------------------------------------------------------


@openai_view("GET")
async def models(call: Call) -> HttpResponse:
    return JsonResponse(answers.model_list(await call.rows(_models)))


@openai_view("GET")
async def model(call: Call, slug: str) -> HttpResponse:
    found = [one for one in await call.rows(_models) if one["id"] == slug]
    if not found:
        raise _no_such_model(slug)
    return JsonResponse(found[0])


def _models(actor: Actor) -> list[dict[str, Any]]:
    return [_model_object(actor, agent) for agent in usable_agents(actor)]


def _model_object(actor: Actor, agent: Agent) -> dict[str, Any]:
    return answers.model_object(agent.slug, agent.name, int(agent.created_at.timestamp()), actor.organization_slug)


def _no_such_model(slug: str) -> ModelNotFoundError:
    message = f"The model {slug[:80]!r} does not exist or you do not have access to it."
    return ModelNotFoundError(public_message=message)


# --- Completions --------------------------------------------------------------------------------------------------


@openai_view("POST")
async def completions(call: Call) -> HttpResponseBase:
    question = requests.understand(body.read_json(call.request))
    turn_id = await _begin(call, question)
    shape = Shape(turn_id, question.model, int(time.time()))
    frames = _watch(call, turn_id)
    if question.stream:
        return await _streamed(frames, shape, question.include_usage)
    async with aclosing(frames):
        async for frame in frames:
            if frame["type"] in ("turn.finished", "turn.snapshot"):
                outcome, message, error = _end(frame)
                return JsonResponse(shape.completion(outcome, message, error))
    raise answers.failure_of(None)


async def _begin(call: Call, question: Question) -> UUID:
    content = [await _content_item(call, item) for item in question.content]
    new = NewTurn(
        request_id=uuid.uuid4(),
        agent=question.model,
        content=content,
        system=question.system,
        earlier=question.earlier,
        tools=question.tools,
        parameters=question.parameters,
        conversation_kind=Conversation.Kind.API,
    )
    try:
        with _about(question.where):
            return (await beginning.begin(call.door, new, present=False)).turn_id
    except NotFoundError:
        raise _no_such_model(question.model) from None


async def _content_item(call: Call, item: str | InlineImage) -> dict[str, Any]:
    if isinstance(item, str):
        return {"type": "text", "text": item}
    with _about(item.where):
        attachment = await call.rows(uploads.store, item.data, "image", images_only=True)
    return {"type": "attachment", "id": attachment.pk}


@contextmanager
def _about(param: str) -> Iterator[None]:
    """Whatever does not fit about what was sent is about `param`."""
    try:
        yield
    except (InvalidRequestError, TooLargeError, UnsupportedFileError) as error:
        error.param = error.param or param
        raise


async def _watch(call: Call, turn_id: UUID) -> AsyncGenerator[dict[str, Any]]:
    """The turn's frames, decoded, to its end. Whoever stops listening before has gone away, and the turn is stopped."""
    over = False
    try:
        async with aclosing(following.frames(call.door, turn_id, 0)) as encoded:
            async for _seq, text in encoded:
                frame: dict[str, Any] = orjson.loads(text)
                over = frame["type"] == "turn.finished"
                if frame["type"] in ("turn.finished", "turn.snapshot") and frame["message"].get("truncated"):
                    frame["message"] = (await call.rows(turns.turn_json, turn_id))["message"]
                yield frame
    finally:
        if not over:
            # Shielded: what cancels us is the client's going away, and the stop must still be written.
            await asyncio.shield(asyncio.create_task(_stop(call, turn_id), name=f"stop-{turn_id}"))


async def _stop(call: Call, turn_id: UUID) -> None:
    try:
        await stopping.stop(call.door, turn_id)
    except ChatUIError as error:  # the key was revoked meanwhile, say: the turn then runs to its end
        logger.warning("The turn %s of a client that went away was not stopped: %s", turn_id, error)


def _end(frame: dict[str, Any]) -> tuple[str, dict[str, Any], dict[str, Any] | None]:
    """(outcome, message, error) of a turn's last frame. Raises what a client is told of a failed turn."""
    message = frame["message"]
    outcome, error = frame.get("outcome") or frame["status"], frame.get("error") or message.get("error")
    filtered = (error or {}).get("code") == "content_filter"
    if outcome in ("failed", "interrupted") and not filtered:
        raise answers.failure_of(error)
    return outcome, message, error


# --- Streaming ----------------------------------------------------------------------------------------------------


async def _streamed(frames: AsyncGenerator[dict[str, Any]], shape: Shape, with_usage: bool) -> HttpResponseBase:
    """The stream, begun: its status is decided by the first sign of the answer, or after `FIRST_SIGN` seconds."""
    events = turns.with_keep_alive(frames, FIRST_SIGN)
    first: dict[str, Any] | None = None
    try:
        async for first in events:
            if first is None or first["type"] in _SIGNS:
                break
        if first is not None and first["type"] in ("turn.finished", "turn.snapshot"):
            _end(first)
    except BaseException:
        await events.aclose()
        raise
    response = StreamingHttpResponse(_chunks(first, events, shape, with_usage), content_type="text/event-stream")
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    return response


async def _chunks(first: dict[str, Any] | None, events: Any, shape: Shape, with_usage: bool) -> AsyncIterator[bytes]:
    """Server-sent events as OpenAI sends them. A failure after the beginning is an event with an `error`."""
    async with aclosing(events):
        yield _event(shape.chunk({"role": "assistant", "content": ""}, with_usage=with_usage))
        said, calls = False, False
        frame = first
        while True:
            match frame:
                case None:
                    yield b": \n\n"
                case {"type": "text.delta", "text": text}:
                    # What was said before a call and what is said after it are two paragraphs.
                    yield _event(
                        shape.chunk({"content": f"\n\n{text}" if said and calls else text}, with_usage=with_usage)
                    )
                    said, calls = True, False
                case {"type": "call.started"}:
                    calls = True
                case {"type": "turn.finished" | "turn.snapshot"}:
                    for chunk in _last_chunks(frame, shape, with_usage, said=said):
                        yield chunk
                    return
            try:
                frame = await anext(events)
            except StopAsyncIteration:  # the process stops and nobody writes this turn any more
                frame = {"type": "turn.finished", "outcome": "interrupted", "message": {}}


def _last_chunks(frame: dict[str, Any], shape: Shape, with_usage: bool, *, said: bool) -> list[bytes]:
    try:
        outcome, message, error = _end(frame)
    except ChatUIError as failure:
        return [_event(answers.error_object(failure)), answers.DONE]
    chunks = []
    if not said and (text := answers.final_text(message)):
        chunks.append(_event(shape.chunk({"content": text}, with_usage=with_usage)))
    chunks.append(_event(shape.chunk({}, answers.finish_reason(outcome, message, error), with_usage=with_usage)))
    if with_usage:
        chunks.append(_event(shape.usage_chunk(message)))
    return [*chunks, answers.DONE]


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + encoded(value) + b"\n\n"
