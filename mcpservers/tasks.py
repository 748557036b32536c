"""Celery's tasks of this app: thin wrappers over functions that also run without a broker."""

from __future__ import annotations

import asyncio
import logging

from celery import shared_task

from mcpservers import refreshing
from mcpservers.oauth import revocations, tokens

logger = logging.getLogger(__name__)


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]  # Celery has no type stubs
def refresh_catalogue() -> None:
    """List the tools of servers anew whose lists are old or not known."""
    done = asyncio.run(refreshing.refresh_stale())
    if done.listed or done.failed:
        logger.info("Refreshed the tools of %d servers; %d could not be listed", done.listed, done.failed)


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]  # Celery has no type stubs
def refresh_tokens() -> None:
    """Renew the tokens of linked accounts that expire soon, and forget sign-ins that were never completed."""
    done = asyncio.run(tokens.refresh_due())
    if done.renewed or done.failed:
        logger.info("Renewed the tokens of %d linked accounts; %d could not be renewed", done.renewed, done.failed)


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]  # Celery has no type stubs
def revoke_tokens() -> None:
    """Revoke linked accounts that went with a person, a server or an organization."""
    done = asyncio.run(revocations.revoke_due())
    if done.done or done.failed:
        logger.info("Revoked %d linked accounts; %d could not be revoked", done.done, done.failed)
