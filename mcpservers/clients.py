"""Opens an MCP client for a target: which transport, which protocol era, in which order, and what to remember.

A remembered era saves the probe that older servers may leave unanswered for ten seconds; it is probed anew when it
fails, when the definition changed, and once a day.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import httpx2
from django.conf import settings
from mcp import Client, MCPError
from mcp.client.session import ClientRequestContext, ClientSession, ElicitationFnT
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    ElicitCompleteNotification,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    Implementation,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from chatui.errors import ChatUIError
from mcpservers.causes import leaf
from mcpservers.leanhttp import LeanClient
from mcpservers.live_questions import RefusedError
from mcpservers.models import Transport
from mcpservers.scope import Scope
from mcpservers.serverlog import ServerLog, path_of
from mcpservers.sessionhttp import CallNote, SessionTransport
from mcpservers.sse import SSETransport
from mcpservers.stdio import StdioTransport
from mcpservers.transports import ConnectionTarget

logger = logging.getLogger(__name__)

REMEMBER_SECONDS = 24 * 3600
RELISTEN_SECONDS = 60.0
FALLBACK_SECONDS = 5.0  # for SSE to name its endpoint where it is not known that SSE is spoken
_OTHER_SECONDS = 30.0  # for what has no deadline of its own: writing a request, waiting for a free socket

try:
    VERSION = version("chatui")
except PackageNotFoundError:  # a checkout that was not installed
    VERSION = "0"

OnToolsChanged = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Ears:
    """Who hears what a server says by itself: its tools changed, it asks a person (see `LiveQuestions.asked`), what
    it asked to be opened has been dealt with.
    """

    tools_changed: OnToolsChanged
    asked: Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]] | None = None
    completed: Callable[[str], Awaitable[None]] | None = None


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
async def opened(target: ConnectionTarget, *, attempts: Attempts, ears: Ears) -> AsyncGenerator[OpenClient]:
    """The client for `target`, entered and left in the task that runs this. It has no deadline of its own.

    Raises the failure of the first attempt when every one failed; `attempts` tells the rest.
    """
    async with AsyncExitStack() as stack:
        opened = await _first(target, stack, attempts, ears)
        yield opened


async def _first(target: ConnectionTarget, stack: AsyncExitStack, attempts: Attempts, ears: Ears) -> OpenClient:
    for transport, mode in _plan(target):
        if attempts.failures and not _worth_trying(transport, mode, attempts):
            continue
        try:
            attempt = _attempt(target, transport, mode, attempts, ears)
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
    target: ConnectionTarget, transport: Transport, mode: str, attempts: Attempts, ears: Ears
) -> AsyncGenerator[OpenClient]:
    async with AsyncExitStack() as stack:
        http: SessionTransport | None = None
        log: ServerLog | None = None
        lost = asyncio.Event()
        limit = settings.MCP["MAX_MESSAGE"]
        resolved = await _resolved(target)
        streams: Any
        if transport is Transport.STDIO:
            log = ServerLog(path_of(target.server_id))
            attempts.stdio = streams = StdioTransport(
                target.command,
                resolved["args"],
                dict(resolved["env"]),
                cwd=str(settings.BASE_DIR),
                log=log,
                max_line=limit,
            )
            lost = streams.lost
        else:
            http = SessionTransport(target, max_bytes=limit)
            attempts.note = http.last
            http_client = await stack.enter_async_context(_http_client(target, resolved["headers"], http))
            if transport is Transport.SSE:
                patience = FALLBACK_SECONDS if target.transport is Transport.HTTP else None
                streams = SSETransport(resolved["url"], http_client, max_event=limit, patience=patience)
                lost = streams.lost
            else:
                streams = streamable_http_client(resolved["url"], http_client=http_client, max_sse_event_size=limit)
        try:
            client = await stack.enter_async_context(_mcp_client(streams, mode, ears, target.scope))
        finally:
            if http is not None:
                # Probing goes on after a refusal, and what comes next may be refused for a reason that explains less.
                attempts.note = http.unauthorized or http.last
        if http is not None:
            http.established = True
        async with _hearing_of_tools(client, ears.tools_changed):
            yield OpenClient(client, transport, lost, _era(target, transport, client), log)


async def _resolved(target: ConnectionTarget) -> dict[str, Any]:
    """`url`, `headers`, `args` and `env` with the values that tokens have now, which are then no longer to be shown."""
    if target.late is None:
        return {"url": target.url, "headers": target.headers, "args": target.args, "env": target.env}
    now = await target.late.values()
    target.sends(*now.values())
    return target.late.resolve(now)


def _http_client(
    target: ConnectionTarget, resolved: Iterable[tuple[str, str]], transport: SessionTransport
) -> httpx2.AsyncClient:
    """A client of this connection alone: a shared one would carry one user's cookies to another."""
    headers = [(b"user-agent", f"chatui/{VERSION}".encode())]
    headers += [(name.encode("ascii"), value.encode("latin-1")) for name, value in resolved]
    # Reading has no time limit of its own: each request has a deadline, and an event stream may be silent for long.
    timeout = httpx2.Timeout(_OTHER_SECONDS, connect=target.connect_timeout, read=None)
    return LeanClient(transport, headers=headers, timeout=timeout)


def _mcp_client(streams: Any, mode: str, ears: Ears, scope: Scope) -> Client:
    async def on_message(message: object) -> None:
        match message:
            case ToolListChangedNotification():
                await ears.tools_changed()
            case ElicitCompleteNotification(params=params) if ears.completed is not None:
                await ears.completed(params.elicitation_id)

    client = _Client(
        streams,
        mode=mode,
        client_info=Implementation(name="chatui", version=VERSION),
        message_handler=on_message,
        cache=None,
    )
    client.asked, client.advertises = _asking(ears), scope is not Scope.APP
    return client


class _Client(Client):
    """Hears questions on every session, and announces that it answers them where they can be told apart.

    mcp 2.3.0 announces whatever it has a callback for. In the stateless era each request announces for itself, see
    `Connection`.
    """

    asked: ElicitationFnT | None = None
    advertises = False

    async def _build_session(self, exit_stack: AsyncExitStack) -> ClientSession:
        session = await super()._build_session(exit_stack)
        if self.asked is not None:
            build = session._build_capabilities
            session._elicitation_callback = self.asked
            if not self.advertises:
                session._build_capabilities = lambda version: build(version).model_copy(update={"elicitation": None})  # type: ignore[method-assign]  # the one place that decides
        return session


def _asking(ears: Ears) -> ElicitationFnT | None:
    hear = ears.asked
    if hear is None:
        return None

    async def asked(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        sent: dict[str, Any] = {"mode": params.mode, "message": params.message}
        if isinstance(params, ElicitRequestFormParams):
            sent["requestedSchema"] = params.requested_schema
        else:
            sent |= {"url": params.url, "elicitationId": params.elicitation_id}
        try:
            return ElicitResult.model_validate(await hear(sent))
        except RefusedError as refusal:
            return ErrorData(code=INVALID_REQUEST, message=str(refusal))
        except Exception:  # boundary: an exception here would end the session of everybody who uses it
            logger.exception("A question of an MCP server could not be asked.")
            return ErrorData(code=INTERNAL_ERROR, message="The question could not be asked.")

    return asked


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
