"""A path of stored messages and calls, made by hand: rows that are in no database until `store` puts them there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from django.utils import timezone

from agents.providers.chat_model import Capabilities
from conversations.history import model_messages
from conversations.models import Conversation, Message, Question, ToolCall, Turn

User, Assistant = Message.Role.USER, Message.Role.ASSISTANT
Status, CallStatus = Message.Status, ToolCall.Status


class Path:
    """A path of rows that are in no database."""

    def __init__(self):
        self.messages: list[Message] = []
        self.calls: dict = {}

    def user(self, *parts):
        parts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
        self.messages.append(Message(id=uuid4(), role=User, parts=parts))
        return self

    def assistant(self, *parts, status=Status.COMPLETED):
        """Parts as they are stored; a `ToolCall` stands for its part."""
        message = Message(id=uuid4(), role=Assistant, status=status, parts=[])
        rows = [part for part in parts if isinstance(part, ToolCall)]
        for part in parts:
            if isinstance(part, ToolCall):
                message.parts.append({"type": "call", "id": str(part.pk), "round": part.round})
            else:
                message.parts.append(
                    {"round": 1, **({"type": "text", "text": part} if isinstance(part, str) else part)}
                )
        self.messages.append(message)
        self.calls[message.pk] = rows
        return self

    def told(self, **options):
        options.setdefault("capabilities", Capabilities())
        return model_messages(self.messages, self.calls, **options)


def row(name="t", status=CallStatus.OK, *, round=1, position=0, id="c1", text="{}", result="r", **fields):
    questions, artifacts = fields.pop("questions", []), fields.pop("artifacts", [])
    found = ToolCall(
        id=uuid4(),
        round=round,
        position=position,
        provider_id=id,
        name=name,
        arguments_text=text,
        arguments=fields.pop("arguments", {}),
        status=status,
        result_text=result,
        **fields,
    )
    found._prefetched_objects_cache = {"questions": questions, "artifacts": artifacts}
    return found


def question(state, answer=None, minutes=0):
    return Question(
        state=state, answer=answer, created_at=datetime(2025, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
    )


def text(value, round=1, kind=None):
    return {"type": "text", "text": value, "round": round, **({"kind": kind} if kind else {})}


def shape(messages):
    return [
        (message.role, message.text, [request.id for request in message.tool_calls] or message.tool_call_id)
        for message in messages
    ]


def store(path, owner, agent):
    """The conversation of `owner` with `agent` that `path` is from now on, with an ended turn for every answer."""
    conversation = Conversation.objects.create(
        organization=agent.organization, owner=owner, agent=agent, active_at=timezone.now()
    )
    before = None
    for message in path.messages:
        message.conversation, message.parent = conversation, before
        message.save(force_insert=True)
        if message.pk in path.calls:
            fields = {"request_id": uuid4(), "user_message": before, "message": message, "status": message.status}
            turn = Turn.objects.create(conversation=conversation, started_by=owner, agent=agent, **fields)
            for call in path.calls[message.pk]:
                call.turn, call.message = turn, message
                call.save(force_insert=True)
        before = message
    conversation.current_leaf = before
    conversation.save()
    return conversation
