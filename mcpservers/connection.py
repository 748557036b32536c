"""`Connection`: one MCP client, entered and left by one owner task, used by any task of its loop at once.

A client must be left by the task that entered it (anyio's cancel scopes), so nobody but the owner touches its life;
everybody else sends requests, each with a deadline of its own, and cancelling one leaves the connection usable.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from django.conf import settings

from chatui.errors import ChatUIError
from chatui.text import shorten
from mcpservers import causes
from mcpservers.deadlines import Clock, settle, settled
from mcpservers.errors import (
    ConnectionLostError,
    NobodyPresentError,
    NotReadyError,
    RequestFailedError,
    RequestTimeoutError,
    SignInRequiredError,
)
from mcpservers.live_questions import LiveQuestions, Person, RunningCall
from mcpservers.models import Transport
from mcpservers.transports import ConnectionTarget
from mcpservers.visible import visible

if TYPE_CHECKING:
    from mcp import MCPError

    from mcpservers.clients import Attempts, OpenClient
    from mcpservers.credentials import TokenSource
    from mcpservers.sessionhttp import CallNote

PROBE_SECONDS = 5.0  # for a connection that left a request unanswered to prove that it lives
ABANDON_SECONDS = 1.0  # for cancellations to reach the server before their connection is closed
_TERMINATED = (-32600, "Session terminated")  # how the SDK spells HTTP 404 on a session
_CLOSED = (-32000, "Connection closed")
_CUT = "SSE stream ended"
_WITHOUT_WORDS = ("Server returned an error response", "Not Found")

OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]


async def _nothing(*_: object) -> None:
    """For whom nobody listens."""


class Connection:
    """A connection for one target. Make it, `open` it once, `request` while `alive`, `aclose` it."""

    def __init__(
        self,
        target: ConnectionTarget,
        *,
        on_tools_changed: Callable[[ConnectionTarget], Awaitable[None]],
        on_asked: Callable[[ConnectionTarget], Awaitable[None]] = _nothing,
        on_completed: Callable[[ConnectionTarget, str], Awaitable[None]] = _nothing,
    ) -> None:
        self.id = uuid4()
        self.target = target
        self.leases = 0
        self.lent = False  # whether it ever was
        self.retired = False  # not to be lent again; closed when the last lease comes back
        self.suspect = False  # left a request unanswered; to be proved before it is lent again
        self.answered = False  # whether the server has answered any request since it was opened
        self.error: BaseException | None = None
        self.last_error = ""  # of a request, without our secrets
        # What the server said of itself when it was opened: the client that heard it may be gone.
        self.server_info: dict[str, Any] = {}  # {name, version, title?, …}; empty if it does not name itself
        self.capabilities: dict[str, Any] = {}
        self.instructions = ""
        self.opened_at = self.last_used = self._heard = time.monotonic()
        self._on_tools_changed, self._on_completed = on_tools_changed, on_completed
        self.questions = LiveQuestions(target, on_asked)
        self._stop = asyncio.Event()
        self._closing = False
        self._lost = False
        self._proof = asyncio.Lock()
        self._abandoned: set[asyncio.Task[dict[str, Any]]] = set()
        self.owner: asyncio.Task[None] | None = None
        self._open: OpenClient | None = None

    # --- What it is -----------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether a request may be sent."""
        opened = self._open is not None and not self._open.lost.is_set()
        return opened and not (self._closing or self._lost or self.owner is None or self.owner.done())

    @property
    def broke(self) -> bool:
        """Whether it ended without our doing."""
        ended = self.owner is not None and self.owner.done() and not self._closing
        return self._lost or ended or (self._open is not None and self._open.lost.is_set() and not self._closing)

    @property
    def is_doubtful(self) -> bool:
        """Whether it is to be `proved` before it is lent: it left a request unanswered, or is a session long silent."""
        if self.suspect:
            return True
        silent: float = time.monotonic() - self._heard
        return bool(silent > settings.MCP["PING_SECONDS"] and self.era["mode"] != "modern")

    @property
    def _opened(self) -> OpenClient:
        if self._open is None:
            raise ConnectionLostError("the connection is not open", sent=False)
        return self._open

    @property
    def transport(self) -> Transport:
        return self._opened.transport

    @property
    def era(self) -> dict[str, Any]:
        """What to remember in `MCPServer.era`: {transport, mode, protocol_version, discover, definition, at}."""
        return self._opened.era

    @property
    def protocol_version(self) -> str:
        return str(self.era["protocol_version"])

    # --- Its life -------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect within the target's connect timeout.

        Raises `ServerUnavailableError`, which says why; `SignInRequiredError` and `NotReadyError` for a person to help.
        """
        if "mcpservers.clients" not in sys.modules:  # mcp takes a second to import; the loop has other work
            await asyncio.to_thread(importlib.import_module, "mcpservers.clients")
        from mcpservers.clients import Attempts

        attempts = Attempts()
        ready: asyncio.Future[OpenClient] = asyncio.get_running_loop().create_future()
        # The owner outlives whoever happens to open it, so it carries nobody's context.
        owner = asyncio.create_task(
            self._own(ready, attempts), name=f"mcp-{self.target.slug}", context=contextvars.Context()
        )
        self.owner = owner
        waiting: set[asyncio.Future[Any]] = {ready, owner}
        try:
            await asyncio.wait(waiting, timeout=self.target.connect_timeout, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.aclose(grace=0)
            raise
        if ready.done():
            self._open = ready.result()
            self._introduced(self._open)
            self.opened_at = self.last_used = self._heard = time.monotonic()
            return
        error = self.error if owner.done() else TimeoutError()
        await self.aclose(grace=0)
        first = next(iter(attempts.failures), None) or error or TimeoutError()
        if isinstance(first, SignInRequiredError | NotReadyError):
            raise first
        raise causes.unavailable(self.target, first, attempts) from first

    def _introduced(self, opened: OpenClient) -> None:
        client = opened.client
        if client.server_info is not None:
            self.server_info = client.server_info.model_dump(by_alias=True, mode="json", exclude_none=True)
        self.capabilities = client.server_capabilities.model_dump(by_alias=True, mode="json", exclude_none=True)
        self.instructions = client.instructions or ""

    async def _own(self, ready: asyncio.Future[OpenClient], attempts: Attempts) -> None:
        from mcpservers.clients import Ears, opened

        async def tools_changed() -> None:
            await self._on_tools_changed(self.target)

        async def completed(elicitation: str) -> None:
            await self._on_completed(self.target, elicitation)

        ears = Ears(tools_changed, self.questions.asked, completed)
        try:
            async with opened(self.target, attempts=attempts, ears=ears) as client:
                ready.set_result(client)
                await self._ended(client)
        except Exception as error:  # boundary: how a foreign connection ended is a value, not our failure
            self.error = causes.leaf(error)

    async def _ended(self, client: OpenClient) -> None:
        events = [asyncio.create_task(self._stop.wait()), asyncio.create_task(client.lost.wait())]
        try:
            await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for event in events:
                event.cancel()

    async def aclose(self, grace: float | None = None) -> None:
        """Close within `grace` seconds (default `settings.MCP["CLOSE_SECONDS"]`), then by force. Never raises."""
        self._closing = True
        grace = settings.MCP["CLOSE_SECONDS"] if grace is None else grace
        if self._abandoned and grace:
            await asyncio.wait(set(self._abandoned), timeout=min(grace, ABANDON_SECONDS))
        self._stop.set()
        if self.owner is None or self.owner.done():
            return
        if grace:
            await asyncio.wait({self.owner}, timeout=grace)
        if not self.owner.done():
            self.owner.cancel()
            await asyncio.wait({self.owner}, timeout=settings.MCP["CLOSE_SECONDS"])

    # --- Requests -------------------------------------------------------------------------------------------------

    async def request_raw(
        self, method: str, params: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> dict[str, Any]:
        """`request` with one deadline in seconds (default the server's timeout)."""
        return await self.request(method, params, timeout=timeout or self.target.timeout)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float,
        limit: float | None = None,
        on_progress: OnProgress | None = None,
        headers: Mapping[str, str] | None = None,
        person: Person | None = None,
        source: TokenSource | None = None,
    ) -> dict[str, Any]:
        """Send one request and return its result as the server sent it, unvalidated.

        `timeout` is how many seconds may pass without a sign of life (progress is one), `limit` how many in all
        (default: the same); neither counts while a `person` is asked. Cancelling it, and both deadlines, cancel the
        request at the server. Raises `ConnectionLostError`, `RequestTimeoutError`, `RequestFailedError`, and
        `NobodyPresentError` when the server asks during a call without a `person`; `SignInRequiredError` where only a
        person can help, and `ServerUnavailableError` where there is no token for now: the server did not run it then.
        """
        from mcpservers.sessionhttp import CallNote, call_note
        from mcpservers.signing import call_source

        if not self.alive or self.owner is None:
            raise ConnectionLostError(self._why(), sent=False)
        note = CallNote()
        clock = Clock(timeout, limit or timeout)

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            clock.heard()
            if on_progress is not None and not task.done():
                await on_progress(progress, total, message)

        context = contextvars.copy_context()
        context.run(lambda: (call_note.set(note), call_source.set(source)))
        is_call = method == "tools/call"
        heard = progressed if on_progress is not None else None
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def send() -> dict[str, Any]:
            try:
                return await self._send(method, params, heard, headers, asks=not is_call or person is not None)
            finally:
                settle(over)

        task = asyncio.create_task(send(), name=f"mcp-{method}", context=context)
        call = RunningCall(person, clock.paused, lambda: self._abandon(task))
        try:
            with self.questions.during(call) if is_call else nullcontext():
                await settled(over, task, self.owner, clock)
        except asyncio.CancelledError:
            self._abandon(task)
            raise
        if call.nobody:
            raise NobodyPresentError
        if not task.done():
            raise self._unanswered(task, self.owner, clock)
        error = task.exception()
        if error is None:
            self._hears()
            return task.result()
        translated = self._translated(error, note)
        if isinstance(translated, RequestFailedError) or (note.refusal is not None and note.status is not None):
            self._hears()
        self.last_error = str(translated)
        raise translated from error

    def _hears(self) -> None:
        self.answered, self._heard = True, time.monotonic()

    async def _send(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        on_progress: OnProgress | None,
        headers: Mapping[str, str] | None,
        *,
        asks: bool,
    ) -> dict[str, Any]:
        # Underscores of mcp 2.3.0: its public calls validate the whole result, so that one malformed tool would
        # cost the list, and a result that breaks its schema would be discarded.
        session = self._opened.client.session
        data: dict[str, Any] = {"method": method, "params": dict(params or {})}
        options: Any = {}
        session._stamp(data, options)
        options.setdefault("headers", {}).update(headers or {})
        _announce(data["params"].get("_meta") or {}, asks=asks)
        if on_progress is not None:
            options["on_progress"] = on_progress
        return await session._dispatcher.send_raw_request(method, data["params"], options)

    def _unanswered(self, task: asyncio.Task[dict[str, Any]], owner: asyncio.Task[None], clock: Clock) -> ChatUIError:
        self._abandon(task)
        if owner.done():
            return ConnectionLostError(self._why())
        self.suspect, self.last_error = True, clock.verdict()
        return RequestTimeoutError(clock.verdict(), public_message=clock.verdict())

    def _abandon(self, task: asyncio.Task[dict[str, Any]]) -> None:
        """Cancel a request without waiting: the SDK may spend seconds on telling the server."""
        task.cancel()
        self._abandoned.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[dict[str, Any]]) -> None:
        self._abandoned.discard(task)
        if not task.cancelled():
            task.exception()  # seen

    def _translated(self, error: BaseException, note: CallNote) -> ChatUIError:
        from mcp import MCPError

        if not isinstance(error, MCPError):
            self._lost = True
            return ConnectionLostError(f"{type(error).__name__}: {error}", sent=note.sent)
        if note.refusal is not None:
            return note.refusal
        if note.error is not None:
            self._lost = True
            message = note.error.public_message if isinstance(note.error, ChatUIError) else str(note.error)
            return ConnectionLostError(self.target.redact(message or type(note.error).__name__), sent=note.sent)
        if (error.code, error.message) == _TERMINATED:
            self._lost = True
            return ConnectionLostError("the server no longer knows the session", sent=False)
        if (error.code, error.message) == _CLOSED:
            self._lost = True
            return ConnectionLostError(self._why())
        if error.message.startswith(_CUT):
            self.suspect = True
            return ConnectionLostError("the server ended its answer before the result")
        return self._refused(error, note)

    def _refused(self, error: MCPError, note: CallNote) -> RequestFailedError:
        message = causes.in_words(error.message)
        if note.status is not None and note.status >= 400 and message in _WITHOUT_WORDS:
            message = causes.status_words(note.status, note.retry_after)
        return RequestFailedError(
            self.target.redact(shorten(visible(message), 2000)),
            rpc_code=error.code,
            data=error.error.data,
            http_status=note.status,
            challenge=note.challenge,
        )

    def _why(self) -> str:
        if self.error is not None:
            return self.target.redact(str(self.error) or type(self.error).__name__)
        return "the process ended" if self.target.transport is Transport.STDIO else "the connection was closed"

    async def proved(self) -> bool:
        """Whether a doubtful connection still answers; a stateless one over HTTP has nothing that could hang."""
        async with self._proof:
            modern = self.era["mode"] == "modern"
            if not self.is_doubtful or (modern and self.transport is not Transport.STDIO):
                self.suspect = False
                return self.alive
            try:
                await self.request("server/discover" if modern else "ping", timeout=PROBE_SECONDS)
            except RequestFailedError:
                pass  # an answer all the same
            except ChatUIError:
                return False
            self.suspect = False
            return self.alive


def _announce(meta: dict[str, Any], *, asks: bool) -> None:
    """Whether a person can be asked, in a request of the stateless era, where each one says it for itself."""
    from mcp.types import CLIENT_CAPABILITIES_META_KEY

    capabilities = meta.get(CLIENT_CAPABILITIES_META_KEY)
    if capabilities is not None:  # the SDK's own, which all its requests share
        without = {name: value for name, value in capabilities.items() if name != "elicitation"}
        meta[CLIENT_CAPABILITIES_META_KEY] = without | ({"elicitation": {"form": {}, "url": {}}} if asks else {})
