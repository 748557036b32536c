"""A tool call: through the product on a warm connection, with a bare warm client, with a client for each call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks import direct
from benchmarks.figures import percentile
from benchmarks.inside.rows import somebody
from chatui.rows import in_rows
from mcpservers import connections
from mcpservers.calls import call_tool
from mcpservers.models import MCPServer

ROUNDS = 40


async def _took(work: Callable[[], Awaitable[Any]], times: int) -> float:
    """Milliseconds of one of `times` in a row."""
    began = time.perf_counter()
    for _ in range(times):
        await work()
    return (time.perf_counter() - began) / times * 1000


async def _progress(done: float, total: float | None, message: str | None) -> None:
    pass


async def _measured(url: str) -> dict[str, float]:
    actor, _ = await in_rows(somebody)
    server = await in_rows(MCPServer.objects.as_system().get, slug="echo")

    async def ours() -> None:
        outcome = await call_tool(actor, server.pk, "echo", {"text": "hello"}, turn_id=None, progress=_progress)
        assert outcome.text == "hello", outcome

    async def connecting() -> None:
        async with direct.mcp_client(url) as client:
            await direct.echoed(client, "hello")

    rounds: dict[str, list[float]] = {"ours": [], "bare": [], "connecting": []}
    async with direct.mcp_client(url) as client:

        async def bare() -> None:
            await direct.echoed(client, "hello")

        for work in (ours, bare):
            await _took(work, 10)
        # Short rounds in turn, so that the three meet the same noise.
        for number in range(ROUNDS):
            rounds["ours"].append(await _took(ours, 5))
            rounds["bare"].append(await _took(bare, 5))
            if number % 8 == 0:
                rounds["connecting"].append(await _took(connecting, 2))
    await connections.aclose()
    return {name: percentile(took, 0.1) for name, took in rounds.items()}


def measure(url: str) -> dict[str, float]:
    """Milliseconds, the fastest tenth of many short rounds (noise only adds): `ours`, `bare`, `connecting`."""
    return asyncio.run(_measured(url))
