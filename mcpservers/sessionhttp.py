"""HTTP under one MCP connection: what the SDK's transport gets wrong in a long-lived server is set right here.

mcp 2.3.0 ends the whole connection when one POST fails, lets a hung server block its writer, loses HTTP status and
`Retry-After`, and reconnects an optional stream for ever. Each remedy is one method below.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2

from chatui.errors import ChatUIError
from mcpservers.errors import NotReadyError, ServerUnavailableError, SignInRequiredError
from mcpservers.mending import MendedBody, MendedEvents
from mcpservers.oauth.proving import ProvingTransport
from mcpservers.signing import Signer

if TYPE_CHECKING:
    from mcpservers.transports import ConnectionTarget

logger = logging.getLogger(__name__)
NOTIFY_SECONDS = 5.0  # for a notification to be answered
DELIVER_SECONDS = 1.0  # for cancellations to leave before the connection is closed
DELETE_SECONDS = 3.0  # ending a session is a courtesy
STREAMS_PER_MINUTE = 3  # GETs of the optional stream of a session that keeps ending
MESSAGE = "message"  # a request's extension: the JSON-RPC message that its body is
LOST = -32000  # the SDK's own code for a connection that ended (CONNECTION_CLOSED)


@dataclass
class CallNote:
    """What HTTP said about one request. `sent` is False only while the request certainly never left us.

    `refusal` is why it was not sent, or not taken, though the connection is good: there is no token for it.
    """

    sent: bool = False
    status: int | None = None
    retry_after: str = ""
    challenge: str = ""  # WWW-Authenticate
    error: Exception | None = None
    refusal: ChatUIError | None = None


# Each POST runs in the context of the task that made the request, so a note reaches the transport this way.
call_note: ContextVar[CallNote | None] = ContextVar("call_note", default=None)

_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, ChatUIError)


class SessionTransport(ProvingTransport):
    """The guarded transport of one MCP connection, which signs what it sends.

    Once `established`, a request that fails on the network fails alone: the SDK is handed a JSON-RPC error instead
    of an exception, and `CallNote.error` says what happened.
    """

    def __init__(self, target: ConnectionTarget, *, max_bytes: int) -> None:
        super().__init__(extra=target.allowances, max_bytes=max_bytes, connections=1000)
        self.established = False
        self.last = CallNote()  # of the request before, for a connect that fails
        self.unauthorized: CallNote | None = None  # of the first that was answered with HTTP 401
        self._signer = Signer(target)
        self._send = super().handle_async_request
        self._deliveries: set[asyncio.Task[None]] = set()
        self._streams: deque[float] = deque(maxlen=STREAMS_PER_MINUTE)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        match request.method:
            case "POST":
                return await self._post(request)
            case "GET" if self.established:
                return await self._stream(request)
            case "DELETE":
                async with asyncio.timeout(DELETE_SECONDS):
                    return await self._signer.send_once(request, self._send)
        return await self._noted(request, self.last)

    async def _post(self, request: httpx2.Request) -> httpx2.Response:
        message = _message(request)
        if "id" not in message:
            return await self._notify(request, str(message.get("method")))
        note = call_note.get() or CallNote()
        self.last = note
        try:
            response = await self._noted(request, note)
        except (httpx2.TransportError, ChatUIError) as error:
            note.error, note.sent = error, not isinstance(error, _NOT_SENT)
            if not self.established:
                raise
            return _failed(message["id"], error)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        if response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = MendedEvents(response.stream, limit=self._max_bytes, request_id=message["id"])
        else:
            response.stream = MendedBody(_Body(response.stream, note))
        return response

    async def _noted(self, request: httpx2.Request, note: CallNote) -> httpx2.Response:
        async def send(request: httpx2.Request) -> httpx2.Response:
            note.sent = True
            response = await self._send(request)
            note.status = response.status_code
            if note.status >= 400:
                note.retry_after = response.headers.get("retry-after", "")
                note.challenge = response.headers.get("www-authenticate", "")
            if note.status == 401 and self.unauthorized is None:
                self.unauthorized = note
            return response

        try:
            return await self._signer.send(request, send)
        except ChatUIError as error:
            if isinstance(error, SignInRequiredError | ServerUnavailableError | NotReadyError):
                note.refusal = error
            raise

    async def _notify(self, request: httpx2.Request, method: str) -> httpx2.Response:
        """Fire and forget: neither its failure nor a server that does not answer it costs the connection.

        A cancellation is not even waited for: the SDK's only writer would wait with it, and every later call too.
        """
        delivery = asyncio.create_task(self._deliver(request), name=f"mcp-{method}")
        self._deliveries.add(delivery)
        delivery.add_done_callback(self._deliveries.discard)
        if method != "notifications/cancelled":
            await asyncio.wait({delivery}, timeout=NOTIFY_SECONDS)
        return httpx2.Response(202, request=request)

    async def _deliver(self, request: httpx2.Request) -> None:
        try:
            async with asyncio.timeout(NOTIFY_SECONDS):
                response = await self._signer.send(request, self._send)
                await response.aclose()
        except (TimeoutError, httpx2.TransportError, ChatUIError) as error:
            logger.info("A notification did not reach an MCP server: %s", type(error).__name__)

    async def aclose(self) -> None:
        deliveries = set(self._deliveries)
        if deliveries:
            await asyncio.wait(deliveries, timeout=DELIVER_SECONDS)
            for delivery in deliveries:
                delivery.cancel()
            await asyncio.wait(deliveries, timeout=DELIVER_SECONDS)  # each closes its socket before the pool goes
        await super().aclose()

    async def _stream(self, request: httpx2.Request) -> httpx2.Response:
        """The optional GET stream of a session: a server that keeps ending it is taken at its word."""
        now = time.monotonic()
        if len(self._streams) == STREAMS_PER_MINUTE and now - self._streams[0] < 60:
            return httpx2.Response(405, request=request)
        self._streams.append(now)
        try:
            response = await self._signer.send(request, self._send)
        except (SignInRequiredError, ServerUnavailableError, NotReadyError):
            return httpx2.Response(405, request=request)  # calls say what is wrong; the stream is optional
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = MendedEvents(response.stream, limit=self._max_bytes)
        return response


class _Body(httpx2.AsyncByteStream):
    """A body whose breaking off fails the one request (`StreamError`) instead of the connection."""

    def __init__(self, inner: httpx2.AsyncByteStream, note: CallNote) -> None:
        self._inner, self._note = inner, note

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
                yield chunk
        except httpx2.TransportError as error:
            self._note.error = error
            raise httpx2.StreamError(f"the answer broke off: {error}") from error

    async def aclose(self) -> None:
        await self._inner.aclose()


def _message(request: httpx2.Request) -> dict[str, Any]:
    """The JSON-RPC message of a POST; without `id` it is a notification."""
    value = request.extensions.get(MESSAGE)
    assert isinstance(value, dict)
    return value


def _failed(request_id: object, error: Exception) -> httpx2.Response:
    body = {"jsonrpc": "2.0", "id": request_id, "error": {"code": LOST, "message": str(error) or type(error).__name__}}
    return httpx2.Response(200, json=body)
