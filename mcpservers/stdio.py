"""The stdio transport: a local server as a child in its own process group, one JSON-RPC message a line.

Ours rather than the SDK's because a server's process must never survive its connection (its children neither), one
message has the same size limit as on any other transport, rubbish on standard output costs nothing, and standard
error is kept. MCP specification 2025-11-25, basic/transports and basic/lifecycle (shutdown).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp.types import INTERNAL_ERROR, PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError

from chatui.text import shorten
from mcpservers.mending import mended
from mcpservers.serverlog import ServerLog

logger = logging.getLogger(__name__)
EXIT_SECONDS = 1.0  # for a server to end by itself once its input is closed
TERMINATE_SECONDS = 1.0  # and once it was asked to by SIGTERM
KILL_SECONDS = 1.0  # for the loop to see what SIGKILL did
_CHUNK = 64 * 1024
_EDGE = 4 * 1024  # how much of a line that is too long is looked at for its id
_ID = rb'"id"\s*:\s*(-?\d+|"(?:[^"\\]|\\.)*")'
_FIRST_ID = re.compile(rb"^\s*\{[^{\[]*?" + _ID)
_LAST_ID = re.compile(_ID + rb"\s*\}\s*$")

Incoming = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]


class _Protocol(SubprocessStreamProtocol):
    """Says when the process ended. `Process.wait()` also waits for its pipes, which its children may hold open."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=_CHUNK, loop=loop)
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class StdioTransport:
    """An async context manager that runs the process and yields the SDK's pair of streams.

    `lost` is set when the process ended, or closed its output, by itself. Raises `OSError` when it cannot be started.
    """

    def __init__(
        self, command: str, args: Sequence[str], env: Mapping[str, str], *, cwd: str, log: ServerLog, max_line: int
    ) -> None:
        self._argv = [sys.executable if command == "python" else command, *args]
        self._env = get_default_environment() | dict(env)
        self._cwd, self._max_line = cwd, max_line
        self.log = log
        self.lost = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    async def __aenter__(self) -> Streams:
        loop = asyncio.get_running_loop()
        self._transport, self._protocol = await loop.subprocess_exec(
            lambda: _Protocol(loop),
            *self._argv,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=self._env,
            cwd=self._cwd,
            start_new_session=True,
        )
        self._process = Process(self._transport, self._protocol, loop)
        # No await from here to the return: a cancellation in between would leave the process behind.
        self._to_session, read = anyio.create_memory_object_stream[Incoming](0)
        write, self._from_session = anyio.create_memory_object_stream[SessionMessage](0)
        reader = asyncio.create_task(self._read(), name="mcp-stdio-read")
        self._tasks = [
            reader,
            asyncio.create_task(self._write(), name="mcp-stdio-write"),
            asyncio.create_task(self._read_errors(), name="mcp-stdio-errors"),
            asyncio.create_task(self._watch(reader), name="mcp-stdio-watch"),
        ]
        self._streams = (read, write, self._to_session, self._from_session)
        return read, write

    async def __aexit__(self, *_: object) -> None:
        try:
            with anyio.CancelScope(shield=True):
                await self._stop()
        finally:
            self._signal(signal.SIGKILL)  # children that outlived the process they came from
            for task in self._tasks:
                task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait(self._tasks)
            self._transport.close()
            for stream in self._streams:
                stream.close()

    async def _stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        for seconds, number in ((EXIT_SECONDS, signal.SIGTERM), (TERMINATE_SECONDS, signal.SIGKILL)):
            if await self._ended(seconds):
                return
            self._signal(number)
        await self._ended(KILL_SECONDS)

    async def _ended(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._protocol.exited.wait()
        return self._protocol.exited.is_set()

    def _signal(self, number: signal.Signals) -> None:
        # The process leads its group (start_new_session), and the group outlives it as long as it has members.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    async def _watch(self, reader: asyncio.Task[None]) -> None:
        ended = asyncio.create_task(self._protocol.exited.wait())
        try:
            await asyncio.wait({ended, reader}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({reader}, timeout=0.5)  # what it wrote before it ended
        finally:
            ended.cancel()
        self.lost.set()
        self._to_session.close()

    async def _write(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError, anyio.ClosedResourceError, anyio.EndOfStream):
            async for message in self._from_session:
                line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                self._process.stdin.write(line.encode() + b"\n")
                await self._process.stdin.drain()

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(_CHUNK):
            self.log.write(chunk)

    async def _read(self) -> None:
        open_ = True
        async for line in self._lines():
            message = self._message(line) if open_ else None
            if message is None:
                continue
            try:
                await self._to_session.send(message)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                open_ = False  # go on reading: a server that cannot write cannot end

    async def _lines(self) -> AsyncIterator[bytes]:
        """Complete lines; of a line above the limit only its first and its last bytes, with a NUL between."""
        assert self._process.stdout is not None
        parts: list[bytes] = []
        size = 0
        while chunk := await self._process.stdout.read(_CHUNK):
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                parts.append(end)
                yield b"".join(parts)
                parts, size = [], 0
            if rest:
                parts.append(rest)
                size += len(rest)
            if size > self._max_line:
                whole = b"".join(parts)
                parts = [whole[:_EDGE] + b"\0" + whole[-_EDGE:]]
                size = self._max_line // 2

    def _message(self, line: bytes) -> SessionMessage | None:
        line = line.strip()
        if not line:
            return None
        if b"\0" in line or len(line) > self._max_line:
            return self._oversize(line)
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(mended(line), by_name=False))
        except ValidationError:
            return self._malformed(line)

    def _oversize(self, line: bytes) -> SessionMessage | None:
        found = _FIRST_ID.search(line[:_EDGE]) or _LAST_ID.search(line[-_EDGE:])
        self.log.write(b"[chatui] a message above the size limit was dropped\n")
        if found is None:
            return None
        return _failure(json.loads(found.group(1)), INTERNAL_ERROR, f"the answer is larger than {self._max_line} bytes")

    def _malformed(self, line: bytes) -> SessionMessage | None:
        """The error that an answer which breaks JSON-RPC means for its request; None for what is no answer at all."""
        try:
            value: Any = json.loads(line)
        except ValueError:
            value = None
        if isinstance(value, dict) and type(value.get("id")) in (int, str) and "method" not in value:
            return _failure(value["id"], PARSE_ERROR, "the answer is not valid JSON-RPC")
        self.log.write(f"[chatui] not JSON-RPC: {shorten(line[:1000].decode(errors='replace'), 200)}\n".encode())
        return None


def _failure(request_id: int | str, code: int, message: str) -> SessionMessage:
    error = ErrorData(code=code, message=message)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))
