"""Celery's tasks of this app: thin wrappers over functions that also run without a broker."""

from __future__ import annotations

import asyncio
import logging

from celery import shared_task

from mcpservers import refreshing

logger = logging.getLogger(__name__)


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]  # Celery has no type stubs
def refresh_catalogue() -> None:
    """List the tools of servers anew whose lists are old or not known."""
    done = asyncio.run(refreshing.refresh_stale())
    if done.listed or done.failed:
        logger.info("Refreshed the tools of %d servers; %d could not be listed", done.listed, done.failed)
