"""`ChatConsumer`: one websocket of one person in one organization. It parses, delegates, reports."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

from asgiref.typing import ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, WebSocketSendEvent
from autobahn.exception import Disconnected
from channels.consumer import get_handler_name
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.http.request import validate_host

from accounts import policy
from accounts.actors import Actor
from accounts.doors import Door, SignedOutError, StrangerError
from chatui.errors import ChatUIError, PermissionDeniedError
from chatui.layers import leave_group
from chatui.rows import in_rows
from conversations import answering, beginning, commands, following, hints, processes, stopping, supervisor, turns, wire
from conversations.questions import Answered

logger = logging.getLogger(__name__)
T = TypeVar("T")

SIGNED_OUT, NOT_A_MEMBER, TOO_OLD, RESTART = 4401, 4403, 4409, 1012


class ChatConsumer(AsyncWebsocketConsumer):
    """`docs/reference/websocket.md` in code. Frames meet fresh rows; handlers start work and never await it."""

    door: Door
    user_id: UUID
    _grouped = False

    async def __call__(self, scope: Any, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        try:
            await super().__call__(scope, receive, _while_open(send))
        finally:
            await self._leave()  # however it ended: a handler that failed is not followed by `disconnect`

    async def dispatch(self, message: Any) -> None:
        # Channels crosses to a thread before every message, for queries of handlers on its one thread: here is none.
        await getattr(self, get_handler_name(message))(message)

    async def connect(self) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.scope["headers"]}
        authorization = headers.get("authorization")
        if authorization is None and not origin_allowed(headers.get("origin")):
            await self.close()  # before accept: HTTP 403
            return
        self._follows: dict[UUID, asyncio.Task[None]] = {}
        self._watch: asyncio.Task[None] | None = None
        self._connected = True
        self.gone = asyncio.Event()
        offered = self.scope.get("subprotocols") or []
        ours = f"chatui.{wire.PROTOCOL}"
        await self.accept(subprotocol=ours if ours in offered else None)
        if offered and ours not in offered:
            await self.close(code=TOO_OLD)
            return
        organization = self.scope["url_route"]["kwargs"]["organization"]
        self.door = Door.of(organization, authorization=authorization, cookie=headers.get("cookie"))
        greeting = await self._at_door(commands.greet)
        if greeting is None:
            return
        self.user_id, self._organization, self._chats = greeting.user_id, greeting.organization_id.hex, greeting.chats
        self._grouped = True
        await self.channel_layer.group_add(hints.group_of(self.user_id), self.channel_name)
        self._watch = asyncio.get_running_loop().create_task(self._watching(), name=f"socket-watch-{self.user_id}")
        open_sockets().add(self)
        await self.send(text_data=greeting.frame)

    async def disconnect(self, code: int) -> None:
        await self._leave()

    async def _leave(self) -> None:
        self._connected = False
        open_sockets().discard(self)
        if hasattr(self, "gone"):
            self.gone.set()
        tasks = [task for task in (*getattr(self, "_follows", {}).values(), getattr(self, "_watch", None)) if task]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._grouped:
            self._grouped = False
            await leave_group(hints.group_of(self.user_id), self.channel_name)

    # --- Frames from the client ---

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        request_id: object = None
        try:
            if text_data is None:
                raise wire.FrameError("Frames are text.")
            if len(text_data) > settings.SOCKET["MAX_MESSAGE"]:
                raise wire.FrameError("A frame holds at most 4 MiB.", code="too_large")
            frame = wire.parse(text_data)
            request_id = frame.request_id
            await self._handle(frame)
        except wire.FrameError as error:
            # A socket whose person left is closed even if what it says makes no sense.
            if await self._at_door(lambda actor: actor) is not None:
                await self.send(text_data=wire.error_frame(error, error.request_id or request_id))
        except ChatUIError as error:
            await self.send(text_data=wire.error_frame(error, request_id))
        except (
            Exception
        ):  # the boundary between a frame and the socket: a reference for the person, the rest in the log
            reference = secrets.token_hex(4)
            logger.exception("A frame could not be handled (reference %s)", reference)
            failure = ChatUIError(public_message=f"Something went wrong on our side (reference {reference}).")
            await self.send(text_data=wire.error_frame(failure, request_id))

    async def _handle(self, frame: Any) -> None:
        match frame:
            case wire.Ping():
                if await self._at_door(lambda actor: actor) is not None:
                    await self.send(text_data=wire.frame("pong"))
            case wire.TurnStart() | wire.TurnRegenerate() | wire.TurnContinue():
                await self._begin(frame)
            case wire.TurnFollow(turn_id=turn_id, after=after):
                if await self._at_door(turns.visible_turn, turn_id) is not None:
                    self._follow(turn_id, after)
            case wire.TurnStop(turn_id=turn_id):
                await self._let_in(stopping.stop(self.door, turn_id))
            case wire.CallDecide():
                await self._answer(commands.decide, frame)
            case wire.ElicitationAnswer():
                await self._answer(commands.elicited, frame)
            case wire.CallCancel(call_id=call_id):
                await self._cancel(call_id)

    async def _begin(self, frame: wire.TurnStart | wire.TurnRegenerate | wire.TurnContinue) -> None:
        begun = await self._let_in(beginning.begin(self.door, commands.new_turn(frame)))
        if begun is not None:
            self._follow(begun.turn_id, 0)

    async def _answer(self, verb: Callable[..., Answered], frame: wire.ClientFrame) -> None:
        supervisor.current().require_open()
        answer = await self._at_door(verb, frame)
        if answer is not None:
            await answering.carry(answer)

    async def _cancel(self, call_id: UUID) -> None:
        house, owner = supervisor.current(), await self._at_door(commands.turn_of_call, call_id)
        if owner is None or (not house.draining and await house.withdraw(owner, call_id)):
            return
        if not house.cancel_call(owner, call_id):
            await processes.cancel_call(owner, call_id)

    # --- Following turns ---

    def _follow(self, turn_id: UUID, after: int) -> None:
        """Send the turn's frames after `after` from now on; a second follow of the same turn replaces the first."""
        before = self._follows.pop(turn_id, None)
        if before is not None:
            before.cancel()
        task = asyncio.get_running_loop().create_task(
            self._let_in(self._pump(turn_id, after)), name=f"follow-{turn_id}"
        )
        self._follows[turn_id] = task
        task.add_done_callback(lambda done: self._pumped(turn_id, done))

    def _pumped(self, turn_id: UUID, task: asyncio.Task[None]) -> None:
        if self._follows.get(turn_id) is task:
            del self._follows[turn_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("Following turn %s failed", turn_id, exc_info=error)

    async def _pump(self, turn_id: UUID, after: int) -> None:
        send, sent = self.base_send, 0
        async with aclosing(following.frames(self.door, turn_id, after)) as numbered:
            async for _, text in numbered:
                await send(WebSocketSendEvent(type="websocket.send", bytes=None, text=text))
                sent += 1
                if sent % 20 == 0:  # a burst must not starve the other sockets of this process
                    await asyncio.sleep(0)

    # --- The right to be open ---

    async def _at_door(self, function: Callable[..., T], *args: Any) -> T | None:
        """Run `function(actor, *args)` with an actor from fresh rows; None after the socket was closed instead."""
        return await self._let_in(in_rows(self.door.run, function, *args))

    async def _let_in(self, work: Awaitable[T]) -> T | None:
        """What `work` returns, or None after the socket was closed because its person may not be here (any more)."""
        try:
            return await work
        except SignedOutError:
            await self.close(code=SIGNED_OUT)
        except StrangerError:
            await self.close(code=NOT_A_MEMBER)
        return None

    async def _watching(self) -> None:
        while self._connected:
            await asyncio.sleep(settings.SOCKET["RECHECK_SECONDS"])
            await self._look_again()

    async def _look_again(self) -> None:
        try:
            refused = await self._at_door(_refused)
            self._chats = refused is None
            if refused is not None and self._follows:
                for following in self._follows.values():
                    following.cancel()
                await self.send(text_data=wire.error_frame(refused))
        except Exception:  # a database that is away for a while must end neither the watch nor the socket
            logger.exception("A socket could not be rechecked")

    async def hint(self, event: dict[str, Any]) -> None:
        if event.get("organization") == self._organization and (self._chats or not event.get("chats")):
            await self.send(text_data=event["frame"])

    async def recheck(self, event: dict[str, Any]) -> None:
        await self._look_again()


def _while_open(send: ASGISendCallable) -> ASGISendCallable:
    """`send` until the socket is closed by us or has gone by itself: then nothing more is sent, and nothing raised."""
    closed = False

    async def send_while_open(event: ASGISendEvent) -> None:
        nonlocal closed
        if closed:
            return
        closed = event["type"] == "websocket.close"
        try:
            await send(event)
        except (OSError, Disconnected):  # what uvicorn and Daphne raise before they say that the client has gone
            closed = True

    return send_while_open


def _refused(actor: Actor) -> PermissionDeniedError | None:
    """Why this actor may not look at chats (any more)."""
    verdict = policy.allows(actor, policy.Action.CHAT)
    return None if verdict else PermissionDeniedError(verdict.reason, public_message=verdict.reason)


def origin_allowed(origin: str | None) -> bool:
    """Whether a browser at `origin` may open a socket with a session cookie: BASE_URL's host, or one of ALLOWED_HOSTS.

    A missing or opaque origin is refused: nothing but a browser sends a cookie, and a browser sends its origin.
    """
    if not origin or origin == "null":
        return False
    try:
        parts = urlsplit(origin)
    except ValueError:  # brackets that hold no address
        return False
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return False
    if origin.rstrip("/") == settings.BASE_URL:
        return True
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return validate_host(host, settings.ALLOWED_HOSTS)


_sockets: dict[asyncio.AbstractEventLoop, set[ChatConsumer]] = {}


def open_sockets() -> set[ChatConsumer]:
    """The sockets of the running loop, so that a restart can close them."""
    loop = asyncio.get_running_loop()
    for other in [other for other in _sockets if other.is_closed()]:
        del _sockets[other]
    return _sockets.setdefault(loop, set())


async def close_sockets() -> None:
    """Close every open socket with 1012 (clients come back with jitter) and give the frames a second to leave."""
    sockets = list(open_sockets())
    for socket in sockets:
        await socket.close(code=RESTART)
    gone = [asyncio.ensure_future(socket.gone.wait()) for socket in sockets]
    if gone:
        _, late = await asyncio.wait(gone, timeout=1)
        for waiting in late:
            waiting.cancel()
