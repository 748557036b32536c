from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.utils import timezone

from accounts.models import BudgetCounter, Organization, User
from agents.models import Agent
from conversations import retention
from conversations.models import Attachment, Conversation, Message, Turn
from conversations.tasks import tidy

YESTERDAY = timedelta(hours=25)


@pytest.fixture
def make(alice: User, organization: Any, make_agent: Callable[..., Agent]) -> Callable[..., Conversation]:
    agent = make_agent(organization)

    def make_one(**fields: Any) -> Conversation:
        fields = {"active_at": timezone.now() - YESTERDAY, **fields}
        conversation = Conversation.objects.create(organization=organization, owner=alice, agent=agent, **fields)
        question = Message.objects.create(conversation=conversation, role="user")
        answer = Message.objects.create(conversation=conversation, role="assistant", parent=question)
        conversation.current_leaf = answer
        conversation.save()
        return conversation

    return make_one


def upload(organization: Any, owner: User, conversation: Conversation | None) -> Attachment:
    row = Attachment(
        organization=organization,
        owner=owner,
        conversation=conversation,
        name="a.txt",
        content_type="text/plain",
        size=2,
    )
    row.file.save("a.txt", ContentFile(b"hi"), save=True)
    return row


def left() -> set[Any]:
    return set(Conversation.objects.as_system().values_list("pk", flat=True))


def test_requests_and_temporary_chats_go_after_a_day_and_chats_stay(make: Callable[..., Conversation]) -> None:
    gone = [make(kind=kind) for kind in ("api", "temporary")]
    kept = [make(kind="chat"), make(kind="api", active_at=timezone.now())]
    tidy()
    assert left() == {conversation.pk for conversation in kept}
    assert not Message.objects.filter(conversation__in=[conversation.pk for conversation in gone]).exists()


def test_a_deleted_chat_can_be_restored_for_a_day(make: Callable[..., Conversation]) -> None:
    make(deleted_at=timezone.now() - YESTERDAY)
    kept = make(deleted_at=timezone.now())
    assert retention.tidy()["deleted"] == 1
    assert left() == {kept.pk}


def test_what_still_waits_is_not_taken_away(make: Callable[..., Conversation], alice: User) -> None:
    conversation = make(kind="temporary")
    question, answer = conversation.messages.order_by("created_at")
    Turn.objects.create(
        conversation=conversation,
        started_by=alice,
        request_id=conversation.pk,
        user_message=question,
        message=answer,
        status="waiting",
    )
    tidy()
    assert left() == {conversation.pk}


def test_the_files_go_with_their_conversation_and_stray_uploads_after_a_day(
    make: Callable[..., Conversation], alice: User, organization: Any
) -> None:
    conversation = make(kind="temporary")
    files = [upload(organization, alice, conversation), upload(organization, alice, None)]
    Attachment.objects.as_system().update(created_at=timezone.now() - YESTERDAY)
    fresh = upload(organization, alice, None)
    tidy()
    assert not any(Path(row.file.path).exists() for row in files)
    assert set(Attachment.objects.as_system().values_list("pk", flat=True)) == {fresh.pk}
    assert Path(fresh.file.path).exists()


def test_counters_of_periods_that_are_over_go_and_those_of_now_stay(organization: Organization) -> None:
    now = timezone.now()
    for period, age in (("minute", 0), ("minute", 2), ("day", 2), ("month", 24 * 31), ("month", 24 * 40)):
        BudgetCounter.objects.create(
            organization=organization,
            per="organization",
            subject_id=organization.pk,
            period=period,
            began=now - timedelta(hours=age),
        )
    assert retention.tidy()["counters"] == 2
    left = BudgetCounter.objects.as_system().order_by("-began").values_list("period", flat=True)
    assert list(left) == ["minute", "day", "month"]
