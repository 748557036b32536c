"""Whose files a message may name: one's own, of this chat or of none yet; and requests of another organization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.files.base import ContentFile

from accounts.actors import Actor, find_actor
from accounts.models import Membership, Organization, User
from agents.models import Agent
from chatui.errors import InvalidRequestError, NotFoundError
from conversations import turns
from conversations.models import Attachment, Conversation, Message, ToolCall, Turn
from conversations.turns import NewTurn


@pytest.fixture
def owner(alice: User, organization: Organization, make_agent: Callable[..., Agent]) -> Actor:
    """Alice, who is in both organizations, where she is in the first one."""
    make_agent(organization)
    found = find_actor(alice.pk, organization.pk)
    assert found is not None
    return found


def ask(actor: Actor, *files: Attachment | UUID, **fields: Any) -> turns.Begun:
    ids = [file.pk if isinstance(file, Attachment) else file for file in files]
    content = [{"type": "text", "text": "Look."}, *({"type": "attachment", "id": str(id)} for id in ids)]
    if "conversation_id" not in fields:
        fields.setdefault("agent", "helper")
    begun = turns.begin_turn(actor, NewTurn(**{"request_id": uuid4(), "content": content} | fields))
    Turn.objects.filter(pk=begun.turn_id).update(status="completed")
    return begun


def upload(owner: User, organization: Organization, **fields: Any) -> Attachment:
    file = ContentFile(b"secret", name="upload")
    made: Attachment = Attachment.objects.create(
        owner=owner, organization=organization, file=file, name="notes.txt", content_type="text/plain", size=6, **fields
    )
    return made


def artifact(begun: turns.Begun) -> ToolCall:
    turn = Turn.objects.get(pk=begun.turn_id)
    call: ToolCall = ToolCall.objects.create(
        turn=turn, message=turn.message, round=1, position=0, provider_id="c", name="draw", status="ok"
    )
    return call


def test_only_ones_own_files_of_this_chat_or_of_none_go_into_a_message(
    owner: Actor, alice: User, bob: User, charlie: User, organization: Organization, other_organization: Organization
) -> None:
    Membership.objects.create(user=alice, organization=other_organization)
    other = ask(owner)
    free, elsewhere = upload(alice, organization), upload(alice, organization, conversation=other.conversation)
    foreign = {
        "a colleague's": upload(bob, organization),
        "somebody's in another organization": upload(charlie, other_organization),
        "one's own in another organization": upload(alice, other_organization),
        "of another chat": elsewhere,
        "what a tool made": upload(alice, organization, call=artifact(other)),
        "what there is not": uuid4(),
    }
    before = Message.objects.count()
    for whose, file in foreign.items():
        for fields in ({}, {"conversation_id": other.conversation.pk} if file is not elsewhere else {}):
            with pytest.raises(NotFoundError):
                ask(owner, free, file, **fields)
            assert Message.objects.count() == before, whose
    free.refresh_from_db()
    assert free.conversation_id is None  # what was refused has taken nothing along

    begun = ask(owner, free, free)
    free.refresh_from_db()
    assert free.conversation == begun.conversation
    ask(owner, free, conversation_id=begun.conversation.pk)
    with pytest.raises(NotFoundError):
        ask(owner, free)
    assert Conversation.objects.as_system().count() == 2


def test_a_request_that_was_made_in_another_organization_is_not_answered_with_what_it_began_there(
    owner: Actor, alice: User, other_organization: Organization
) -> None:
    Membership.objects.create(user=alice, organization=other_organization)
    there = find_actor(alice.pk, other_organization.pk)
    assert there is not None
    request_id = uuid4()
    ask(owner, request_id=request_id)
    # Whatever is wrong with the request itself: the id was used, and by whom is not for this organization.
    with pytest.raises((InvalidRequestError, NotFoundError)) as refused:
        ask(there, request_id=request_id)
    assert "used before" in refused.value.public_message
