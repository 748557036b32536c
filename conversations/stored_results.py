"""The whole texts of cut results, for `read_result`: files that results brought, and what the model was told."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.db.models.functions import Length

from accounts.actors import Actor, refreshed
from agents.context import OLD_OUTPUT_CHARACTERS, result_text
from agents.parts import ToolResult, ToolStatus
from chatui.rows import in_rows
from conversations.models import Attachment, Conversation, ToolCall
from mcpservers.cuts import whole_name


@dataclass(frozen=True, slots=True)
class StoredTexts:
    """The texts of one conversation's results, for its owner alone, while that one is a member."""

    actor: Actor
    conversation_id: UUID

    async def find(self, name: str) -> str | None:
        return await in_rows(find_text, self.actor, self.conversation_id, name)


def find_text(actor: Actor, conversation_id: UUID, name: str) -> str | None:
    """The whole text that `mcpservers.cuts` calls `name`, from the calls of a conversation of `actor`; None if none."""
    now = refreshed(actor)
    if now is None or not Conversation.objects.visible_to(now).filter(pk=conversation_id).exists():
        return None
    file = (
        Attachment.objects.visible_to(now)
        .filter(conversation_id=conversation_id, call__turn__conversation_id=conversation_id, name=name)
        .order_by("-created_at")
        .first()
    )
    return _read(file) if file is not None else _told(conversation_id, name)


def _read(attachment: Attachment) -> str | None:
    try:
        with attachment.file.open("rb") as file:
            return bytes(file.read()).decode("utf-8", "replace")
    except OSError:  # it is no longer in the store
        return None


def _told(conversation_id: UUID, name: str) -> str | None:
    """A text that the model was told whole once, and cut later for want of room."""
    calls = (
        ToolCall.objects.filter(turn__conversation_id=conversation_id)
        .annotate(characters=Length("result_text"))
        .filter(characters__gt=OLD_OUTPUT_CHARACTERS - 100)  # it may have been told with a word before it
        .order_by("-created_at")
        .values_list("status", "result_text")
    )
    texts = (result_text(ToolResult(ToolStatus(status), text)) for status, text in calls.iterator())
    return next((text for text in texts if whole_name(text) == name), None)
