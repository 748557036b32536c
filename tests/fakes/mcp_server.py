"""An MCP server over real HTTP in the test's own loop that behaves well until it is told otherwise.

    async with FakeMCPServer() as server:               # session era; era="modern" for the stateless one
        server.on("tools/call", hang)                   # or any coroutine function of an `Exchange`
        target = target_for(server.url)

It records every request, session, cancellation and DELETE, and `await server.heard(...)` waits for one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self
from uuid import uuid4

JSON = dict[str, Any]
LEGACY, MODERN = "2025-11-25", "2026-07-28"
ECHO: JSON = {
    "name": "echo",
    "title": "Echo",
    "description": "Say it again.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
    "annotations": {"readOnlyHint": True},
}
WRITE: JSON = {"name": "write", "description": "Change something.", "inputSchema": {"type": "object"}}


@dataclass
class Exchange:
    """One HTTP request and the means to answer it. `message` is the JSON-RPC of a POST, else empty."""

    server: FakeMCPServer
    verb: str
    path: str
    headers: dict[str, str]
    message: JSON
    writer: asyncio.StreamWriter
    streaming: bool = False
    answered: bool = False
    body: bytes = b""

    @property
    def method(self) -> str:
        return str(self.message.get("method", ""))

    @property
    def params(self) -> JSON:
        return self.message.get("params") or {}

    @property
    def session(self) -> str:
        return self.headers.get("mcp-session-id", "")

    async def respond(
        self, status: int, body: bytes | str = b"", content_type: str = "text/plain", **headers: str
    ) -> None:
        """A whole response. Header names are written with underscores."""
        data = body.encode() if isinstance(body, str) else body
        lines = [f"HTTP/1.1 {status} Status", f"content-length: {len(data)}", f"content-type: {content_type}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + data)
        self.answered = True
        await self.writer.drain()

    async def send(self, message: JSON) -> None:
        """A JSON-RPC message: an event once `open_stream` was called, else the whole body."""
        if self.streaming:
            await self.send_event(json.dumps(message))
        else:
            begins = self.method == "initialize" and self.server.sessions
            headers = {"mcp_session_id": self.server.newest} if begins else {}
            await self.respond(200, json.dumps(message), "application/json", **headers)

    async def result(self, result: JSON) -> None:
        await self.send({"jsonrpc": "2.0", "id": self.message.get("id"), "result": result})

    async def error(self, code: int, message: str, data: Any = None) -> None:
        error: JSON = {"code": code, "message": message} | ({} if data is None else {"data": data})
        await self.send({"jsonrpc": "2.0", "id": self.message.get("id"), "error": error})

    async def open_stream(self) -> None:
        self.writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        self.streaming = self.answered = True
        await self.writer.drain()

    async def send_event(self, data: str, event: str = "message") -> None:
        text = f"event: {event}\n" + "".join(f"data: {line}\n" for line in data.split("\n")) + "\n"
        await self.chunk(text.encode())

    async def chunk(self, data: bytes) -> None:
        self.writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await self.writer.drain()

    async def end_stream(self) -> None:
        await self.chunk(b"")

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """A progress notification for this call, on its own stream, which it opens."""
        if not self.streaming:
            await self.open_stream()
        token = (self.params.get("_meta") or {}).get("progressToken")
        params = {"progressToken": token, "progress": progress, "total": total, "message": message}
        await self.send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})

    async def ask(self, params: JSON, method: str = "elicitation/create") -> JSON:
        """Ask the client during this call, as sessions do; its answer, whole, with `result` or `error`."""
        if not self.streaming:
            await self.open_stream()
        question = f"question-{uuid4().hex[:8]}"
        self.server.asked.append(question)
        await self.server.changed()
        await self.send({"jsonrpc": "2.0", "id": question, "method": method, "params": params})
        await self.server.until(lambda: question in self.server.answers)
        return self.server.answers[question]

    async def take_back(self, question: str) -> None:
        """Cancel a question."""
        params = {"requestId": question, "reason": "never mind"}
        await self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    def abort(self) -> None:
        """Reset the connection."""
        self.answered = True
        self.writer.transport.abort()


Handler = Callable[[Exchange], Awaitable[None]]


# --- Faults: handlers to be given to `FakeMCPServer.on` -----------------------------------------------------------


async def hang(exchange: Exchange) -> None:
    """Never answer; end when the client leaves or the server closes."""
    await exchange.server.closed.wait()


async def die(exchange: Exchange) -> None:
    """Reset the connection in mid-call."""
    exchange.abort()


async def html(exchange: Exchange) -> None:
    await exchange.respond(200, "<html><title>Sign in</title></html>", "text/html; charset=utf-8")


def status(code: int, body: str = "", **headers: str) -> Handler:
    async def answer(exchange: Exchange) -> None:
        await exchange.respond(code, body, **headers)

    return answer


def body(text: str | bytes, content_type: str = "application/json") -> Handler:
    """HTTP 200 with exactly these bytes; `{id}` in a text stands for the request's id."""

    async def answer(exchange: Exchange) -> None:
        data = text.replace("{id}", str(exchange.message.get("id"))) if isinstance(text, str) else text
        await exchange.respond(200, data, content_type)

    return answer


def big(size: int) -> Handler:
    """A tool result with a text of `size` characters."""

    async def answer(exchange: Exchange) -> None:
        await exchange.result({"content": [{"type": "text", "text": "x" * size}]})

    return answer


def after(event: asyncio.Event, then: Handler) -> Handler:
    """Wait for the test before answering."""

    async def answer(exchange: Exchange) -> None:
        await event.wait()
        await then(exchange)

    return answer


def once(first: Handler, then: Handler | None = None) -> Handler:
    """`first` for the first request, later ones as usual (or as `then`)."""
    used = False

    async def answer(exchange: Exchange) -> None:
        nonlocal used
        if used:
            await (then or exchange.server.usual)(exchange)
        else:
            used = True
            await first(exchange)

    return answer


@dataclass
class FakeMCPServer:
    """Streamable HTTP at `/mcp`, HTTP+SSE at `/sse`. Everything it heard is in its lists."""

    era: str = "legacy"  # "legacy" | "modern"
    version: str = LEGACY
    tools: list[JSON] = field(default_factory=lambda: [ECHO, WRITE])
    instructions: str = "Be kind."
    strict_version: bool = False  # HTTP 400 for another MCP-Protocol-Version than the negotiated one
    exchanges: list[Exchange] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)  # sessions that were ended, by DELETE or by the test
    cancelled: list[Any] = field(default_factory=list)  # request ids
    open_streams: dict[str, Exchange] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)  # ids of the questions that it asked the client
    answers: dict[str, JSON] = field(default_factory=dict)  # what the client said to them

    def __post_init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Future[None]] = set()
        self._kept: dict[int, bytes] = {}
        self.closed = asyncio.Event()
        self.connections = 0  # TCP connections ever made

    # --- What tests say to it ---------------------------------------------------------------------------------------

    def on(self, method: str, handler: Handler | None) -> None:
        """Answer a JSON-RPC method, or an HTTP verb (`GET`, `POST`, `DELETE`), this way; None: as usual again."""
        if handler is None:
            self._handlers.pop(method, None)
        else:
            self._handlers[method] = handler

    def count(self, method: str) -> int:
        return len(self.exchanges_of(method))

    def exchanges_of(self, method: str) -> list[Exchange]:
        return [exchange for exchange in self.exchanges if method in (exchange.method, exchange.verb)]

    async def heard(self, method: str, times: int = 1) -> Exchange:
        """Wait until a method or verb was heard so often; the last of them."""
        await self.until(lambda: self.count(method) >= times)
        return self.exchanges_of(method)[-1]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(condition)

    async def changed(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def notify(self, method: str, params: JSON | None = None, **extra: Any) -> None:
        """Send a message on every open GET or listen stream; `id=` makes it a request."""
        for exchange in self.open_streams.values():
            meta = (
                {"_meta": {"io.modelcontextprotocol/subscriptionId": exchange.message["id"]}}
                if exchange.message
                else {}
            )
            await exchange.send({"jsonrpc": "2.0", "method": method, "params": (params or {}) | meta} | extra)

    def forget_sessions(self) -> None:
        """As a restart does: every session is unknown from now on."""
        self.ended.update(self.sessions)

    @property
    def newest(self) -> str:
        return self.sessions[-1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def sse_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/sse"

    # --- HTTP -------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=64 * 2**20)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop listening and reset every connection, as a process that is killed."""
        self.closed.set()
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while not writer.is_closing():
                exchange = await self._read(reader, writer)
                await self._handle(exchange, reader)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Exchange:
        rest = await reader.readuntil(b"\r\n\r\n")
        head = (self._kept.pop(id(reader), b"") + rest).decode("latin-1").split("\r\n")
        verb, path, _ = head[0].split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        data = await reader.readexactly(int(headers.get("content-length", 0)))
        said = json.loads(data) if data and "json" in headers.get("content-type", "json") else {}
        return Exchange(self, verb, path, headers, said, writer, body=data)

    async def _handle(self, exchange: Exchange, reader: asyncio.StreamReader) -> None:
        """Answer, and notice when the client leaves meanwhile: that is how the stateless era cancels."""
        handler = self._handler(exchange)  # before the test hears of it and may say otherwise
        self.exchanges.append(exchange)
        await self.changed()
        answering = asyncio.ensure_future(handler(exchange))
        leaving = asyncio.ensure_future(self._left(reader))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                if "id" in exchange.message:
                    self.cancelled.append(exchange.message["id"])
                    await self.changed()
                raise ConnectionResetError
            answering.result()
            if exchange.streaming:
                await exchange.end_stream()
        finally:
            for task in (answering, leaving):
                task.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)

    async def _left(self, reader: asyncio.StreamReader) -> None:
        """Return when the client closed its side. The first byte of a next request is kept for `_read`."""
        data = await reader.read(1)
        if data:
            self._kept[id(reader)] = data
            await self.closed.wait()

    def _handler(self, exchange: Exchange) -> Handler:
        names = (exchange.method, exchange.verb)
        return next((self._handlers[name] for name in names if name in self._handlers), self.usual)

    # --- What it does when nothing is wrong -------------------------------------------------------------------------

    async def usual(self, exchange: Exchange) -> None:
        if exchange.path.startswith("/sse"):
            await self._sse_stream(exchange)
        elif exchange.path.startswith("/messages"):
            await self._sse_message(exchange)
        elif exchange.path.startswith("/.well-known/"):
            await exchange.respond(404)
        elif exchange.verb == "GET":
            await self._stream(exchange)
        elif exchange.verb == "DELETE":
            self.ended.add(exchange.session)
            await self.changed()
            await exchange.respond(200)
        else:
            await self._message(exchange)

    async def _message(self, exchange: Exchange) -> None:
        legacy = self.era == "legacy"
        if legacy and exchange.method not in ("initialize", "server/discover"):
            if exchange.session in self.ended or exchange.session not in self.sessions:
                await exchange.respond(404, "unknown session")
                return
            if self.strict_version and exchange.headers.get("mcp-protocol-version") != self.version:
                await exchange.respond(400, "wrong MCP-Protocol-Version")
                return
        if exchange.message.get("id") in self.asked and not exchange.method:
            self.answers[exchange.message["id"]] = exchange.message
            await self.changed()
            await exchange.respond(202)
            return
        if "id" not in exchange.message:
            await self._notified(exchange)
            await exchange.respond(202)
            return
        await self.reply(exchange)

    async def _notified(self, exchange: Exchange) -> None:
        if exchange.method == "notifications/cancelled":
            self.cancelled.append(exchange.params.get("requestId"))
            await self.changed()

    async def reply(self, exchange: Exchange) -> None:
        """The answer to a JSON-RPC request of either era."""
        info = {"name": "fake", "version": "1"}
        capabilities = {"tools": {"listChanged": True}}
        match exchange.method:
            case "initialize" if self.era == "legacy":
                self.sessions.append(uuid4().hex)
                await exchange.result(
                    {
                        "protocolVersion": self.version,
                        "capabilities": capabilities,
                        "serverInfo": info,
                        "instructions": self.instructions,
                    }
                )
            case "server/discover" if self.era == "modern":
                await exchange.result(
                    {
                        "resultType": "complete",
                        "ttlMs": 0,
                        "cacheScope": "private",
                        "supportedVersions": [MODERN],
                        "capabilities": capabilities,
                        "instructions": self.instructions,
                        "_meta": {"io.modelcontextprotocol/serverInfo": info},
                    }
                )
            case "tools/list":
                await exchange.result({"tools": self.tools})
            case "tools/call":
                await self._call(exchange)
            case "ping" if self.era == "legacy":
                await exchange.result({})
            case "subscriptions/listen" if self.era == "modern":
                await self._listen(exchange)
            case _:
                await exchange.error(-32601, "Method not found")

    async def _listen(self, exchange: Exchange) -> None:
        """The stateless era's stream of changes: `notify` reaches it like a session's GET stream."""
        meta = {"io.modelcontextprotocol/subscriptionId": exchange.message["id"]}
        await exchange.open_stream()
        acknowledged = {"_meta": meta, "notifications": exchange.params["notifications"]}
        method = "notifications/subscriptions/acknowledged"
        await exchange.send({"jsonrpc": "2.0", "method": method, "params": acknowledged})
        self.open_streams[str(exchange.message["id"])] = exchange
        await self.changed()
        await self.closed.wait()

    async def _call(self, exchange: Exchange) -> None:
        arguments = exchange.params.get("arguments") or {}
        text = str(arguments.get("text", "done"))
        await exchange.result({"content": [{"type": "text", "text": text}], "isError": False})

    async def _stream(self, exchange: Exchange) -> None:
        if self.era == "modern" or exchange.session in self.ended:
            await exchange.respond(405)
            return
        await exchange.open_stream()
        self.open_streams[exchange.session] = exchange
        await self.changed()
        await self.closed.wait()

    async def _sse_stream(self, exchange: Exchange) -> None:
        if exchange.verb != "GET":
            await exchange.respond(405, "use GET")
            return
        session = uuid4().hex
        self.sessions.append(session)
        await exchange.open_stream()
        self.open_streams[session] = exchange
        await exchange.send_event(f"/messages?session_id={session}", event="endpoint")
        await self.closed.wait()

    async def _sse_message(self, exchange: Exchange) -> None:
        stream = self.open_streams[exchange.path.rpartition("=")[2]]
        await exchange.respond(202)
        if "id" not in exchange.message:
            await self._notified(exchange)
            return
        answer = Exchange(
            self, "POST", exchange.path, exchange.headers, exchange.message, stream.writer, streaming=True
        )
        handler = self._handlers.get(f"sse {exchange.method}", self.reply)
        answering = asyncio.ensure_future(handler(answer))
        self._tasks.add(answering)
        answering.add_done_callback(self._tasks.discard)
