"""Celery's tasks of this app run without a broker."""

from __future__ import annotations

import pytest
from django.conf import settings

from mcpservers import tasks


@pytest.mark.django_db(transaction=True)
def test_renewing_tokens_with_nothing_to_renew_is_done_at_once() -> None:
    tasks.refresh_tokens()


def test_tokens_are_looked_at_more_often_than_they_are_due_ahead() -> None:
    from mcpservers.oauth.grants import AHEAD_SECONDS

    (entry,) = [each for each in settings.CELERY_BEAT_SCHEDULE.values() if each["task"] == tasks.refresh_tokens.name]
    assert entry["schedule"] < AHEAD_SECONDS / 2
