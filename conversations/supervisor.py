"""`Supervisor` owns this process's turn tasks: start, stop, decide, heartbeat, reap, drain."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.conf import settings

from agents.loop import CallCancelled, Decided
from chatui.errors import DrainingError
from chatui.rows import in_rows
from conversations import feed, hints, processes, questions, transitions, wire
from conversations.checkpoints import Checkpoints
from conversations.models import Message
from conversations.plans import TurnPlan
from conversations.questions import Answered
from conversations.running import TurnTask
from mcpservers import connections
from mcpservers.transports import ConnectionTarget

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Running:
    task: asyncio.Task[None]
    turn: TurnTask
    again: bool = False  # it parked, and was answered before its task was gone


@dataclass(slots=True)
class Supervisor:
    """The turns of one process and event loop. Every task is named, referenced, and awaited at the end."""

    process: str = field(default_factory=lambda: f"{socket.gethostname()[:30]}:{os.getpid()}:{secrets.token_hex(4)}")
    draining: bool = False
    checkpoints: Checkpoints = field(init=False)
    _running: dict[UUID, _Running] = field(default_factory=dict)
    _keeper: asyncio.Task[None] | None = None
    _listener: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self.checkpoints = Checkpoints(self.process)

    # --- Verbs ---

    def start(self, turn_id: UUID, *, started: wire.TurnStarted | None = None, plan: TurnPlan | None = None) -> None:
        """Run the turn (which is RUNNING in the database) in a task of this process; at most one task a turn.

        `started` is the first frame of a new turn; without it the turn is one that goes on. A turn that comes with
        its `plan` was claimed for this process when it was begun.
        """
        running = self._running.get(turn_id)
        if running is not None:
            running.again = started is None
            return
        self._keep()
        turn = TurnTask(turn_id, self.process, feed.current(), self.checkpoints, started=started, plan=plan)
        task = asyncio.get_running_loop().create_task(turn.run(), name=f"turn-{turn_id}")
        self._running[turn_id] = _Running(task, turn)
        task.add_done_callback(lambda done: self._done(turn_id, done))

    def stop(self, turn_id: UUID) -> bool:
        """End a turn of this process as stopped, keeping what was produced; False if it does not run here."""
        running = self._running.get(turn_id)
        if running is None:
            return False
        running.turn.end_as(Message.Status.STOPPED)
        running.task.cancel()
        return True

    def answered(self, answer: Answered) -> None:
        """Carry an answer to its turn: start it if it was parked, tell its task if it runs here."""
        if answer.resumed:
            self.start(answer.turn_id)
        else:
            self._tell(answer.turn_id, answer.decided)

    def cancel_call(self, turn_id: UUID, call_id: UUID) -> bool:
        """Cancel one running call of a turn of this process; its siblings go on."""
        return self._tell(turn_id, CallCancelled(call_id))

    async def withdraw(self, turn_id: UUID, call_id: UUID) -> bool:
        """Cancel a call for which its turn is parked, and let the turn go on here; False if it is not parked so."""
        withdrawn = await in_rows(questions.withdraw, turn_id, call_id)
        await self._go_on(withdrawn)
        return bool(withdrawn.resumed)

    def runs(self, turn_id: UUID) -> bool:
        return turn_id in self._running

    def require_open(self) -> None:
        """Raise `DrainingError` while shutting down."""
        if self.draining:
            raise DrainingError

    def _tell(self, turn_id: UUID, message: Decided | CallCancelled) -> bool:
        running = self._running.get(turn_id)
        if running is not None:
            running.turn.decisions.put_nowait(message)
        return running is not None

    def _done(self, turn_id: UUID, task: asyncio.Task[None]) -> None:
        running = self._running.pop(turn_id)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("The task of turn %s failed", turn_id, exc_info=error)
        if running.again and not self.draining:
            self.start(turn_id)

    async def _completed(self, target: ConnectionTarget, elicitation: str) -> None:
        """A server says that what it had a person open was dealt with: what waits for that goes on."""
        from conversations.answering import carry  # late: it needs this module

        for answer in await in_rows(questions.completed, target.server_id, target.user_id, elicitation):
            await carry(answer)

    # --- Heartbeat and reaper ---

    def _keep(self) -> None:
        hear = connections.manager().on_completed
        if self._completed not in hear:
            hear.append(self._completed)
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.get_running_loop().create_task(self._keeping(), name="supervisor-keeper")

    async def begin(self, *, alone: bool = False) -> None:
        """At start-up: reap what a dead process left behind. `alone`: no other process can own a running turn."""
        self._keep()
        if settings.REDIS_URL:
            self._listener = asyncio.get_running_loop().create_task(processes.listen(self._heard), name="processes")
        await self.reap(everything=alone)

    async def _heard(self, message: dict[str, Any]) -> None:
        turn_id = UUID(message["turn_id"])
        if turn_id not in self._running:
            return
        if message["type"] == "cancel":
            self.cancel_call(turn_id, UUID(message["call_id"]))
        elif await in_rows(transitions.stop_was_requested, turn_id):
            self.stop(turn_id)
        else:
            await self._carry_answers(turn_id)

    async def _keeping(self) -> None:
        beats = 0
        while True:
            await asyncio.sleep(settings.TURN["HEARTBEAT_SECONDS"])
            beats += 1
            try:
                await self.beat()
                if beats % 4 == 0:
                    await self.reap()
                await self.expire()
            except Exception:  # a database that is away for a while must not end the heartbeat
                logger.exception("The supervisor's heartbeat failed; it goes on")

    async def beat(self) -> None:
        """One heartbeat: mark our turns alive, stop those that were asked to stop, carry answers given elsewhere."""
        ids = list(self._running)
        for turn_id in await in_rows(transitions.heartbeat, self.process, ids):
            self.stop(turn_id)
        for turn_id in ids:
            await self._carry_answers(turn_id)

    async def _carry_answers(self, turn_id: UUID) -> None:
        running = self._running.get(turn_id)
        if running is not None and running.turn.asking:
            for question_id, decided in await in_rows(questions.unseen_answers, turn_id):
                if running.turn.awaits(decided.call_id, question_id):
                    self._tell(turn_id, decided)

    async def reap(self, *, everything: bool = False) -> None:
        """End the turns of dead processes as interrupted, and tell their owners."""
        ended = await in_rows(transitions.reap, everything=everything, keep=list(self._running))
        for turn_id, conversation, end in ended:
            frame = wire.TurnFinished(outcome=end.outcome, message=end.message, error=end.error)
            announce_end(turn_id, frame)
            await hints.tell_owner(conversation, hints.turn_changed(turn_id, conversation.pk, end.outcome))
            await hints.tell_settled(end.settled)

    async def expire(self) -> None:
        """Close overdue questions; turns that waited for nothing else go on here."""
        await self._go_on(await in_rows(questions.expire))

    async def _go_on(self, expired: questions.Expired) -> None:
        for turn_id in expired.resumed:
            self.start(turn_id)
        await hints.tell_settled(expired.settled)

    # --- The end ---

    async def aclose(self, drain_seconds: float | None = None) -> None:
        """Take no new turns, give the running ones `drain_seconds`, end the rest as interrupted, stop the heartbeat."""
        self.draining = True
        tasks = {running.task for running in self._running.values()}
        if tasks:
            await asyncio.wait(
                tasks, timeout=settings.TURN["DRAIN_SECONDS"] if drain_seconds is None else drain_seconds
            )
        rest = list(self._running.values())
        for running in rest:
            running.turn.end_as(Message.Status.INTERRUPTED)
            running.task.cancel()
        if rest:
            await asyncio.wait({running.task for running in rest}, timeout=10)
        for task in (self._keeper, self._listener):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        self._keeper = self._listener = None


def announce_end(turn_id: UUID, frame: wire.TurnFinished) -> None:
    """Publish the end of a turn that has no task here, if somebody here follows it."""
    feed.current().end(turn_id, frame)


_supervisors: dict[asyncio.AbstractEventLoop, Supervisor] = {}


def current() -> Supervisor:
    """The supervisor of the running event loop."""
    loop = asyncio.get_running_loop()
    supervisor = _supervisors.get(loop)
    if supervisor is None:
        for other in [other for other in _supervisors if other.is_closed()]:
            del _supervisors[other]
        supervisor = _supervisors[loop] = Supervisor()
    return supervisor
