"""The catalogue kept fresh ahead of need, by a worker that has no connections of its own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from uuid import UUID

from django.core.cache import cache

from chatui.rows import in_rows
from mcpservers import catalogue, fetching
from mcpservers.models import MCPServer

AT_ONCE = 8
_RUNNING = "mcpservers:refreshing"
_LONGEST = 3600  # seconds after which a run that never ended no longer keeps others out


@dataclass(frozen=True, slots=True)
class Refreshed:
    """How many servers were listed anew, and how many could not be."""

    listed: int = 0
    failed: int = 0


async def refresh_stale() -> Refreshed:
    """List anew the organizations' own servers whose tools are not known, or not of late; some at a time.

    Each over a short connection of its own. Does nothing while another worker is at it.
    """
    if not await in_rows(cache.add, _RUNNING, True, _LONGEST):
        return Refreshed()
    try:
        targets = await in_rows(fetching.outdated)
        slots = asyncio.Semaphore(AT_ONCE)
        reports = await asyncio.gather(*(_refresh(target.server_id, slots) for target in targets))
    finally:
        await in_rows(cache.delete, _RUNNING)
    return Refreshed(sum(reports), len(reports) - sum(reports))


async def _refresh(server_id: UUID, slots: asyncio.Semaphore) -> bool:
    async with slots:
        try:
            return not (await catalogue.refresh(server_id)).error
        except MCPServer.DoesNotExist:  # deleted meanwhile
            return False
