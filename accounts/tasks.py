"""Celery's tasks of this app: thin wrappers over functions that also run without a broker."""

from __future__ import annotations

import logging

from celery import shared_task

from accounts import audit_retention

logger = logging.getLogger(__name__)


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]  # Celery has no type stubs
def prune_audit() -> None:
    """Delete audit entries that are kept no longer."""
    number = audit_retention.prune()
    if number:
        logger.info("Deleted %d audit entries that are kept no longer", number)
