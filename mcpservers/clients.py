"""Opens an MCP client for a target: which transport, which protocol era, in which order, and what to remember.

A remembered era saves the probe that older servers may leave unanswered for ten seconds; it is probed anew when it
fails, when the definition changed, and once a day.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import httpx2
from django.conf import settings
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.types import Implementation, ToolListChangedNotification
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from chatui.errors import ChatUIError
from mcpservers.causes import leaf
from mcpservers.models import Transport
from mcpservers.serverlog import ServerLog, path_of
from mcpservers.sessionhttp import CallNote, SessionTransport
from mcpservers.sse import SSETransport
from mcpservers.stdio import StdioTransport
from mcpservers.transports import ConnectionTarget

REMEMBER_SECONDS = 24 * 3600
RELISTEN_SECONDS = 60.0
FALLBACK_SECONDS = 5.0  # for SSE to name its endpoint where it is not known that SSE is spoken
_OTHER_SECONDS = 30.0  # for what has no deadline of its own: writing a request, waiting for a free socket

try:
    VERSION = version("chatui")
except PackageNotFoundError:  # a checkout that was not installed
    VERSION = "0"

OnToolsChanged = Callable[[], Awaitable[None]]


@dataclass
class OpenClient:
    """An entered client. `lost` is set when its transport ended by itself; `era` is what to remember."""

    client: Client
    transport: Transport
    lost: asyncio.Event
    era: dict[str, Any]
    log: ServerLog | None = None


@dataclass
class Attempts:
    """How connecting went: why each attempt failed, and what HTTP and the process said last."""

    failures: list[BaseException] = field(default_factory=list)
    note: CallNote = field(default_factory=CallNote)
    stdio: StdioTransport | None = None
    last: Transport | None = None


@asynccontextmanager
async def opened(
    target: ConnectionTarget, *, attempts: Attempts, on_tools_changed: OnToolsChanged
) -> AsyncGenerator[OpenClient]:
    """The client for `target`, entered and left in the task that runs this. It has no deadline of its own.

    Raises the failure of the first attempt when every one failed; `attempts` tells the rest.
    """
    async with AsyncExitStack() as stack:
        opened = await _first(target, stack, attempts, on_tools_changed)
        yield opened


async def _first(
    target: ConnectionTarget, stack: AsyncExitStack, attempts: Attempts, on_tools_changed: OnToolsChanged
) -> OpenClient:
    for transport, mode in _plan(target):
        if attempts.failures and not _worth_trying(transport, mode, attempts):
            continue
        try:
            attempt = _attempt(target, transport, mode, attempts, on_tools_changed)
            return await stack.enter_async_context(attempt)
        except Exception as error:  # boundary: whatever a foreign server provokes is a failed attempt
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError from error  # a task group that fails meanwhile swallows it
            attempts.failures.append(leaf(error))
            attempts.last = transport
    raise attempts.failures[0]


def _plan(target: ConnectionTarget) -> list[tuple[Transport, str]]:
    """Transports and modes to try, in order. What was remembered of this very definition comes first."""
    kinds = [target.transport]
    if target.transport is Transport.HTTP:
        kinds = [Transport.STREAMABLE_HTTP, Transport.SSE]
    era = target.era
    fresh = era.get("definition") == target.definition_hash and time.time() - era.get("at", 0) < REMEMBER_SECONDS
    if fresh and era.get("transport") in kinds:
        kinds.sort(key=lambda kind: kind != era["transport"])
    plan: list[tuple[Transport, str]] = []
    for kind in kinds:
        modes = ["auto", "legacy"] if kind is not Transport.SSE else ["legacy"]
        if fresh and (era.get("transport"), era.get("mode")) == (kind, "legacy"):
            modes.reverse()
        plan += [(kind, mode) for mode in modes]
    return plan


def _worth_trying(transport: Transport, mode: str, attempts: Attempts) -> bool:
    """Whether this could work where the attempt before failed: not without a connection, a process, a permission."""
    error, status = attempts.failures[-1], attempts.note.status or 0
    if isinstance(error, OSError | ChatUIError | httpx2.ConnectError | httpx2.ConnectTimeout):
        return False
    # Some older servers end the connection, or themselves, at a request that they do not know.
    broke_off = isinstance(error, httpx2.TransportError) and not isinstance(error, httpx2.SSEError)
    if transport is Transport.STDIO:
        broke_off = attempts.stdio is not None and attempts.stdio.lost.is_set()
    if transport is attempts.last:
        return mode == "auto" or broke_off  # `auto` has tried the handshake of the session era too
    return not broke_off and status not in (401, 403, 429) and status < 500


@asynccontextmanager
async def _attempt(
    target: ConnectionTarget, transport: Transport, mode: str, attempts: Attempts, on_tools_changed: OnToolsChanged
) -> AsyncGenerator[OpenClient]:
    async with AsyncExitStack() as stack:
        http: SessionTransport | None = None
        log: ServerLog | None = None
        lost = asyncio.Event()
        limit = settings.MCP["MAX_MESSAGE"]
        streams: Any
        if transport is Transport.STDIO:
            log = ServerLog(path_of(target.server_id))
            attempts.stdio = streams = StdioTransport(
                target.command,
                target.args,
                dict(target.env),
                cwd=str(settings.BASE_DIR),
                log=log,
                max_line=limit,
            )
            lost = streams.lost
        else:
            http = SessionTransport(extra=target.allowances, max_bytes=limit)
            attempts.note = http.last
            http_client = await stack.enter_async_context(_http_client(target, http))
            if transport is Transport.SSE:
                patience = FALLBACK_SECONDS if target.transport is Transport.HTTP else None
                streams = SSETransport(target.url, http_client, max_event=limit, patience=patience)
                lost = streams.lost
            else:
                streams = streamable_http_client(target.url, http_client=http_client, max_sse_event_size=limit)
        try:
            client = await stack.enter_async_context(_mcp_client(streams, mode, on_tools_changed))
        finally:
            if http is not None:
                attempts.note = http.last
        if http is not None:
            http.established = True
        async with _hearing_of_tools(client, on_tools_changed):
            yield OpenClient(client, transport, lost, _era(target, transport, client), log)


def _http_client(target: ConnectionTarget, transport: SessionTransport) -> httpx2.AsyncClient:
    """A client of this connection alone: a shared one would carry one user's cookies to another."""
    headers = [(b"user-agent", f"chatui/{VERSION}".encode())]
    headers += [(name.encode("ascii"), value.encode("latin-1")) for name, value in target.headers]
    # Reading has no time limit of its own: each request has a deadline, and an event stream may be silent for long.
    timeout = httpx2.Timeout(_OTHER_SECONDS, connect=target.connect_timeout, read=None)
    return httpx2.AsyncClient(transport=transport, headers=headers, timeout=timeout, trust_env=False)


def _mcp_client(streams: Any, mode: str, on_tools_changed: OnToolsChanged) -> Client:
    async def on_message(message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            await on_tools_changed()

    return Client(
        streams,
        mode=mode,
        client_info=Implementation(name="chatui", version=VERSION),
        message_handler=on_message,
        cache=None,
    )


def _era(target: ConnectionTarget, transport: Transport, client: Client) -> dict[str, Any]:
    discover = client.session.discover_result
    return {
        "transport": str(transport),
        "mode": "modern" if client.protocol_version in MODERN_PROTOCOL_VERSIONS else "legacy",
        "protocol_version": client.protocol_version,
        "discover": discover and discover.model_dump(by_alias=True, mode="json", exclude_none=True),
        "definition": target.definition_hash,
        "at": int(time.time()),
    }


@asynccontextmanager
async def _hearing_of_tools(client: Client, on_tools_changed: OnToolsChanged) -> AsyncGenerator[None]:
    """Hold the stream on which a server of the stateless era tells that its tools changed, if it offers one."""
    tools = client.server_capabilities.tools
    if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
        yield
        return
    listening = asyncio.create_task(_listen(client, on_tools_changed), name="mcp-listen")
    try:
        yield
    finally:
        listening.cancel()
        await asyncio.wait({listening})


async def _listen(client: Client, on_tools_changed: OnToolsChanged) -> None:
    """Listen until the server refuses. Nothing is replayed, so a stream that is opened again counts as a change."""
    while True:
        try:
            async with client.listen(tools_list_changed=True) as stream:
                async for _ in stream:
                    pass  # the client's message handler hears the same
        except SubscriptionLost:
            pass
        except MCPError:
            return  # it does not listen after all; the catalogue's own refresh remains
        await asyncio.sleep(RELISTEN_SECONDS)
        await on_tools_changed()
