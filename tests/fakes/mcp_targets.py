"""Targets for tests that need no rows, and a manager that is closed behind them."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from accounts.actors import Actor
from accounts.models import Role
from mcpservers.connections import ConnectionManager
from mcpservers.models import MCPServer
from mcpservers.transports import ConnectionTarget, target_of

STDIO_FAKE = str(Path(__file__).with_name("mcp_stdio.py"))
ACME, GLOBEX = UUID(int=0xACE), UUID(int=0x610BE)


def actor(username: str = "bob", organization_id: UUID = ACME) -> Actor:
    return Actor(
        user_id=UUID(int=sum(username.encode())),
        organization_id=organization_id,
        role=Role.MEMBER,
        username=username,
        email=f"{username}@example.org",
        organization_slug="acme" if organization_id == ACME else "globex",
    )


def definition(url: str = "", **fields: Any) -> MCPServer:
    """An unsaved definition; `url` is that of a fake."""
    fields = {"slug": "fake", "title": "Fake", "transport": "http", "organization_id": ACME, "timeout": 60} | fields
    return MCPServer(url=url, connect_timeout=fields.pop("connect_timeout", 60), **fields)


def target(url: str = "", *, who: Actor | None = None, values: dict[str, str] | None = None, **fields: Any) -> Any:
    """The target of a definition made for this call alone."""
    return target_of(definition(url, **fields), who or actor(), values or {})


def stdio(*flags: str, **fields: Any) -> ConnectionTarget:
    """A target that runs the stdio fake with `flags`."""
    fields = {"transport": "stdio", "command": sys.executable, "args": [STDIO_FAKE, *flags]} | fields
    made: ConnectionTarget = target(**fields)
    return made


@asynccontextmanager
async def managed(**options: Any) -> AsyncIterator[ConnectionManager]:
    manager = ConnectionManager(**options)
    try:
        yield manager
    finally:
        await manager.aclose()


__all__ = ["ACME", "GLOBEX", "actor", "definition", "managed", "stdio", "target", "uuid4"]
