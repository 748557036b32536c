"""Hints to a user's open sockets over the channel layer: they may be lost, so nothing depends on them alone."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from chatui.layers import tell_group
from conversations.models import Conversation
from conversations.settling import Settled
from conversations.wire import frame


def group_of(user_id: UUID) -> str:
    return f"user.{user_id.hex}"


async def tell_user(user_id: UUID, organization_id: UUID, text: str) -> None:
    """Send an encoded frame to every open socket of the user in that organization, in whatever process."""
    await _tell(user_id, organization_id, text)


async def tell_owner(conversation: Conversation, text: str) -> None:
    """Likewise what happens in a conversation, to its owner; not to sockets that may not see chats."""
    await _tell(conversation.owner_id, conversation.organization_id, text, chats=True)


async def _tell(user_id: UUID, organization_id: UUID, text: str, *, chats: bool = False) -> None:
    hint = {"type": "hint", "organization": organization_id.hex, "chats": chats, "frame": text}
    await tell_group(group_of(user_id), hint)


async def recheck_user(user_id: UUID) -> None:
    """Ask the user's open sockets to look at their right to be open, now."""
    await tell_group(group_of(user_id), {"type": "recheck"})


async def tell_settled(settled: Iterable[Settled]) -> None:
    """Tell all who might have answered that a question is closed."""
    for each in settled:
        changed = question_changed(each.question_id, each.kind, each.state, each.turn_id)
        await tell_people(each.audience, each.organization_id, changed)


async def tell_people(people: Iterable[UUID], organization_id: UUID, text: str) -> None:
    for user_id in dict.fromkeys(people):
        await tell_user(user_id, organization_id, text)


def turn_changed(turn_id: UUID, conversation_id: UUID, status: str) -> str:
    return frame("turn.changed", turn_id=turn_id, conversation_id=conversation_id, status=status)


def question_changed(question_id: UUID, kind: str, state: str, turn_id: UUID) -> str:
    return frame("question.changed", question_id=question_id, kind=kind, state=state, turn_id=turn_id)


def connection_changed(organization: str, server: str, state: str, account: str) -> str:
    """`state`: `connected` or `disconnected`; organization and server are slugs, the account is its name."""
    return frame("connection.changed", organization=organization, server=server, state=state, account=account)
