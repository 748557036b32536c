"""What is kept no longer: hidden, temporary and deleted conversations, and uploads that no message names."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from accounts.models import BudgetCounter, BudgetWarning, SigninLink
from conversations.models import Attachment, Conversation, ConversationQuerySet, Turn

COUNTERS_KEPT = timedelta(days=32)  # the longest period
BATCH = 200  # conversations of one transaction


def tidy() -> dict[str, int]:
    """Delete what is overdue and say how much of each; what is still running or waiting stays until it has ended."""
    now = timezone.now()
    passing = now - timedelta(seconds=settings.RETENTION["PASSING_SECONDS"])
    deleted = now - timedelta(seconds=settings.RETENTION["DELETED_SECONDS"])
    conversations = Conversation.objects.as_system()
    kinds = (Conversation.Kind.API, Conversation.Kind.TEMPORARY)
    return {
        "passing": _delete(conversations.filter(kind__in=kinds, active_at__lt=passing)),
        "deleted": _delete(conversations.filter(deleted_at__lt=deleted)),
        "uploads": _delete_files(
            Attachment.objects.as_system().filter(conversation=None, created_at__lt=passing)[:BATCH]
        ),
        "counters": _forget_counters(now),
        "links": SigninLink.objects.filter(expires_at__lt=passing).delete()[0],
    }


def _forget_counters(now: datetime) -> int:
    """Counters and warnings of budgets' periods that are over."""
    old = BudgetCounter.objects.as_system().filter(
        Q(period="minute", began__lt=now - timedelta(hours=1)) | Q(began__lt=now - COUNTERS_KEPT)
    )
    warnings = BudgetWarning.objects.as_system().filter(began__lt=now - COUNTERS_KEPT)
    return old.delete()[0] + warnings.delete()[0]


def _delete(conversations: ConversationQuerySet) -> int:
    open_turns = Turn.objects.filter(status__in=Turn.OPEN).values("conversation")
    total = 0
    while ids := list(conversations.exclude(pk__in=open_turns).values_list("pk", flat=True)[:BATCH]):
        _delete_files(Attachment.objects.as_system().filter(conversation__in=ids))
        Conversation.objects.as_system().filter(pk__in=ids).delete()
        total += len(ids)
    return total


def _delete_files(attachments: Iterable[Attachment]) -> int:
    count = 0
    for attachment in attachments:
        attachment.file.delete(save=False)
        attachment.delete()
        count += 1
    return count
