"""The tool loop: stream a completion, run the calls it asks for, until the model answers or a limit is reached.

Pure: it yields events and neither saves nor sends. What it is given are two protocols, `ChatModel` and `Toolbox`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import cast
from uuid import UUID, uuid4

from agents.context import (
    assistant_message,
    estimate_tokens,
    fit,
    input_budget,
    message_tokens,
    shortened_notice,
    tool_messages,
)
from agents.events import (
    LoopEnded,
    LoopEvent,
    ModelNamed,
    Noticed,
    Outcome,
    ReasoningDelta,
    RoundCompleted,
    StatusChanged,
    TextDelta,
    UsageReported,
)
from agents.limits import DEFAULT_LIMITS, NOTHING_SPENT, FailureCount, LimitReached, Limits, Spent
from agents.parts import (
    ArgumentsProgress,
    Completion,
    Decision,
    Finish,
    ModelEvent,
    ModelMessage,
    PreparedCall,
    ReasoningChunk,
    TextChunk,
    TextContent,
    TokenUsage,
    ToolRequest,
    ToolResult,
    ToolSpec,
    ToolStatus,
)
from agents.providers.chat_model import ChatModel, EndpointError, EndpointRequestError
from agents.rounds import Answer, CallCancelled, Decided, OpenCall, OpenRound, Round, Tasks, prepare_call
from agents.toolbox import Toolbox
from chatui.errors import ChatUIError

__all__ = ["CallCancelled", "Decided", "Limits", "OpenCall", "OpenRound", "Spent", "run_loop"]

logger = logging.getLogger(__name__)

MAX_CUT_OFF_RETRIES = 2
_NAMES_TOOLS = re.compile(r"\btools?\b|tool_choice|tool[ _-]?call|function[ _-]?call|\bfunctions\b", re.IGNORECASE)

CUT_OFF = ToolResult(
    ToolStatus.ERROR,
    "not run: the call was cut off before it was complete. Make a smaller call, or split it into several.",
)
WITHHELD = ToolResult(ToolStatus.ERROR, "not run: the provider's content filter stopped the answer.")
NO_TOOLS = ToolResult(ToolStatus.ERROR, "not run: no tools are available. Answer without them.")
OVER_THE_LIMIT = ToolResult(ToolStatus.ERROR, "not run: the limit of tool calls for one turn was reached.")


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
    """Run one turn, or go on with a parked one; the last event is `LoopEnded`, whatever happens (SPEC L).

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
        yield loop.ended(Outcome.FAILED, "internal_error", "Something went wrong on our side.")
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
        self.limits, self.decisions, self.new_id, self.clock = limits, decisions, new_id, clock
        self.tasks = Tasks()
        self.began, self.before = clock(), spent
        self.rounds, self.calls = spent.rounds, spent.calls
        self.failures = FailureCount()
        self.tools_wanted, self.tools_accepted = tools, True
        self.shown = False
        self.model_named = ""
        self.specs_tokens = 0
        self.shortened = False
        self.cut_off_in_a_row = 0
        self.completion = Completion()
        self.parked = False

    # --- What is spent

    def seconds(self) -> float:
        return self.before.seconds + self.clock() - self.began

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
        return self.ended(Outcome.FAILED, error.code, message)

    # --- The steps

    async def events(self, open_round: OpenRound | None) -> AsyncGenerator[LoopEvent, None]:
        if open_round is not None:
            self.shown = True
            self.failures = FailureCount(open_round.failures)
            self.rounds = max(self.rounds, open_round.number)
            async for event in self.go_on(open_round):
                yield event
            if self.parked:
                yield self.ended(Outcome.PARKED)
                return
        else:
            for notice in self.notices():
                yield notice
        while True:
            reached = self.limit_reached()
            if reached is not None:
                async for event in self.close(reached):
                    yield event
                return
            refused: EndpointRequestError | None = None
            try:
                async for event in self.complete(self.specs()):
                    yield event
            except EndpointRequestError as error:
                if self.shown or not self.specs() or not _names_tools(error):
                    raise
                refused = error
            if refused is not None:
                self.tools_accepted = False
                yield Noticed(
                    "tools_refused",
                    "The model's endpoint did not accept tools. This answer is written without them.",
                    refused.detail,
                )
                continue
            if not self.completion.requests:
                for event in self.final():
                    yield event
                return
            async for event in self.run_calls():
                yield event
            if self.parked:
                yield self.ended(Outcome.PARKED)
                return
            stopped = self.stopped_by_finish()
            if stopped:
                for event in stopped:
                    yield event
                return

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
        async with aclosing(cast(AsyncGenerator[ModelEvent, None], stream)) as chunks:
            async for chunk in chunks:
                if self.model_named != self.model.name:
                    self.model_named = self.model.name
                    yield ModelNamed(self.model_named)
                match chunk:
                    case TextChunk(text):
                        self.shown = True
                        yield TextDelta(text)
                    case ReasoningChunk(text):
                        self.shown = True
                        yield ReasoningDelta(text)
                    case ArgumentsProgress(name, characters):
                        yield StatusChanged("writing_call", f"Writing a call of {name} ({characters} characters)")
                    case Completion():
                        completion = chunk
        if completion is None:
            raise RuntimeError("the model's stream ended without a Completion")
        self.completion = completion
        yield UsageReported(completion.usage or self.estimated_usage())

    def fit(self, specs: Sequence[ToolSpec]) -> list[Noticed]:
        """Shorten what the model is told if this turn's results have outgrown its context; tell a person once."""
        self.specs_tokens = _specs_tokens(specs)
        fitted = fit(self.messages, input_budget(self.model.capabilities, self.specs_tokens))
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

    def final(self) -> list[LoopEvent]:
        """How a completion without tool calls ends the turn."""
        completion, empty = self.completion, not self.completion.text.strip()
        match completion.finish:
            case Finish.LENGTH:
                notice = Noticed("empty_response", "The model reached its output limit before it wrote an answer.")
                return [*([notice] if empty else []), self.ended(Outcome.TRUNCATED, "length")]
            case Finish.CUT if empty:
                return [
                    self.ended(
                        Outcome.FAILED, "endpoint_unavailable", "The model endpoint ended the stream without an answer."
                    )
                ]
            case Finish.CUT:
                return [
                    Noticed("answer_cut", "The connection to the model ended before the answer was complete."),
                    self.ended(Outcome.TRUNCATED, "cut"),
                ]
            case Finish.CONTENT_FILTER:
                return self.withheld()
        if completion.refusal:
            return [
                Noticed("refusal", "The model declined to answer."),
                self.ended(Outcome.COMPLETED, refusal=True),
            ]
        if empty:
            return [Noticed("empty_response", "The model gave an empty answer."), self.ended(Outcome.COMPLETED)]
        return [self.ended(Outcome.COMPLETED)]

    def withheld(self) -> list[LoopEvent]:
        if self.completion.text.strip():
            text = "The provider's content filter withheld the rest of the answer."
            return [Noticed("content_filter", text), self.ended(Outcome.COMPLETED)]
        text = "The provider's content filter withheld the answer."
        return [Noticed("content_filter", text), self.ended(Outcome.FAILED, "content_filter", text)]

    async def close(self, reached: LimitReached) -> AsyncGenerator[LoopEvent, None]:
        """The closing call: the model answers from what it has, without tools."""
        sentence = reached.sentence(self.limits)
        yield Noticed("limit_reached", sentence, reached.value)
        specs = () if self.model.capabilities.drop_tools_on_close else self.specs()
        async for event in self.complete(specs, closing=sentence):
            yield event
        if not self.completion.text.strip():
            yield Noticed("empty_response", "The model gave no closing answer.")
        yield self.ended(Outcome.EXHAUSTED, reached.value, sentence)

    # --- A round of calls

    async def run_calls(self) -> AsyncGenerator[LoopEvent, None]:
        """Run what the completion asks for."""
        self.shown = True
        self.rounds += 1
        prepared = await self.prepare(self.completion.requests)
        self.calls += len(prepared)
        calls = [(self.new_id(), call) for call in prepared]
        yield RoundCompleted(self.rounds, calls, self.completion.trailing_text)
        round = self.new_round()
        round.begin(calls)
        async for event in self.settle(round, self.completion):
            yield event

    async def go_on(self, open_round: OpenRound) -> AsyncGenerator[LoopEvent, None]:
        """Go on with a stored round."""
        round = self.new_round()
        round.resume(open_round.calls)
        stored = Completion(open_round.text, open_round.reasoning, trailing_text=open_round.trailing_text)
        async for event in self.settle(round, stored):
            yield event

    def new_round(self) -> Round:
        return Round(
            self.toolbox,
            self.decisions,
            self.tasks,
            max_parallel=self.limits.max_parallel_calls,
            seconds_left=self.seconds_left,
        )

    async def settle(self, round: Round, completion: Completion) -> AsyncGenerator[LoopEvent, None]:
        """Run the round until it is finished (then the model's messages grow by it) or parked."""
        async with aclosing(round.events()) as events:
            async for event in events:
                yield event
        self.parked = round.parked
        if self.parked:
            return
        calls = list(round.calls.values())
        results = [(call.request, call.result) for call in calls if call.result is not None]
        self.failures.record((call.key, call.result.status is ToolStatus.OK) for call in calls if call.result)
        self.messages.append(
            assistant_message(
                completion.text, completion.trailing_text, completion.reasoning, [request for request, _ in results]
            )
        )
        self.messages.extend(tool_messages(results, images=self.model.capabilities.images))

    async def prepare(self, requests: Sequence[ToolRequest]) -> list[PreparedCall]:
        """Every request looked at by the toolbox, together; those that must not run are finished already."""
        async with asyncio.TaskGroup() as group:
            looking = [group.create_task(prepare_call(self.toolbox, request)) for request in requests]
        completion, room = self.completion, self.limits.max_calls - self.calls
        prepared = []
        for position, task in enumerate(looking):
            call = task.result()
            is_last = position == len(looking) - 1
            cut = completion.finish in (Finish.LENGTH, Finish.CUT) and is_last
            if cut or not call.request.complete:
                call = _refuse(call, "cut off", CUT_OFF)
            elif completion.finish is Finish.CONTENT_FILTER:
                call = _refuse(call, "content filter", WITHHELD)
            elif not self.specs():
                call = _refuse(call, "no tools are offered", NO_TOOLS)
            elif position >= room:
                call = _refuse(call, "limit of calls", OVER_THE_LIMIT)
            prepared.append(call)
        return prepared

    def stopped_by_finish(self) -> list[LoopEvent]:
        """The end of the turn, if a completion with calls must not be followed by another."""
        completion = self.completion
        if completion.finish is Finish.CONTENT_FILTER:
            return self.withheld()
        cut = completion.finish in (Finish.LENGTH, Finish.CUT)
        if not cut and all(request.complete for request in completion.requests):
            self.cut_off_in_a_row = 0
            return []
        self.cut_off_in_a_row += 1
        if self.cut_off_in_a_row <= MAX_CUT_OFF_RETRIES:
            return []
        text = "The model's tool call was cut off every time before it was complete. It was not run."
        return [Noticed("call_cut_off", text), self.ended(Outcome.TRUNCATED, "call_cut_off")]


def _refuse(call: PreparedCall, reason: str, result: ToolResult) -> PreparedCall:
    return replace(call, decision=Decision.DENY, reason=reason, result=result)


def _names_tools(error: EndpointError) -> bool:
    return bool(_NAMES_TOOLS.search(f"{error} {error.detail}"))


def _with_hint(messages: Sequence[ModelMessage], sentence: str) -> list[ModelMessage]:
    """`messages`, the last tool result saying that it is the last: a further message could break the order of roles."""
    if not messages or messages[-1].role != "tool":
        return list(messages)
    hint = TextContent(f"\n\n[{sentence} No more tools can be called: answer now from what you have.]")
    text, *rest = messages[-1].content
    return [*messages[:-1], replace(messages[-1], content=(text, hint, *rest))]


def _specs_tokens(specs: Sequence[ToolSpec]) -> int:
    return sum(estimate_tokens(spec.name + spec.description + json.dumps(spec.parameters)) + 8 for spec in specs)
