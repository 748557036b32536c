"""`TurnTask`: one turn while it runs here, from plan to end: events of the loop become rows and numbered frames."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar
from uuid import UUID

from django.conf import settings

from agents import events
from agents.loop import CallCancelled, Decided, Spent, run_loop
from agents.own_tools import TurnToolbox
from agents.parts import PersonNeeded, PreparedCall
from agents.providers.openai_chat import OpenAIChatModel
from agents.stopwatch import Stopwatch
from chatui.errors import ChatUIError
from chatui.rows import in_rows
from conversations import cards, hints, plans, questions, rounds, spending, transitions, wire
from conversations.briefing import briefing, limits
from conversations.checkpoints import Checkpoints
from conversations.coalescing import Coalescer
from conversations.drafts import Draft
from conversations.feed import TurnFeed
from conversations.frame_bounds import bounded
from conversations.metering import Meter, Used
from conversations.models import Message, Question
from conversations.plans import TurnPlan
from conversations.toolboxes import open_turn_toolbox
from conversations.transitions import Progress

T = TypeVar("T")
logger = logging.getLogger(__name__)

CONNECTING_AFTER = 0.25  # seconds after which a person is told that servers are being connected


class TurnTask:
    """The work of one `turn-<id>` task.

    Text deltas are coalesced: the first leaves at once, later ones every `COALESCE_SECONDS`. What was shown is stored
    at round boundaries and at least every `CHECKPOINT_SECONDS`, never per token. The end is one shielded step.
    """

    def __init__(
        self,
        turn_id: UUID,
        process: str,
        feed: TurnFeed,
        checkpoints: Checkpoints,
        *,
        started: wire.TurnStarted | None = None,
        plan: TurnPlan | None = None,
    ) -> None:
        self.turn_id, self._process, self._feed, self._started = turn_id, process, feed, started
        self._checkpoints = checkpoints
        self._ready = plan  # of a turn that was claimed and planned when it was begun
        self.decisions: asyncio.Queue[Decided | CallCancelled] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._out = Coalescer(turn_id, feed, settings.TURN["COALESCE_SECONDS"])
        self._plan: TurnPlan | None = None
        self._draft = Draft()
        self._ending = Message.Status.INTERRUPTED
        self._meter: Meter | None = None
        self._model_name = ""
        self._round = 1
        self._toolbox: TurnToolbox | None = None
        self._offered: dict[str, list[str]] = {}  # as it is stored with the turn
        self._unstarted: dict[UUID, PreparedCall] = {}
        self._asked: dict[UUID, rounds.StoredQuestion] = {}
        self._live: set[UUID] = set()  # running calls that ask
        self._watch = Stopwatch(0.0, self._loop.time)
        if started is not None:
            feed.open(turn_id, 0)
            feed.publish(turn_id, started)

    @property
    def asking(self) -> bool:
        """Whether a question is open while the task runs: answers may come through other processes."""
        return bool(self._asked)

    def end_as(self, status: Message.Status) -> None:
        """What the turn becomes when its task is cancelled."""
        self._ending = status

    # --- From beginning to end ---

    async def run(self) -> None:
        """Run until the turn ends or waits. Never raises but for cancellation, and then the turn has been ended."""
        error: dict[str, Any] | None = None
        cancelled = False
        try:
            outcome = await self._drive()
            if outcome is None:
                return
            status, error = outcome
        except asyncio.CancelledError:
            cancelled, status = True, self._ending
            if status is Message.Status.INTERRUPTED:
                error = self._error("interrupted", "The server was restarted while this answer was being written.")
        except ChatUIError as failure:
            status, error = Message.Status.FAILED, self._error(failure.code, failure.public_message)
        except Exception:  # the boundary between a turn and the process: a person gets a reference, the log the rest
            reference = secrets.token_hex(4)
            logger.exception("Turn %s failed unexpectedly (reference %s)", self.turn_id, reference)
            status = Message.Status.FAILED
            error = self._error("internal", f"Something went wrong on our side (reference {reference}).")
        finishing = self._loop.create_task(self._finish(status, error), name=f"turn-{self.turn_id}-end")
        try:
            await asyncio.shield(finishing)
        except asyncio.CancelledError:
            await finishing
            raise
        if cancelled and self._ending is not Message.Status.STOPPED:
            raise asyncio.CancelledError

    async def _drive(self) -> tuple[Message.Status, dict[str, Any] | None] | None:
        """Drive the loop to its end; None when the turn is parked or no longer ours."""
        while True:
            self.decisions = asyncio.Queue()  # what was answered before the plan is loaded is in its rows
            plan, self._ready = self._ready, None
            if plan is None:
                if not await in_rows(transitions.claim, self.turn_id, self._process):
                    return None
                plan = await self._load()
            ended = await self._once(plan)
            if ended.outcome is not events.Outcome.PARKED:
                status = Message.Status(ended.outcome.value)
                error = self._error(ended.code, ended.message) if status is Message.Status.FAILED else None
                return status, error
            self._out.flush()
            await self._checkpoints.settle(self.turn_id)
            seq = (self._feed.last_seq(self.turn_id) or 0) + 1
            waiting = await in_rows(transitions.park, self.turn_id, self._process, self._progress(seq))
            if waiting is not None:
                await self._announce_waiting(waiting)
                return None
            if await in_rows(transitions.stop_was_requested, self.turn_id):
                return Message.Status.STOPPED, None

    async def _load(self) -> TurnPlan:
        if self._started is None and self._plan is None:
            self._feed.open(self.turn_id, await in_rows(transitions.last_seq, self.turn_id))
            self._feed.publish(self.turn_id, wire.TurnResumed())
        return await in_rows(plans.load, self.turn_id)

    async def _once(self, plan: TurnPlan) -> events.LoopEnded:
        """Open the toolbox, and run the loop until it ends or parks."""
        self._plan, turn = plan, plan.turn
        self._draft = Draft(turn.message.parts)
        model = OpenAIChatModel(plan.model, when_asked=lambda: self._checkpoints.due(self.turn_id, self._shown))
        self._meter = Meter(turn.usage, plan.model, model)
        self._watch = Stopwatch(turn.running_seconds, self._loop.time)
        self._round = turn.rounds + 1
        self._asked = {
            call.pk: rounds.StoredQuestion(question.pk, question.expires_at.isoformat(), question.kind)
            for call in plan.calls.get(turn.message_id, ())
            for question in call.questions.all()
            if question.state == Question.State.OPEN
            or (question.state == Question.State.ANSWERED and question.kind != Question.Kind.APPROVAL)
        }
        for frame in cards.ended_frames(plan):
            self._out.publish(frame)
        toolbox = await self._open_toolbox(plan)
        try:
            told = briefing(plan, model, toolbox)
            if self._started is not None and not turn.rounds:
                for words in turn.options.get("warnings", ()):
                    self._notice("budget_nearly_used", words)
            for notice in told.notices:
                self._notice(notice.code, notice.message, notice.detail)
            for sign_in in told.sign_ins:
                self._out.publish(cards.sign_in_frame(sign_in))
            self._toolbox, toolbox.images = toolbox, told.images
            ended = events.LoopEnded(events.Outcome.INTERRUPTED)
            loop_events = run_loop(
                model,
                toolbox,
                told.messages,
                limits=limits(plan),
                spent=Spent(turn.rounds, turn.calls_made, turn.running_seconds),
                open_round=told.open_round,
                decisions=self.decisions,
                tools=bool(turn.options.get("tools", True)),
            )
            async with aclosing(loop_events):
                async for event in loop_events:
                    if isinstance(event, events.LoopEnded):
                        ended = event
                        if event.refusal:
                            self._draft.mark_refusal()
                        break
                    await self._handle(event)
            return ended
        finally:
            await toolbox.aclose()

    async def _open_toolbox(self, plan: TurnPlan) -> TurnToolbox:
        opening = self._loop.create_task(open_turn_toolbox(plan), name=f"turn-{self.turn_id}-toolbox")
        try:
            done, _ = await asyncio.wait({opening}, timeout=CONNECTING_AFTER)
            if not done:
                self._out.publish(wire.Status(code="connecting", label="Connecting to tools"))
            return await opening
        except asyncio.CancelledError:
            opening.cancel()
            await asyncio.wait({opening})
            if not opening.cancelled() and opening.exception() is None:  # it was open at that very moment
                await opening.result().aclose()
            raise

    # --- Events ---

    async def _handle(self, event: events.LoopEvent) -> None:
        match event:
            case events.TextDelta(text=text):
                self._draft.add_text(text, self._round)
                self._out.text(text)
                self._checkpoints.due(self.turn_id, self._shown)
                await self._out.breathe()
            case events.ReasoningDelta(text=text):
                self._draft.add_reasoning(text, self._round)
                self._out.reasoning(text)
                self._checkpoints.due(self.turn_id, self._shown)
                await self._out.breathe()
            case events.RoundCompleted():
                await self._store_round(event)
            case events.CallStarted(call_id=call_id, call=call):
                await in_rows(rounds.start_call, call_id, call.arguments)
                self._unstarted.pop(call_id, None)
                self._out.publish(_call_started(call_id, call))
                self._out.publish(wire.Status(code="calling", label=f"Using {call.title or call.tool}"))
            case events.CallAsked(call_id=call_id, call=call, needed=needed, live=live, again=again):
                await self._ask(call_id, call, needed, live, again)
            case events.CallAnswered():
                await self._tell_answer(event)
            case events.CallProgressed(call_id=call_id, progress=progress, total=total, message=message):
                self._out.publish(wire.CallProgress(call_id=call_id, progress=progress, total=total, message=message))
            case events.CallFinished(call_id=call_id, result=result):
                await self._finish_call(call_id, result)
            case events.StatusChanged(code=code, label=label):
                self._out.publish(wire.Status(code=code, label=label))
            case events.Noticed(code=code, message=message, detail=detail):
                self._notice(code, message, detail)
            case events.RoundBegun():
                assert self._meter is not None
                self._meter.begin(event)
            case events.UsageReported(usage=usage):
                assert self._meter is not None
                self._tell_usage(self._meter.add(usage))
            case events.ModelNamed(model=name):
                self._model_name = name

    async def _store_round(self, event: events.RoundCompleted) -> None:
        assert self._plan is not None
        self._out.flush()
        for call_id, call in event.calls:
            self._draft.add_call(call_id, event.round)
            self._unstarted[call_id] = call
        if event.trailing_text:
            self._draft.add_trailing(event.trailing_text, event.round)
        await self._checkpoints.settle(self.turn_id)
        offered = self._toolbox.offered if self._toolbox is not None else {}
        stored = await in_rows(
            spending.store_round,
            self._plan.actor,
            self._plan.turn,
            event.round,
            event.calls,
            self._progress(self._out.last_seq),
            None if offered == self._offered else offered,
        )
        for words in stored.warnings:
            self._notice("budget_nearly_used", words)
        self._offered = offered
        self._asked.update(stored.questions)
        self._round = event.round + 1

    async def _ask(
        self, call_id: UUID, call: PreparedCall, needed: PersonNeeded | None, live: bool, again: bool
    ) -> None:
        assert self._plan is not None
        self._unstarted.pop(call_id, None)
        question = None if again else self._asked.get(call_id)
        if question is None or question.kind != (needed.kind if needed else Question.Kind.APPROVAL):
            asking = in_rows(rounds.ask, self._plan.turn, call_id, call, needed, live=live)
            question = self._asked[call_id] = await asking
        self._out.publish(cards.frame_of(call_id, call, question, needed))
        if live:
            await self._wait_live(call_id, question)
        changed = hints.question_changed(question.id, question.kind, Question.State.OPEN, self.turn_id)
        conversation = self._plan.turn.conversation
        people = (conversation.owner_id, *question.approvers)
        await hints.tell_people(people, conversation.organization_id, changed)

    async def _tell_answer(self, event: events.CallAnswered) -> None:
        question = self._asked.pop(event.call_id, None)
        self._out.publish(cards.answer_frame(event, question))
        if event.given_up and question is not None:
            await hints.tell_settled(await in_rows(questions.give_up, question.id))
        await self._go_on(event.call_id)

    async def _wait_live(self, call_id: UUID, question: rounds.StoredQuestion) -> None:
        """The call itself waits, and the turn goes on: people are told that it is their turn all the same."""
        if not self._live:
            self._watch.pause()
        self._live.add(call_id)
        self._out.publish(wire.TurnWaiting(reason=question.kind, ids=[call_id]))
        await self._tell_status(Message.Status.WAITING)

    async def _go_on(self, call_id: UUID) -> None:
        """The running call asks no more."""
        if call_id not in self._live:
            return
        self._live.discard(call_id)
        if not self._live:
            self._watch.resume()
            self._out.publish(wire.TurnResumed())
            await self._tell_status(Message.Status.RUNNING)

    def awaits(self, call_id: UUID, question_id: UUID) -> bool:
        """Whether that question of the call is the one that is open here: an answer to another comes too late."""
        question = self._asked.get(call_id)
        return question is not None and question.id == question_id

    async def _finish_call(self, call_id: UUID, result: Any) -> None:
        assert self._plan is not None
        asked = self._asked.pop(call_id, None) is not None
        stored = await in_rows(rounds.finish_call, self._plan.turn, call_id, result, asked=asked)
        await self._go_on(call_id)
        refused = self._unstarted.pop(call_id, None)
        if refused is not None:  # it ended before it began: its reader has not heard of it yet
            self._out.publish(_call_started(call_id, refused))
        self._out.publish(
            wire.CallFinished(
                call_id=call_id,
                status=result.status.value,
                content=stored.content,
                artifacts=stored.artifacts,
                duration_ms=result.duration_ms,
                **(stored.decided_by.told() if stored.decided_by else {}),
            )
        )
        await hints.tell_settled(stored.settled)

    def _notice(self, code: str, message: str, detail: str = "") -> None:
        self._out.flush()
        self._draft.add_notice(code, message, detail)
        self._out.publish(wire.Notice(code=code, message=message, detail=detail))

    def _tell_usage(self, used: Used) -> None:
        self._out.publish(
            wire.Usage(**{key: used[key] for key in ("input_tokens", "output_tokens", "cost", "estimated")})
        )

    def _count_cut_round(self) -> None:
        """A round that was stopped, or failed, on its way has cost what was sent and what came, whoever says so."""
        used = self._meter.cut(self._draft.written_in(self._round)) if self._meter is not None else None
        if used is not None:
            self._tell_usage(used)

    # --- Waiting and rows ---

    async def _announce_waiting(self, calls: Sequence[UUID]) -> None:
        assert self._plan is not None
        kinds = [self._asked[call_id].kind for call_id in calls if call_id in self._asked]
        reason = kinds[0] if kinds else Question.Kind.APPROVAL
        self._feed.publish(self.turn_id, wire.TurnWaiting(reason=reason, ids=list(calls)))
        self._feed.rest(self.turn_id)
        await self._tell_status(Message.Status.WAITING)

    async def _tell_status(self, status: Message.Status) -> None:
        assert self._plan is not None
        conversation = self._plan.turn.conversation
        await hints.tell_owner(conversation, hints.turn_changed(self.turn_id, conversation.pk, status))

    def _progress(self, seq: int) -> Progress:
        used = self._meter.so_far(self._draft.written_in(self._round)) if self._meter is not None else {}
        return Progress(self._draft.parts(), seq, used, self._watch.seconds(), self._model_name)

    def _shown(self) -> Progress:
        self._out.flush()
        return self._progress(self._out.last_seq)

    def _error(self, code: str, message: str) -> dict[str, Any]:
        request_id = str(self._plan.turn.request_id) if self._plan is not None else None
        return {"code": code or "failed", "message": message, "request_id": request_id}

    async def _finish(self, status: Message.Status, error: dict[str, Any] | None) -> None:
        """Commit, then announce."""
        self._out.flush()
        self._count_cut_round()
        await self._checkpoints.settle(self.turn_id)
        if self._feed.last_seq(self.turn_id) is None:
            self._feed.open(self.turn_id, await in_rows(transitions.last_seq, self.turn_id))
        turn = self._plan.turn if self._plan is not None else None
        progress = self._progress(self._out.last_seq + 1) if turn is not None else None
        ended = await _persistently(
            lambda: in_rows(transitions.end, self.turn_id, status, progress, error=error, turn=turn)
        )
        if ended is not None:
            self._feed.publish(
                self.turn_id, wire.TurnFinished(outcome=ended.outcome, message=ended.message, error=ended.error)
            )
        self._feed.close(self.turn_id)
        if ended is not None and self._plan is not None:
            conversation = self._plan.turn.conversation
            changed = hints.turn_changed(self.turn_id, conversation.pk, ended.outcome)
            await hints.tell_owner(conversation, changed)
            await hints.tell_settled(ended.settled)


async def _persistently(
    step: Callable[[], Awaitable[transitions.Ended | None]], attempts: int = 5
) -> transitions.Ended | None:
    """The end of a turn must reach the database: a connection that broke is tried again."""
    for attempt in range(attempts):
        try:
            return await step()
        except Exception:  # whatever the database raised; the last one goes up
            if attempt == attempts - 1:
                raise
            logger.exception("The end of a turn could not be stored; trying again")
            await asyncio.sleep(0.2 * 2**attempt)
    raise AssertionError("unreachable")


def _call_started(call_id: UUID, call: PreparedCall) -> wire.CallStarted:
    return wire.CallStarted(
        call_id=call_id,
        server=call.server,
        server_title=call.server_title,
        tool=call.tool or call.request.name,
        title=call.title or call.tool or call.request.name,
        arguments=bounded(call.arguments if call.arguments is not None else call.request.arguments, call_id),
    )
