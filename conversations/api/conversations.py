"""One conversation: read, rename, pin, archive, choose a branch, delete with undo; its messages and calls."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction
from django.http import HttpResponse, JsonResponse
from django.utils import timezone
from pydantic import Field, StrictBool, field_validator

from accounts.actors import Actor
from chatui.errors import InvalidRequestError, NotFoundError
from conversations import commands, hints, stopping
from conversations.api import body
from conversations.api.door import Call
from conversations.api.listing import open_turns
from conversations.models import Conversation, Message, ToolCall, Turn
from conversations.representations import call_json, conversation_json, messages_json


class Changes(body.Body):
    """What may be changed; absent fields stay as they are."""

    title: str | None = Field(default=None, max_length=2000)
    pinned: StrictBool | None = None
    archived: StrictBool | None = None
    current_leaf: UUID | None = None

    @field_validator("title")
    @classmethod
    def _is_one_line(cls, title: str | None) -> str | None:
        if title is None:
            return None
        line = " ".join(title.split())
        if not 0 < len(line) <= 200:
            raise ValueError("between 1 and 200 characters")
        return line


async def read(call: Call, conversation: UUID) -> HttpResponse:
    return JsonResponse(await call.rows(one, conversation))


async def update(call: Call, conversation: UUID) -> HttpResponse:
    changes = body.read(Changes, call.request).model_dump(exclude_unset=True)
    if any(value is None for value in changes.values()):
        raise InvalidRequestError(public_message="A field cannot be null; leave it out to keep it.")
    changed, turn = await call.rows(change, conversation, changes)
    await hints.tell_owner(changed, commands.conversation_updated(changed))
    return JsonResponse(conversation_json(changed, turn))


async def delete(call: Call, conversation: UUID) -> HttpResponse:
    """Delete, which `restore` undoes; an answer that is being written is stopped first."""
    for turn_id in await call.rows(running_turns, conversation):
        await stopping.stop(call.door, turn_id)
    await call.rows(put_away, conversation)
    return HttpResponse(status=204)


async def restore(call: Call, conversation: UUID) -> HttpResponse:
    return JsonResponse(await call.rows(bring_back, conversation))


async def messages(call: Call, conversation: UUID) -> HttpResponse:
    return JsonResponse(await call.rows(whole_tree, conversation))


async def read_call(call: Call, call_id: UUID) -> HttpResponse:
    return JsonResponse(await call.rows(whole_call, call_id))


# --- Rows ---------------------------------------------------------------------------------------------------------


def find(actor: Actor, conversation_id: UUID) -> Conversation:
    """The actor's conversation, its agent loaded; one query. Raises `NotFoundError`."""
    found = Conversation.objects.visible_to(actor).select_related("agent").filter(pk=conversation_id).first()
    if found is None:
        raise NotFoundError(public_message="There is no such conversation.")
    return found  # type: ignore[no-any-return]  # the shared queryset is not generic over its model


def one(actor: Actor, conversation_id: UUID) -> dict[str, Any]:
    conversation = find(actor, conversation_id)
    return conversation_json(conversation, open_turns([conversation]).get(conversation.pk))


def change(actor: Actor, conversation_id: UUID, changes: dict[str, Any]) -> tuple[Conversation, Turn | None]:
    """Store `changes` (fields of `Changes`); also its open turn. A title that a person sets is never overwritten."""
    with transaction.atomic():
        conversation = find(actor, conversation_id)
        leaf = changes.pop("current_leaf", None)
        if leaf is not None:
            answers = conversation.messages.filter(role=Message.Role.ASSISTANT)
            if not answers.filter(pk=leaf).exists():
                raise NotFoundError(public_message="current_leaf: there is no such answer in this conversation.")
            changes["current_leaf_id"] = leaf
        if "title" in changes:
            changes["title_source"] = Conversation.TitleSource.PERSON
        for name, value in changes.items():
            setattr(conversation, name, value)
        if changes:
            conversation.save(update_fields=[name.removesuffix("_id") for name in changes])
    return conversation, open_turns([conversation]).get(conversation.pk)


def running_turns(actor: Actor, conversation_id: UUID) -> list[UUID]:
    conversation = find(actor, conversation_id)
    return [turn.pk for turn in conversation.turns.filter(status__in=Turn.OPEN)]


def put_away(actor: Actor, conversation_id: UUID) -> None:
    Conversation.objects.visible_to(actor).filter(pk=conversation_id).update(deleted_at=timezone.now())


def bring_back(actor: Actor, conversation_id: UUID) -> dict[str, Any]:
    """Undo a deletion; a conversation that is not deleted stays as it is. Raises `NotFoundError`."""
    own = Conversation.objects.as_system().filter(organization_id=actor.organization_id, owner_id=actor.user_id)
    own.filter(pk=conversation_id).update(deleted_at=None)
    return one(actor, conversation_id)


def whole_tree(actor: Actor, conversation_id: UUID) -> dict[str, Any]:
    """`{conversation, messages, turn}` with every branch; at most eight queries, however many messages."""
    conversation = find(actor, conversation_id)
    tree = list(conversation.messages.order_by("created_at", "pk").defer("search_text"))
    is_open = any(message.status in Turn.OPEN for message in tree)
    turn = open_turns([conversation]).get(conversation.pk) if is_open else None
    head = conversation_json(conversation, turn)
    return {"conversation": head, "messages": messages_json(tree), "turn": head["turn"]}


def whole_call(actor: Actor, call_id: UUID) -> dict[str, Any]:
    """The call as its part in the message, with arguments and result unshortened. Raises `NotFoundError`."""
    own = Conversation.objects.visible_to(actor)
    call = ToolCall.objects.select_related("decided_by").filter(pk=call_id, message__conversation__in=own).first()
    if call is None:
        raise NotFoundError(public_message="There is no such call.")
    return call_json(call, whole=True)
