"""A fake MCP server before a house that knows of none, and that keeps nothing of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcpservers import catalogue, connections, entries
from tests.fakes.mcp_server import FakeMCPServer


@asynccontextmanager
async def served_anew(**options: Any) -> AsyncIterator[FakeMCPServer]:
    """A server with these options; lists in memory are forgotten before, and connections closed after."""
    entries.memory.clear()
    async with FakeMCPServer(**options) as server:
        yield server
        await catalogue.aclose()
        await connections.aclose()
