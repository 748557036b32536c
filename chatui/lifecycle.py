"""Start and shutdown of a server process: one `begin()` and one `aclose()`, under ASGI lifespan and under Daphne."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
import threading
from collections.abc import Coroutine
from importlib import import_module
from typing import Any

from django.conf import settings

from agents.providers.openai_chat import aclose_clients, preload
from chatui import embedded
from conversations import consumers, feed, supervisor
from mcpservers import catalogue, connections, peers

logger = logging.getLogger(__name__)
_background: set[asyncio.Task[None]] = set()


async def begin() -> None:
    """Before the first turn: reap what a dead process left. Without Redis no other process can own a turn."""
    await supervisor.current().begin(alone=not settings.REDIS_URL)
    await asyncio.to_thread(embedded.start_worker)
    _start(_warm_up(), "warm-up")
    if settings.REDIS_URL:
        _start(peers.publish(), "connections: publish")
        _start(peers.listen(), "connections: listen")


def _start(work: Coroutine[Any, Any, None], name: str) -> None:
    task = asyncio.get_running_loop().create_task(work, name=name)
    _background.add(task)
    task.add_done_callback(_background.discard)
    task.add_done_callback(_log_failure)


async def _warm_up() -> None:
    """What the first chat would wait for: the SDKs' imports (over a second each) and tools that are not known yet."""
    await preload()
    await asyncio.to_thread(import_module, "mcp")
    spare_what_is_loaded()
    await catalogue.fill()


def spare_what_is_loaded() -> None:
    """Let the garbage collector pass over the modules: walking them all stops every answer for a third of a second.

    What comes later is collected as ever, in larger portions.
    """
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


async def aclose() -> None:
    """Lose nothing: drain turns, end the rest as interrupted, close MCP connections, then the sockets."""
    await supervisor.current().aclose()
    helping = [task for task in _background if task.get_name() != "drain"]
    for task in helping:
        task.cancel()
    if helping:
        await asyncio.wait(helping, timeout=5)
    await catalogue.aclose()
    try:
        await connections.manager().aclose(settings.MCP["CLOSE_SECONDS"])
    except Exception:  # whatever a connection does at its end, the sockets are still told
        logger.exception("Closing the MCP connections failed")
    await consumers.close_sockets()
    feed.current().aclose()
    await feed.current().disconnect()
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
                drain_before_exit()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return


def drain_before_exit() -> None:
    """Uvicorn closes every socket before it tells the application to stop: catch the signal first, then pass it on.

    A second signal goes straight to the server.
    """
    before = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        return
    loop = asyncio.get_running_loop()

    async def drain() -> None:
        try:
            await aclose()
        finally:
            before(signal.SIGTERM, None)

    def caught() -> None:
        loop.remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGTERM, before)
        task = loop.create_task(drain(), name="drain")
        _background.add(task)
        task.add_done_callback(_background.discard)
        task.add_done_callback(_log_failure)

    loop.add_signal_handler(signal.SIGTERM, caught)


def hook_daphne() -> None:
    """Daphne has no lifespan, and on SIGTERM it first cancels every application: have it await `aclose()` before."""
    if "daphne.server" not in sys.modules or "twisted.internet.reactor" not in sys.modules:
        return
    from daphne.server import Server
    from daphne.ws_protocol import WebSocketProtocol
    from twisted.internet import reactor as installed
    from twisted.internet.defer import Deferred

    reactor: Any = installed  # twisted types a module; at run time it is the reactor that Daphne installed
    cancel_applications = Server.kill_all_applications

    def start() -> None:
        task = asyncio.get_event_loop().create_task(begin(), name="begin")
        task.add_done_callback(_log_failure)

    def stop(server: Any) -> Any:
        task = asyncio.ensure_future(aclose())
        task.add_done_callback(_log_failure)
        return Deferred.fromFuture(task).addBoth(lambda _: cancel_applications(server))

    def server_close(protocol: Any, code: int | None = None) -> None:
        # Autobahn lets applications send 1000 and 3000 to 4999 only; 1012 is what tells a client to come back.
        if code == consumers.RESTART:
            protocol.sendCloseFrame(code=code, isReply=False)
        else:
            close(protocol, code)

    def run_with_our_limit(server: Any) -> None:
        # Daphne's own limit is 1 MiB; what is too large is to be answered, not cut off.
        largest = settings.SOCKET["MAX_MESSAGE"]
        server.websocket_max_message_size = max(server.websocket_max_message_size, largest)
        server.websocket_max_frame_size = max(server.websocket_max_frame_size, largest)
        run(server)

    run = Server.run
    Server.run = run_with_our_limit
    close = WebSocketProtocol.serverClose
    WebSocketProtocol.serverClose = server_close

    # A trigger of our own would run beside Daphne's, too late for the sockets: it takes the place of Daphne's.
    Server.kill_all_applications = stop
    reactor.callWhenRunning(start)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("A step of starting or stopping this process failed", exc_info=error)
