"""The HTTP+SSE transport of MCP 2024-11-05, deprecated and still met: a GET stream for answers, POSTs for requests.

Ours rather than the SDK's because that one ends an event at 1 MiB and the connection with the first POST that fails.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from contextlib import suppress
from typing import Any
from urllib.parse import urljoin

import anyio
import httpx2
from mcp.shared._context_streams import ContextReceiveStream, ContextSendStream, create_context_streams
from mcp.shared._httpx_utils import request_within_origin, sse_within_origin
from mcp.shared.message import SessionMessage
from mcp.types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCRequest, jsonrpc_message_adapter
from pydantic import ValidationError

from chatui.errors import ChatUIError
from chatui.netguard import origin
from mcpservers.errors import ServerUnavailableError
from mcpservers.mending import mended

logger = logging.getLogger(__name__)

Incoming = SessionMessage | Exception
Streams = tuple[ContextReceiveStream[Incoming], ContextSendStream[SessionMessage]]


class SSETransport:
    """An async context manager that opens the stream and yields the SDK's pair of streams.

    `lost` is set when the stream ended by itself. Raises httpx2's errors, `ServerUnavailableError` for a stream
    without a usable endpoint.
    """

    def __init__(self, url: str, client: httpx2.AsyncClient, *, max_event: int, patience: float | None) -> None:
        self._url, self._client, self._max_event = url, client, max_event
        self._patience = patience  # seconds for the endpoint to be named
        self.lost = asyncio.Event()
        self._posts: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Streams:
        self._to_session, read = create_context_streams[Incoming](0)
        write, self._from_session = create_context_streams[SessionMessage](0)
        self._streams = (read, write, self._to_session, self._from_session)
        endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read(endpoint), name="mcp-sse-read")
        self._writer: asyncio.Task[None] | None = None
        first: set[asyncio.Future[Any]] = {endpoint, self._reader}
        try:
            await asyncio.wait(first, timeout=self._patience, return_when=asyncio.FIRST_COMPLETED)
            if not endpoint.done():
                if self._reader.done():
                    await self._reader
                raise _unfit("its event stream ended without naming an endpoint")
        except BaseException:
            await self.__aexit__()
            raise
        self._writer = asyncio.create_task(self._write(endpoint.result()), name="mcp-sse-write")
        return read, write

    async def __aexit__(self, *_: object) -> None:
        tasks = {task for task in (self._reader, self._writer, *self._posts) if task is not None}
        for task in tasks:
            task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait(tasks)
        for task in tasks:
            task.cancelled() or task.exception()  # seen: whoever waited was told by the closed streams
        for stream in self._streams:
            stream.close()

    async def _read(self, endpoint: asyncio.Future[str]) -> None:
        try:
            async with sse_within_origin(self._client, self._url, max_event_size=self._max_event) as source:
                source.response.raise_for_status()
                async for event in source:
                    if event.event == "endpoint" and not endpoint.done():
                        endpoint.set_result(self._endpoint(event.data))
                    elif event.event == "message" and event.data:
                        await self._receive(event.data.encode())
        finally:
            self.lost.set()
            self._to_session.close()

    def _endpoint(self, data: str) -> str:
        try:
            url = urljoin(self._url, data.strip())
            same = origin(httpx2.URL(url)) == origin(httpx2.URL(self._url))
        except (ValueError, httpx2.InvalidURL):
            raise _unfit("its event stream names an endpoint that is no address") from None
        if not same:
            raise _unfit("its event stream names an endpoint of another origin")
        return url

    async def _receive(self, data: bytes) -> None:
        try:
            message = jsonrpc_message_adapter.validate_json(mended(data), by_name=False)
        except ValidationError:
            logger.info("An event of an MCP server is not JSON-RPC (%d bytes).", len(data))
            return
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._to_session.send(SessionMessage(message))

    async def _write(self, url: str) -> None:
        async for message in self._from_session:
            context = self._from_session.last_context or contextvars.copy_context()
            post = asyncio.create_task(self._post(url, message), context=context)
            self._posts.add(post)
            post.add_done_callback(self._posts.discard)
            if not isinstance(message.message, JSONRPCRequest):
                await asyncio.wait({post})  # what follows a notification may rely on it

    async def _post(self, url: str, message: SessionMessage) -> None:
        body = message.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
        request = message.message
        try:
            response = await request_within_origin(self._client, "POST", url, json=body)
        except (httpx2.HTTPError, ChatUIError) as error:  # else the session would wait for an answer
            if isinstance(request, JSONRPCRequest):
                await self._fail(request, str(error) or type(error).__name__)
            return
        if not isinstance(request, JSONRPCRequest):
            return
        if response.headers.get("content-type", "").startswith("application/json") and b'"jsonrpc"' in response.content:
            await self._receive(response.content)
        elif response.status_code >= 300:
            await self._fail(request, "Server returned an error response")

    async def _fail(self, request: JSONRPCRequest, why: str) -> None:
        failure = JSONRPCError(jsonrpc="2.0", id=request.id, error=ErrorData(code=INTERNAL_ERROR, message=why))
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._to_session.send(SessionMessage(failure))


def _unfit(words: str) -> ServerUnavailableError:
    return ServerUnavailableError(words, public_message=words)
