"""Conversations, messages and calls as clients see them, on the socket as in the HTTP API."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, Prefetch, QuerySet, prefetch_related_objects

from chatui.prepared import PreparedQuery
from conversations.frame_bounds import bounded, shortened_content
from conversations.models import Attachment, Conversation, Message, Question, ToolCall, Turn


def attachment_json(attachment: Attachment) -> dict[str, Any]:
    return {
        "id": str(attachment.pk),
        "name": attachment.name,
        "content_type": attachment.content_type,
        "size": attachment.size,
        "url": f"/api/v1/attachments/{attachment.pk}/content",
    }


def question_json(question: Question) -> dict[str, Any]:
    return {
        "id": str(question.pk),
        "kind": question.kind,
        "state": question.state,
        "details": question.details,
        "expires_at": question.expires_at.isoformat(),
    }


def call_json(call: ToolCall, *, whole: bool = False) -> dict[str, Any]:
    """A call part. `call` has `artifacts`, `questions` and `decided_by` loaded."""
    arguments: Any = call.arguments if call.arguments is not None else call.arguments_text
    questions = list(call.questions.all())
    return {
        "type": "call",
        "id": str(call.pk),
        "round": call.round,
        "server": call.server_slug,
        "server_title": call.server_title,
        "tool": call.tool or call.name,
        "title": call.title or call.tool or call.name,
        "arguments": arguments if whole else bounded(arguments, call.pk),
        "status": call.status,
        "reason": call.reason,
        "content": list(call.result_content) if whole else shortened_content(call.result_content, call.pk),
        "artifacts": [attachment_json(artifact) for artifact in call.artifacts.all()],
        "duration_ms": call.duration_ms,
        "decided_by": call.decided_by.username if call.decided_by else None,
        "decided_at": call.decided_at.isoformat() if call.decided_at else None,
        "question": question_json(questions[-1]) if questions else None,
    }


def has_calls(message: Message) -> bool:
    """Whether the message shows calls; a round's rows and its parts are stored together."""
    return any(part["type"] == "call" for part in message.parts)


def calls_for(messages: Iterable[Message]) -> dict[UUID, list[ToolCall]]:
    """The calls of `messages`, each with what `call_json` needs: three queries at most, none without calls."""
    found: dict[UUID, list[ToolCall]] = defaultdict(list)
    ids = [message.pk for message in messages if has_calls(message)]
    if not ids:
        return found
    calls = _calls_of(ids[0]) if len(ids) == 1 else list(_with_what_they_have(ToolCall.objects.filter(message__in=ids)))
    _load_what_they_have(calls)
    for call in calls:
        found[call.message_id].append(call)
    return found


def _with_what_they_have(calls: QuerySet[ToolCall]) -> QuerySet[ToolCall]:
    artifacts = Attachment.objects.as_system().filter(call=OuterRef("pk"))
    questions = Question.objects.as_system().filter(call=OuterRef("pk"))
    return calls.select_related("decided_by").annotate(has_more=Exists(artifacts) | Exists(questions))


_calls_of = PreparedQuery(lambda id: _with_what_they_have(ToolCall.objects.filter(message_id=id)), UUID)


def _load_what_they_have(calls: Sequence[Any]) -> None:
    """Artifacts and questions, which few calls have; those of the others are known to be none."""
    more = [call for call in calls if call.has_more]
    if more:
        questions = Prefetch("questions", Question.objects.as_system().order_by("created_at"))
        prefetch_related_objects(more, "artifacts", questions)
    for call in calls:
        if not call.has_more:
            call._prefetched_objects_cache = dict(_nothing())


@cache
def _nothing() -> dict[str, QuerySet[Any]]:
    """What prefetching leaves where there is nothing."""
    nothing: dict[str, QuerySet[Any]] = {
        "artifacts": Attachment.objects.as_system().none(),
        "questions": Question.objects.as_system().none(),
    }
    for rows in nothing.values():
        len(rows)  # asks once; from then on it is known
    return nothing


def attachments_for(messages: Iterable[Message]) -> dict[str, Attachment]:
    """The attachments that `messages` name, by id; one query, none where there are none."""
    ids = [part["id"] for message in messages for part in message.parts if part["type"] == "attachment"]
    if not ids:
        return {}
    return {str(found.pk): found for found in Attachment.objects.as_system().filter(pk__in=ids).defer("text")}


def message_json(
    message: Message,
    *,
    calls: Sequence[ToolCall],
    attachments: Mapping[str, Attachment],
    siblings: Sequence[UUID],
    turn_id: UUID | None = None,
) -> dict[str, Any]:
    by_id = {str(call.pk): call for call in calls}
    parts: list[dict[str, Any]] = []
    for part in message.parts:
        if part["type"] == "call":
            if part["id"] in by_id:
                parts.append(call_json(by_id[part["id"]]))
        elif part["type"] == "attachment":
            if part["id"] in attachments:
                parts.append({"type": "attachment", **attachment_json(attachments[part["id"]])})
        else:
            parts.append(part)
    return {
        "id": str(message.pk),
        "parent_id": str(message.parent_id) if message.parent_id else None,
        "siblings": [str(sibling) for sibling in siblings],
        "role": message.role,
        "parts": parts,
        "status": message.status,
        "model": message.model,
        "usage": message.usage,
        "error": message.error,
        "seq": message.seq,
        "turn_id": str(turn_id) if turn_id else None,
        "created_at": message.created_at.isoformat(),
    }


def messages_json(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Every message of one conversation; a constant number of queries."""
    siblings: dict[tuple[UUID | None, str], list[UUID]] = defaultdict(list)
    for message in messages:
        siblings[(message.parent_id, message.role)].append(message.pk)
    assistants = [message for message in messages if message.role == Message.Role.ASSISTANT]
    calls = calls_for(assistants)
    attachments = attachments_for(messages)
    turns: dict[UUID, UUID] = {}
    if messages:
        found = Turn.objects.filter(conversation=messages[0].conversation_id).order_by("created_at")
        turns = dict(found.values_list("message_id", "pk"))
    return [
        message_json(
            message,
            calls=calls.get(message.pk, ()),
            attachments=attachments,
            siblings=siblings[(message.parent_id, message.role)],
            turn_id=turns.get(message.pk),
        )
        for message in messages
    ]


def one_message_json(message: Message) -> dict[str, Any]:
    """One message, as it stands in the database."""
    siblings = Message.objects.filter(
        conversation=message.conversation_id, parent=message.parent_id, role=message.role
    ).order_by("created_at")
    turn_id = Turn.objects.filter(message=message).order_by("-created_at").values_list("pk", flat=True).first()
    return _json_of(message, list(siblings.values_list("pk", flat=True)), turn_id)


def answer_json(turn: Turn) -> dict[str, Any]:
    """The message that `turn`, the last of it, has just written; `turn.message` is as it was stored."""
    message = turn.message
    if turn.kind != Turn.Kind.START:
        return one_message_json(message)
    # A new question has one answer until its turn has ended, so there is nothing to look for.
    return _json_of(message, [message.pk], turn.pk)


def _json_of(message: Message, siblings: Sequence[UUID], turn_id: UUID | None) -> dict[str, Any]:
    calls = calls_for([message]).get(message.pk, ())
    attachments = attachments_for([message])
    return message_json(message, calls=calls, attachments=attachments, siblings=siblings, turn_id=turn_id)


def conversation_json(conversation: Conversation, turn: Turn | None = None) -> dict[str, Any]:
    """A conversation for lists and headers. `conversation.agent` is loaded."""
    agent = conversation.agent
    return {
        "id": str(conversation.pk),
        "title": conversation.title,
        "title_source": conversation.title_source,
        "agent": {"slug": agent.slug, "name": agent.name} if agent else None,
        "pinned": conversation.pinned,
        "archived": conversation.archived,
        "accounts": conversation.accounts,
        "temporary": conversation.kind == Conversation.Kind.TEMPORARY,
        "current_leaf": str(conversation.current_leaf_id) if conversation.current_leaf_id else None,
        "active_at": conversation.active_at.isoformat(),
        "created_at": conversation.created_at.isoformat(),
        "turn": {"id": str(turn.pk), "status": turn.status, "seq": turn.last_seq} if turn else None,
    }
