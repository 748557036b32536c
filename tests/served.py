"""The product in this process behind a real ASGI server on loopback, so that real clients can be pointed at it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from django.core.asgi import get_asgi_application


@asynccontextmanager
async def served(application: Any = None) -> AsyncIterator[str]:
    """The base address of a server that shares this test's event loop, database and supervisor.

    It serves our HTTP application if no other is given.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    application = application or get_asgi_application()
    config = uvicorn.Config(application, lifespan="off", ws="none", log_level="warning", access_log=False)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="uvicorn")
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        await task
