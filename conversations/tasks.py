"""Celery's tasks of this app: thin wrappers over functions that also run without a broker."""

from __future__ import annotations

import logging

from celery import shared_task

from conversations import retention

logger = logging.getLogger(__name__)


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]  # Celery has no type stubs
def tidy() -> None:
    """Delete what is kept no longer."""
    done = retention.tidy()
    if any(done.values()):
        logger.info("Tidied: %s", ", ".join(f"{count} {name}" for name, count in done.items() if count))
