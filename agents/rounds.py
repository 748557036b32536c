"""One round of tool calls: asked, allowed, run concurrently, cancelled, finished; one stream of events (pure)."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from uuid import UUID

from agents.answers import Answer, CallCancelled, Decided, OpenCall
from agents.call_tasks import Tasks
from agents.calls_in_hand import Asks, Call, GivenUp, Happening, Prepared, Progressed, Returned, TimeIsUp
from agents.events import CallAnswered, CallAsked, CallFinished, CallProgressed, CallStarted, LoopEvent
from agents.own_results import (
    CANCELLED,
    CANCELLED_UNSTARTED,
    CHANGED,
    EXPIRED,
    INTERNAL_ERROR,
    INTERRUPTED,
    OUT_OF_TIME,
    OUT_OF_TIME_UNSTARTED,
    SIGN_IN_DECLINED,
    asked_again,
    denied,
    denied_by_rule,
    edited,
    unrun,
)
from agents.parts import (
    Decision,
    PersonAnswer,
    PersonNeeded,
    PreparedCall,
    Resumed,
    ToolRequest,
    ToolResult,
)
from agents.stopwatch import Stopwatch
from agents.toolbox import AskCallback, ProgressCallback, Toolbox
from chatui.text import clean, shorten

logger = logging.getLogger(__name__)

PROGRESS_SECONDS = 0.1  # of one call; a server may tell a thousand times a second, and every one would be kept
PROGRESS_CHARACTERS = 300
GIVEN_UP = PersonAnswer("cancel")


class Round:
    """The calls of one round.

    A call begins only after the consumer has taken its `CallStarted` and asked for the next event; all that may run
    then begin together. The events end when every call is finished, or when nothing runs and questions are open
    (`parked`). Progress is told at most every `PROGRESS_SECONDS`, the latest each time, and never queued up.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        decisions: asyncio.Queue[Answer],
        tasks: Tasks,
        *,
        max_parallel: int,
        seconds_left: Callable[[], float],
        watch: Stopwatch,
    ) -> None:
        self._toolbox, self._decisions, self._tasks = toolbox, decisions, tasks
        self._max_parallel, self._seconds_left, self._watch = max(1, max_parallel), seconds_left, watch
        self._happenings: asyncio.Queue[Happening] = asyncio.Queue()
        self._events: deque[LoopEvent] = deque()
        self.calls: dict[UUID, Call] = {}  # in the order in which the model made them
        self.parked = False

    def begin(self, calls: Sequence[tuple[UUID, PreparedCall]]) -> None:
        """Take the calls of a fresh round, prepared."""
        for call_id, prepared in calls:
            call = self.calls[call_id] = Call(call_id, prepared.request, prepared)
            self._route(call, prepared)

    def resume(self, open_calls: Sequence[OpenCall]) -> None:
        """Take the calls of a stored round, each from where it stands."""
        for stored in open_calls:
            call = self.calls[stored.call_id] = Call(stored.call_id, stored.request)
            call.seal, call.by, call.again = stored.seal, stored.by, stored.again
            match stored.state:
                case "finished":
                    call.state, call.result = "finished", stored.result or INTERRUPTED
                case "running":
                    self._finish(call, INTERRUPTED)
                case "expired":
                    self._finish(call, EXPIRED)
                case "waiting":
                    call.state, call.needed = "waiting", stored.needed
                    call.allowed, call.edited = stored.approved, stored.arguments
                case "denied":
                    self._finish(call, denied(stored.note))
                case "pending" | "allowed":
                    call.allowed = stored.approved or stored.state == "allowed"
                    call.edited = stored.arguments
                    if stored.resumed is not None:
                        self._answered(call, stored.resumed.needed, stored.resumed.answer)
                    else:
                        self._prepare(call)

    async def events(self) -> AsyncGenerator[LoopEvent, None]:
        forward = self._tasks.start(self._forward(), "tool calls: answers")
        try:
            while True:
                starting = self._take_ready()
                for call in starting:
                    assert call.prepared is not None
                    yield CallStarted(call.id, call.prepared)
                for call in starting:
                    call.task = self._tasks.start(self._run(call), f"tool call {call.id}")
                while self._events:
                    yield self._events.popleft()
                if self._is_settled():
                    break
                self._handle(await self._next())
        finally:
            forward.cancel()
        self.parked = any(call.state == "waiting" for call in self.calls.values())

    def finished(self) -> list[tuple[Call, ToolResult]]:
        """Every call that has its result, in the model's order."""
        return [(call, call.result) for call in self.calls.values() if call.result is not None]

    # --- Waiting

    async def _forward(self) -> None:
        while True:
            self._happenings.put_nowait(await self._decisions.get())

    def _is_settled(self) -> bool:
        active = any(call.state in ("preparing", "ready", "running") for call in self.calls.values())
        return not active and self._happenings.empty() and self._decisions.empty()

    async def _next(self) -> Happening:
        try:
            async with asyncio.timeout(max(0.0, self._seconds_left())):
                return await self._happenings.get()
        except TimeoutError:
            return TimeIsUp()

    def _handle(self, happening: Happening) -> None:
        match happening:
            case Returned(call, PersonNeeded() as needed):
                if call.state == "running":
                    call.state, call.needed = "waiting", needed
                    self._events.append(CallAsked(call.id, self._known(call), needed))
            case Returned(call, ToolResult() as result):
                self._finish(call, result)
            case Asks(call, needed, answering):
                if call.state == "running" and not answering.done():
                    call.needed, call.answering = needed, answering
                    self._watch.pause()
                    self._events.append(CallAsked(call.id, self._known(call), needed, live=True))
            case GivenUp(call, answering):
                if call.answering is answering and call.needed is not None:
                    self._events.append(
                        CallAnswered(call.id, call.prepared, call.needed, GIVEN_UP, live=True, given_up=True)
                    )
                    self._asks_no_more(call)
            case Progressed(call):
                if call.progress is not None and call.state == "running":
                    self._events.append(call.progress)
                call.progress = None
            case Prepared(call, prepared):
                if call.state == "preparing":
                    self._route(call, prepared)
            case TimeIsUp():
                if self._seconds_left() <= 0:  # else a person was asked meanwhile
                    self._time_is_up()
            case Decided(call_id):
                call_or_none = self.calls.get(call_id)
                if call_or_none is not None and (call_or_none.state == "waiting" or call_or_none.answering):
                    self._decide(call_or_none, happening)
            case CallCancelled(call_id):
                call_or_none = self.calls.get(call_id)
                if call_or_none is not None:
                    self._cancel(call_or_none, CANCELLED, CANCELLED_UNSTARTED)

    # --- Steps of one call

    def _route(self, call: Call, prepared: PreparedCall) -> None:
        call.prepared = prepared
        if prepared.result is not None:
            self._finish(call, prepared.result)
        elif prepared.decision is Decision.DENY:
            self._finish(call, denied_by_rule(prepared.reason))
        elif prepared.decision is Decision.ASK and not call.may_run(prepared):
            self._ask(call, prepared)
        else:
            call.state = "ready"

    def _ask(self, call: Call, prepared: PreparedCall) -> None:
        void = call.allowed
        if void:
            call.allowed, call.again, edited, call.edited = False, True, call.edited, None
            if edited is not None:  # they were written for what is no more: back to what the model wrote
                self._prepare(call)
                return
        if call.again:
            prepared = call.prepared = replace(prepared, reason=f"{CHANGED} {prepared.reason}")
        call.state, call.seal = "waiting", prepared.seal
        self._events.append(CallAsked(call.id, prepared, again=call.again))

    def _decide(self, call: Call, decided: Decided) -> None:
        if call.needed is not None:
            if decided.answer is not None:  # else it is of an approval that was asked before
                self._answered(call, call.needed, decided.answer)
            return
        if decided.seal is not None and call.seal is not None and decided.seal != call.seal:
            return  # told again, of a question that was asked before this one
        if not decided.allowed:
            self._finish(call, denied(decided.note))
            return
        call.allowed, call.by, call.edited = True, decided.by, decided.arguments
        self._prepare(call)

    def _answered(self, call: Call, needed: PersonNeeded, answer: PersonAnswer) -> None:
        """A person did, or declined, what the call needed: it goes on, or is made again."""
        live, call.needed = call.answering, None
        self._events.append(CallAnswered(call.id, call.prepared, needed, answer, live=live is not None))
        if live is not None:
            self._asks_no_more(call)
            if not live.done():
                live.set_result(answer)
        elif needed.kind == "authorization" and answer.action != "accept":
            self._finish(call, SIGN_IN_DECLINED)
        else:
            call.resumed = Resumed(needed, answer)
            self._prepare(call)

    def _asks_no_more(self, call: Call) -> None:
        """The running call waits for nobody any longer."""
        if call.answering is not None:
            call.answering = call.needed = None
            self._watch.resume()

    @staticmethod
    def _known(call: Call) -> PreparedCall:
        assert call.prepared is not None
        return call.prepared

    def _prepare(self, call: Call) -> None:
        """Have the toolbox look at the call again: what was allowed when it was asked may be denied now."""
        call.state = "preparing"
        request = call.request
        if call.edited is not None:
            request = replace(request, arguments=json.dumps(call.edited, ensure_ascii=False))

        async def prepare() -> None:
            self._happenings.put_nowait(Prepared(call, await prepare_call(self._toolbox, request)))

        call.task = self._tasks.start(prepare(), f"tool call {call.id}: prepare")

    def _take_ready(self) -> list[Call]:
        ready = [call for call in self.calls.values() if call.state == "ready"]
        if ready and self._seconds_left() <= 0:
            for call in ready:
                self._finish(call, OUT_OF_TIME_UNSTARTED)
            return []
        running = sum(call.state == "running" for call in self.calls.values())
        starting = ready[: max(0, self._max_parallel - running)]
        for call in starting:
            call.state = "running"
        return starting

    async def _run(self, call: Call) -> None:
        assert call.prepared is not None
        try:
            result = await self._toolbox.call(
                replace(call.prepared, resumed=call.resumed), self._progress_of(call), self._ask_of(call)
            )
        except Exception:  # the boundary: a toolbox's bug costs its own call, never the siblings
            logger.exception("the toolbox raised in a call of %s", call.request.name)
            result = INTERNAL_ERROR
        self._happenings.put_nowait(Returned(call, result))

    def _ask_of(self, call: Call) -> AskCallback:
        async def ask(needed: PersonNeeded) -> PersonAnswer:
            answering: asyncio.Future[PersonAnswer] = asyncio.get_running_loop().create_future()
            self._happenings.put_nowait(Asks(call, needed, answering))
            try:
                return await answering
            finally:
                if call.answering is answering:  # by the server, by nobody's answer in time, or with the call
                    self._happenings.put_nowait(GivenUp(call, answering))

        return ask

    def _progress_of(self, call: Call) -> ProgressCallback:
        loop = asyncio.get_running_loop()
        next_at = 0.0

        async def report(progress: float, total: float | None = None, message: str | None = None) -> None:
            nonlocal next_at
            if not math.isfinite(progress):
                return
            is_first = call.progress is None  # else one that is not yet told gives way to this one
            known = total if total is not None and math.isfinite(total) else None
            words = shorten(clean(message), PROGRESS_CHARACTERS) if message else message
            call.progress = CallProgressed(call.id, progress, known, words)
            if is_first:
                now = loop.time()
                if now >= next_at:
                    self._happenings.put_nowait(Progressed(call))
                else:
                    loop.call_at(next_at, self._happenings.put_nowait, Progressed(call))
                next_at = max(now, next_at) + PROGRESS_SECONDS

        return report

    def _cancel(self, call: Call, result: ToolResult, unstarted: ToolResult) -> None:
        """End the call at once; its task winds down by itself and what it still returns is ignored."""
        if call.state == "running":
            if call.task is not None and call.task.done():
                return  # its true result is on the way
            if call.task is not None:
                call.task.cancel()
            self._finish(call, result)
        elif call.state != "finished":
            if call.task is not None:
                call.task.cancel()
            self._finish(call, unstarted)

    def _time_is_up(self) -> None:
        for call in self.calls.values():
            if call.state != "waiting":  # waiting does not count
                self._cancel(call, OUT_OF_TIME, OUT_OF_TIME_UNSTARTED)

    def _finish(self, call: Call, result: ToolResult) -> None:
        if call.state == "finished":
            return
        if call.edited is not None:
            result = edited(result, call.edited)
        if call.again:
            result = asked_again(result)
        self._asks_no_more(call)
        call.state, call.result = "finished", result
        self._events.append(CallFinished(call.id, result))


async def prepare_call(toolbox: Toolbox, request: ToolRequest) -> PreparedCall:
    """`toolbox.prepare`, whose bug becomes an error result of this one call."""
    try:
        return await toolbox.prepare(request)
    except Exception:  # the boundary, as in `Round._run`
        logger.exception("the toolbox raised when it prepared a call of %s", request.name)
        return unrun(PreparedCall(request, Decision.DENY), "internal error", INTERNAL_ERROR)
