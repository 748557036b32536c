"""The tool loop: stream a completion, run the calls it asks for, until the model answers or a limit is reached.

Pure: it yields events and neither saves nor sends. What it is given are two protocols, `ChatModel` and `Toolbox`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import cast
from uuid import UUID, uuid4

from agents.answers import Answer, CallCancelled, Decided, OpenCall, OpenRound
from agents.call_tasks import Tasks
from agents.context import (
    Answered,
    can_read_on,
    estimate_tokens,
    fit,
    input_budget,
    message_tokens,
    round_messages,
    shortened_notice,
    specs_tokens,
)
from agents.endings import Ending, cut_off_calls, ending, is_cut, withheld
from agents.events import (
    LoopEnded,
    LoopEvent,
    ModelNamed,
    Noticed,
    Outcome,
    ReasoningDelta,
    RoundBegun,
    RoundCompleted,
    StatusChanged,
    TextDelta,
    UsageReported,
)
from agents.limits import DEFAULT_LIMITS, NOTHING_SPENT, FailureCount, LimitReached, Limits, Spent
from agents.own_results import CUT_OFF, NO_TOOLS, TOO_MANY, WITHHELD, unrun
from agents.parts import (
    ArgumentsProgress,
    Completion,
    Finish,
    ImageContent,
    ModelEvent,
    ModelMessage,
    PreparedCall,
    ReasoningChunk,
    TextChunk,
    TextContent,
    TokenUsage,
    ToolRequest,
    ToolSpec,
    ToolStatus,
)
from agents.providers.chat_model import ChatModel, EndpointError, EndpointRequestError
from agents.rounds import Round, prepare_call
from agents.stopwatch import Stopwatch
from agents.toolbox import Toolbox
from chatui.errors import ChatUIError
from chatui.text import duration

__all__ = ["CallCancelled", "Decided", "Limits", "OpenCall", "OpenRound", "Spent", "run_loop"]

logger = logging.getLogger(__name__)

MAX_CUT_OFF_RETRIES = 2
TOOLS_REFUSED = "The model's endpoint did not accept tools. This answer is written without them."
_NAMES_TOOLS = re.compile(r"\btools?\b|tool_choice|tool[ _-]?call|function[ _-]?call|\bfunctions\b", re.IGNORECASE)


async def run_loop(
    model: ChatModel,
    toolbox: Toolbox,
    messages: Sequence[ModelMessage],
    *,
    limits: Limits = DEFAULT_LIMITS,
    spent: Spent = NOTHING_SPENT,
    open_round: OpenRound | None = None,
    decisions: asyncio.Queue[Answer],
    tools: bool = True,
    new_id: Callable[[], UUID] = uuid4,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncGenerator[LoopEvent, None]:
    """Run one turn, or go on with a parked one; the last event is `LoopEnded`, whatever happens.

    `messages` end with the user's message, or with the finished rounds after it; `open_round` is the round after
    those. `decisions` brings answers while calls run. `tools=False` is the user's wish for a plain answer.

    The consumer stores what an event says before it asks for the next one. Closing the generator (`aclosing`), or
    cancelling its consumer, cancels the running calls and closes the model's stream.
    """
    loop = _Loop(model, toolbox, messages, limits, spent, decisions, tools, new_id, clock)
    try:
        async with aclosing(loop.events(open_round)) as events:
            async for event in events:
                yield event
    except ChatUIError as error:
        yield loop.failed(error)
    except Exception:  # the boundary: whatever broke, the turn ends with what was shown
        logger.exception("the loop of a turn failed")
        yield loop.ended(Outcome.FAILED, "internal", "Something went wrong on our side.")
    finally:
        await loop.tasks.close()


class _Loop:
    """The state of one run: what the model has been told, what is spent, what was shown."""

    def __init__(
        self,
        model: ChatModel,
        toolbox: Toolbox,
        messages: Sequence[ModelMessage],
        limits: Limits,
        spent: Spent,
        decisions: asyncio.Queue[Answer],
        tools: bool,
        new_id: Callable[[], UUID],
        clock: Callable[[], float],
    ) -> None:
        self.model, self.toolbox, self.messages = model, toolbox, list(messages)
        self.limits, self.decisions, self.new_id = limits, decisions, new_id
        self.tasks = Tasks()
        self.watch = Stopwatch(spent.seconds, clock)
        self.rounds, self.calls = spent.rounds, spent.calls
        self.failures = FailureCount()
        self.tools_wanted, self.tools_accepted = tools, True
        self.shown = False
        self.model_named = ""
        self.specs_tokens = 0
        self.shortened = False
        self.cut_off_in_a_row = 0
        self.completion = Completion()
        self.end: LoopEnded | None = None

    # --- What is spent

    def seconds(self) -> float:
        return self.watch.seconds()

    def seconds_left(self) -> float:
        return self.limits.max_seconds - self.seconds()

    def limit_reached(self) -> LimitReached | None:
        if self.rounds >= self.limits.max_rounds:
            return LimitReached.ROUNDS
        if self.calls >= self.limits.max_calls:
            return LimitReached.CALLS
        if self.seconds_left() <= 0:
            return LimitReached.TIME
        if self.failures.highest >= self.limits.max_repeated_failures:
            return LimitReached.REPEATED_FAILURE
        return None

    def ended(self, outcome: Outcome, code: str = "", message: str = "", *, refusal: bool = False) -> LoopEnded:
        spent = Spent(self.rounds, self.calls, self.seconds())
        return LoopEnded(outcome, code, message, refusal=refusal, spent=spent)

    def failed(self, error: ChatUIError) -> LoopEnded:
        message = error.public_message
        detail = error.detail if isinstance(error, EndpointError) else ""
        if detail and detail not in message:
            message = f"{message} ({detail})"
        if isinstance(error, EndpointError) and error.retry_after:
            message = f"{message} It can be asked again in {duration(error.retry_after)}."
        return self.ended(Outcome.FAILED, error.code, message)

    # --- The steps

    async def events(self, open_round: OpenRound | None) -> AsyncGenerator[LoopEvent, None]:
        steps = self.first_answer() if open_round is None else self.go_on(open_round)
        while True:
            async with aclosing(steps):
                async for event in steps:
                    yield event
            if self.end is not None:
                yield self.end
                return
            reached = self.limit_reached()
            steps = self.next_round() if reached is None else self.close(reached)

    async def first_answer(self) -> AsyncGenerator[LoopEvent, None]:
        """The first round: as long as nothing was shown, an endpoint that refuses tools is asked without."""
        for notice in self.notices():
            yield notice
        refused: EndpointRequestError | None = None
        try:
            async with aclosing(self.next_round()) as steps:
                async for event in steps:
                    yield event
        except EndpointRequestError as error:
            if self.shown or not self.specs() or not _names_tools(error):
                raise
            refused = error
        if refused is not None:
            self.tools_accepted = False
            yield Noticed("tools_refused", TOOLS_REFUSED, refused.detail)

    async def go_on(self, open_round: OpenRound) -> AsyncGenerator[LoopEvent, None]:
        """Go on with a stored round."""
        self.failures = FailureCount(open_round.failures)
        self.rounds = max(self.rounds, open_round.number)
        round = self.new_round()
        round.resume(open_round.calls)
        stored = Completion(open_round.text, open_round.reasoning, trailing_text=open_round.trailing_text)
        async with aclosing(self.settle(round, stored)) as steps:
            async for event in steps:
                yield event

    async def next_round(self) -> AsyncGenerator[LoopEvent, None]:
        """Ask the model; run what it asks for, or end with its answer."""
        async with aclosing(self.complete(self.specs())) as steps:
            async for event in steps:
                yield event
        if not self.completion.requests:
            notices = self.finish(ending(self.completion))
        else:
            async with aclosing(self.run_calls()) as steps:
                async for event in steps:
                    yield event
            notices = self.after_calls()
        for notice in notices:
            yield notice

    def after_calls(self) -> list[Noticed]:
        """End the turn if a completion with calls must not be followed by another one."""
        if self.end is not None:
            return []
        if self.completion.finish is Finish.CONTENT_FILTER:
            return self.finish(withheld(self.completion))
        self.cut_off_in_a_row = self.cut_off_in_a_row + 1 if is_cut(self.completion) else 0
        if self.cut_off_in_a_row > MAX_CUT_OFF_RETRIES:
            return self.finish(cut_off_calls())
        return []

    def finish(self, end: Ending) -> list[Noticed]:
        """Make `end` the end of the turn; what people are told before it."""
        self.end = self.ended(end.outcome, end.code, end.message, refusal=end.refusal)
        return [end.notice] if end.notice else []

    def notices(self) -> list[Noticed]:
        if not self.tools_wanted:
            return [Noticed("tools_off", "Tools are off. This answer is written without them.")]
        if not self.model.capabilities.tools and self.toolbox.specs():
            text = f"{self.model.name} cannot use tools. This answer is written without them."
            return [Noticed("model_without_tools", text)]
        return []

    def specs(self) -> Sequence[ToolSpec]:
        offering = self.tools_wanted and self.tools_accepted and self.model.capabilities.tools
        return self.toolbox.specs() if offering else ()

    # --- A completion

    async def complete(self, specs: Sequence[ToolSpec], closing: str = "") -> AsyncGenerator[LoopEvent, None]:
        """Stream one completion into `self.completion`; `closing` is the sentence that the model is told why."""
        for event in self.fit(specs):
            yield event
        yield StatusChanged("thinking", "Thinking")
        completion: Completion | None = None
        messages = _with_hint(self.messages, closing) if closing else self.messages
        stream = self.model.stream(messages, specs, tool_choice="none" if closing else "auto")
        yield RoundBegun(messages, self.specs_tokens)
        async with aclosing(cast(AsyncGenerator[ModelEvent, None], stream)) as chunks:
            async for chunk in chunks:
                if self.model_named != self.model.name:
                    self.model_named = self.model.name
                    yield ModelNamed(self.model_named)
                match chunk:
                    case TextChunk(text) if text:
                        self.shown = True
                        yield TextDelta(text)
                    case ReasoningChunk(text) if text:
                        self.shown = True
                        yield ReasoningDelta(text)
                    case ArgumentsProgress():
                        yield StatusChanged("writing_call", chunk.words)
                    case Completion():
                        completion = chunk
        if completion is None:
            raise RuntimeError("the model's stream ended without a Completion")
        self.completion = completion
        yield UsageReported(completion.usage or self.estimated_usage())

    def fit(self, specs: Sequence[ToolSpec]) -> list[Noticed]:
        """Shorten what the model is told if this turn's results have outgrown its context; tell a person once."""
        self.specs_tokens = specs_tokens(specs)
        budget = input_budget(self.model.capabilities, self.specs_tokens)
        fitted = fit(self.messages, budget, readable=can_read_on(specs))
        self.messages = fitted.messages
        if not (fitted.cut or fitted.dropped) or self.shortened:
            return []
        self.shortened = True
        return [Noticed(*shortened_notice(fitted))]

    def estimated_usage(self) -> TokenUsage:
        completion = self.completion
        written = [completion.text, completion.trailing_text, completion.reasoning]
        written += [request.name + request.arguments for request in completion.requests]
        read = self.specs_tokens + sum(message_tokens(message) for message in self.messages)
        return TokenUsage(read, sum(map(estimate_tokens, written)), estimated=True)

    async def close(self, reached: LimitReached) -> AsyncGenerator[LoopEvent, None]:
        """The closing call: the model answers from what it has, without tools."""
        sentence = reached.sentence(self.limits)
        yield Noticed("limit_reached", sentence, reached.value)
        specs = () if self.model.capabilities.drop_tools_on_close else self.specs()
        async with aclosing(self.complete(specs, closing=sentence)) as steps:
            async for event in steps:
                yield event
        completion = self.completion
        if completion.trailing_text:  # it came after a call that nobody runs any more: part of the answer
            yield TextDelta(completion.trailing_text)
        elif not completion.text.strip():
            yield Noticed("empty_response", "The model gave no closing answer.")
        self.end = self.ended(Outcome.EXHAUSTED, reached.value, sentence, refusal=completion.refusal)

    # --- A round of calls

    async def run_calls(self) -> AsyncGenerator[LoopEvent, None]:
        """Run what the completion asks for."""
        self.rounds += 1
        prepared = await self.prepare(self.completion.requests)
        self.calls += len(prepared)
        calls = [(self.new_id(), call) for call in prepared]
        yield RoundCompleted(self.rounds, calls, self.completion.trailing_text)
        round = self.new_round()
        round.begin(calls)
        async with aclosing(self.settle(round, self.completion)) as steps:
            async for event in steps:
                yield event

    def new_round(self) -> Round:
        return Round(
            self.toolbox,
            self.decisions,
            self.tasks,
            max_parallel=self.limits.max_parallel_calls,
            seconds_left=self.seconds_left,
            watch=self.watch,
        )

    async def settle(self, round: Round, completion: Completion) -> AsyncGenerator[LoopEvent, None]:
        """Run the round until it is finished (then the model's messages grow by it) or parked."""
        async with aclosing(round.events()) as events:
            async for event in events:
                yield event
        if round.parked:
            self.end = self.ended(Outcome.PARKED)
            return
        calls = round.finished()
        self.failures.record((call.key, result.status is ToolStatus.OK) for call, result in calls)
        self.messages += round_messages(
            completion.text,
            [Answered(call.request, result, call.arguments) for call, result in calls],
            trailing_text=completion.trailing_text,
            reasoning=completion.reasoning,
            images=self.model.capabilities.images,
        )

    async def prepare(self, requests: Sequence[ToolRequest]) -> list[PreparedCall]:
        """Every request looked at by the toolbox, together; those that must not run are finished already."""
        async with asyncio.TaskGroup() as group:
            looking = [
                group.create_task(prepare_call(self.toolbox, request), name=f"tool call: prepare {request.name}")
                for request in requests
            ]
        completion, room = self.completion, self.limits.max_calls - self.calls
        prepared = []
        for position, task in enumerate(looking):
            call = task.result()
            is_last = position == len(looking) - 1
            cut = is_last and completion.finish in (Finish.LENGTH, Finish.CUT)
            if cut or not call.request.complete:
                call = unrun(call, "cut off", CUT_OFF)
            elif completion.finish is Finish.CONTENT_FILTER:
                call = unrun(call, "content filter", WITHHELD)
            elif not self.specs():
                call = unrun(call, "no tools are offered", NO_TOOLS)
            elif position >= room:
                call = unrun(call, "limit of calls", TOO_MANY)
            prepared.append(call)
        return prepared


def _names_tools(error: EndpointError) -> bool:
    return bool(_NAMES_TOOLS.search(f"{error} {error.detail}"))


def _with_hint(messages: Sequence[ModelMessage], sentence: str) -> list[ModelMessage]:
    """`messages`, the last tool result saying that it is the last: a further message could break the order of roles."""
    if not messages or messages[-1].role != "tool":
        return list(messages)
    last, hint = messages[-1], f"[{sentence} No more tools can be called: answer now from what you have.]"
    images = [part for part in last.content if isinstance(part, ImageContent)]
    return [*messages[:-1], replace(last, content=(TextContent(f"{last.text}\n\n{hint}"), *images))]
