"""Start and shutdown of a server process: one `begin()` and one `aclose()`, under ASGI lifespan and under Daphne."""

from __future__ import annotations

import asyncio
import logging
import sys
from importlib import import_module
from typing import Any

from django.conf import settings

from agents.providers.openai_chat import aclose_clients
from chatui import embedded
from conversations import consumers, feed, supervisor
from mcpservers import catalogue, connections

logger = logging.getLogger(__name__)
_background: set[asyncio.Task[None]] = set()


async def begin() -> None:
    """Before the first turn: reap what a dead process left. Without Redis no other process can own a turn."""
    await supervisor.current().begin(alone=not settings.REDIS_URL)
    await asyncio.to_thread(embedded.start_worker)
    task = asyncio.get_running_loop().create_task(_warm_up(), name="warm-up")
    _background.add(task)
    task.add_done_callback(_background.discard)
    task.add_done_callback(_log_failure)


async def _warm_up() -> None:
    """What the first chat would wait for: the SDK's import (over a second) and tools that are not known yet."""
    await asyncio.to_thread(import_module, "mcp")
    await catalogue.fill()


async def aclose() -> None:
    """Lose nothing: drain turns, end the rest as interrupted, close MCP connections, then the sockets (SPEC X4)."""
    await supervisor.current().aclose()
    for task in _background:
        task.cancel()
    await catalogue.aclose()
    try:
        await connections.manager().aclose(settings.MCP["CLOSE_SECONDS"])
    except Exception:  # whatever a connection does at its end, the sockets are still told
        logger.exception("Closing the MCP connections failed")
    await consumers.close_sockets()
    feed.current().aclose()
    await aclose_clients()
    await asyncio.to_thread(embedded.stop_worker)


class Lifespan:
    """Answers the `lifespan` scope (uvicorn, hypercorn) and passes everything else on."""

    def __init__(self, application: Any) -> None:
        self.application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await self.application(scope, receive, send)
            return
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await begin()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return


def hook_daphne() -> None:
    """Daphne has no lifespan and drops tasks on SIGTERM: a trigger of its reactor awaits `aclose()` first."""
    if "daphne.server" not in sys.modules or "twisted.internet.reactor" not in sys.modules:
        return
    from twisted.internet import reactor as installed
    from twisted.internet.defer import Deferred

    reactor: Any = installed  # twisted types a module; at run time it is the reactor that Daphne installed

    def start() -> None:
        task = asyncio.get_event_loop().create_task(begin(), name="begin")
        task.add_done_callback(_log_failure)

    def stop() -> Any:
        return Deferred.fromFuture(asyncio.ensure_future(aclose()))

    reactor.callWhenRunning(start)
    reactor.addSystemEventTrigger("before", "shutdown", stop)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("The start of this process failed", exc_info=error)
