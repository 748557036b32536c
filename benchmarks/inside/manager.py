"""The connection manager: many calls at once on one warm connection, and many users' idle connections."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import psutil

from accounts.actors import Actor
from benchmarks import direct
from benchmarks.figures import percentile
from benchmarks.inside.rows import somebody
from chatui.rows import in_rows
from mcpservers import connections
from mcpservers.calls import call_tool
from mcpservers.connections import ConnectionManager
from mcpservers.models import MCPServer
from mcpservers.transports import ConnectionTarget, target_of

AT_ONCE = 50
ROUNDS = 12
HELD = 500
PARAMETERS = {"name": "echo", "arguments": {"text": "hello"}}


async def _progress(done: float, total: float | None, message: str | None) -> None:
    pass


async def _per_second(work: Callable[[], Awaitable[Any]]) -> float:
    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return AT_ONCE / (time.perf_counter() - began)


async def _at_once(url: str, actor: Actor, server: MCPServer) -> dict[str, float]:
    """Calls per second, the upper quartile of short rounds in turn."""
    target = target_of(server, actor, {}, allowances=())

    async def ours() -> None:
        async with connections.manager().borrow(target) as connection:
            answer = await connection.request_raw("tools/call", PARAMETERS)
        assert answer["content"][0]["text"] == "hello"

    async def door() -> None:
        outcome = await call_tool(actor, server.pk, "echo", {"text": "hello"}, turn_id=None, progress=_progress)
        assert outcome.text == "hello", outcome

    rounds: dict[str, list[float]] = {"ours": [], "door": [], "bare": []}
    async with direct.mcp_client(url) as client:

        async def bare() -> None:
            await direct.echoed(client, "hello")

        for work in (ours, door, bare):
            await _per_second(work)
        for _ in range(ROUNDS):
            for name, work in (("ours", ours), ("door", door), ("bare", bare)):
                rounds[name].append(await _per_second(work))
    return {name: percentile(found, 0.75) for name, found in rounds.items()}


async def _held(actor: Actor, server: MCPServer) -> dict[str, float]:
    """What so many users' connections cost while nobody uses them, and how long ending them all holds up the loop."""
    server.headers = {"X-User": "{{user.id}}"}
    manager = ConnectionManager()
    slots = asyncio.Semaphore(16)

    async def opened(target: ConnectionTarget) -> None:
        async with slots, manager.borrow(target):
            pass

    def targets(count: int) -> list[ConnectionTarget]:
        return [target_of(server, replace(actor, user_id=uuid4()), {}) for _ in range(count)]

    await asyncio.gather(*(opened(target) for target in targets(20)))  # what is allocated once
    here = psutil.Process()
    before, began = here.memory_info().rss, time.perf_counter()
    await asyncio.gather(*(opened(target) for target in targets(HELD - 20)))
    opening = (time.perf_counter() - began) / (HELD - 20) * 1000
    kilobytes = (here.memory_info().rss - before) / (HELD - 20) / 1024
    cpu, began = time.process_time(), time.perf_counter()
    await asyncio.sleep(2)
    idle = (time.process_time() - cpu) / (time.perf_counter() - began)
    held = len(manager.list_connections())
    timers = list(manager._timers.values())
    began = time.perf_counter()
    for timer in timers:  # as if every one were due at the same moment
        timer._run()
        timer.cancel()
    reaping = (time.perf_counter() - began) * 1000
    began = time.perf_counter()
    await manager.aclose()
    closing = time.perf_counter() - began
    return {
        "held": held,
        "kilobytes": kilobytes,
        "opening_ms": opening,
        "idle_cpu": idle,
        "reaping_ms": reaping,
        "closing_s": closing,
    }


async def _measured(url: str) -> dict[str, float]:
    actor, _ = await in_rows(somebody)
    server = await in_rows(MCPServer.objects.as_system().get, slug="echo")
    found = await _at_once(url, actor, server)
    await connections.aclose()
    return found | await _held(actor, server)


def measure(url: str) -> dict[str, float]:
    """Calls per second: `ours` (borrow and request), `door` (`call_tool`), `bare`. And of `held` idle connections:
    `kilobytes` and `opening_ms` each, `idle_cpu` (share of a core), `reaping_ms` and `closing_s` of all.
    """
    return asyncio.run(_measured(url))
