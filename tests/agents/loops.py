"""Driving the loop in tests: collect its events, react to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from agents.events import CallFinished, LoopEnded, LoopEvent, Noticed, RoundCompleted
from agents.loop import run_loop
from agents.parts import ModelMessage, text_message
from tests.fakes.models import ScriptedModel, ScriptedToolbox

HI = [text_message("system", "You help."), text_message("user", "hi")]
Decisions = asyncio.Queue[Any]
E = TypeVar("E")


async def collect(
    model: ScriptedModel,
    toolbox: ScriptedToolbox | None = None,
    *,
    react: Callable[[LoopEvent, Decisions], object] | None = None,
    messages: Sequence[ModelMessage] = HI,
    **options: Any,
) -> list[LoopEvent]:
    """Every event of one run; `react` sees each before the next is asked for, and may put answers into the queue."""
    decisions = options.setdefault("decisions", asyncio.Queue())
    events: list[LoopEvent] = []
    async with aclosing(run_loop(model, toolbox or ScriptedToolbox(), messages, **options)) as loop:
        async for event in loop:
            events.append(event)
            if react is not None:
                react(event, decisions)
    assert not model.faults, model.faults
    assert not model.open_streams
    return events


def of(kind: type[E], events: Sequence[LoopEvent]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


def end(events: Sequence[LoopEvent]) -> LoopEnded:
    """The end, which is the last event and the only one of its kind."""
    ends = of(LoopEnded, events)
    assert len(ends) == 1
    assert events[-1] is ends[0]
    return ends[0]


def results(events: Sequence[LoopEvent]) -> dict[str, Any]:
    """The result of each call, by the name of its tool (names are unique where this is used)."""
    names = {id: call.request.name for completed in of(RoundCompleted, events) for id, call in completed.calls}
    return {names[finished.call_id]: finished.result for finished in of(CallFinished, events)}


def notices(events: Sequence[LoopEvent]) -> list[str]:
    return [notice.code for notice in of(Noticed, events)]


def told(model: ScriptedModel, request: int = -1) -> list[str]:
    """The texts of the tool messages in a request to the model."""
    return [message.text for message in model.requests[request].messages if message.role == "tool"]
