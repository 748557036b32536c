"""The tool loop: rounds, order, answers from people, limits, ends. Every sentence is a rule of SPEC L or T."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

from agents.events import CallAsked, CallFinished, CallStarted, LoopEnded, LoopEvent, Outcome, RoundCompleted, TextDelta
from agents.loop import Decided, run_loop
from agents.parts import Decision, ToolStatus, text_message
from tests.fakes.models import ScriptedModel, ScriptedToolbox, call

HI = [text_message("system", "You help."), text_message("user", "hi")]


async def collect(model: ScriptedModel, toolbox: ScriptedToolbox | None = None, **options: Any) -> list[LoopEvent]:
    options.setdefault("decisions", asyncio.Queue())
    events: list[LoopEvent] = []
    async with aclosing(run_loop(model, toolbox or ScriptedToolbox(), HI, **options)) as loop:
        async for event in loop:
            events.append(event)
    return events


def of(kind: type, events: list[LoopEvent]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


async def test_an_answer_without_calls_is_final():
    model = ScriptedModel(["Hel", "lo"])
    events = await collect(model)
    assert [event.text for event in of(TextDelta, events)] == ["Hel", "lo"]
    assert events[-1].outcome is Outcome.COMPLETED
    assert len(model.requests) == 1


async def test_a_call_is_run_and_its_result_given_to_the_model():
    model = ScriptedModel(["Let me look.", call("clock")], ["It is noon."])
    toolbox = ScriptedToolbox({"clock": "12:00"})
    events = await collect(model, toolbox)
    assert toolbox.called == [("clock", {})]
    assistant, tool = model.requests[1].messages[-2:]
    assert assistant.text == "Let me look."
    assert tool.text == "12:00"
    assert not model.faults
    assert events[-1].outcome is Outcome.COMPLETED


async def test_an_open_question_parks_the_turn():
    toolbox = ScriptedToolbox({"send": "sent"}, {"send": Decision.ASK})
    events = await collect(ScriptedModel([call("send")]), toolbox)
    assert len(of(CallAsked, events)) == 1
    assert events[-1].outcome is Outcome.PARKED
    assert not toolbox.called


async def test_an_answer_that_comes_while_a_sibling_runs_is_picked_up():
    gate = asyncio.Event()
    toolbox = ScriptedToolbox({"slow": gate, "send": "sent"}, {"send": Decision.ASK})
    model = ScriptedModel([call("slow"), call("send")], ["ok"])
    decisions: asyncio.Queue[Any] = asyncio.Queue()
    events = []
    async with aclosing(run_loop(model, toolbox, HI, decisions=decisions)) as loop:
        async for event in loop:
            events.append(event)
            match event:
                case CallAsked():
                    decisions.put_nowait(Decided(event.call_id, allowed=True))
                case CallFinished():
                    gate.set()
    assert [finished.result.text for finished in of(CallFinished, events)] == ["sent", "done"]
    assert [message.text for message in model.requests[1].messages[-2:]] == ["done", "sent"]
    assert not model.faults


async def test_closing_the_loop_cancels_the_calls_and_the_stream():
    toolbox = ScriptedToolbox({"slow": asyncio.Event()})
    async with aclosing(run_loop(ScriptedModel([call("slow")]), toolbox, HI, decisions=asyncio.Queue())) as loop:
        async for event in loop:
            if isinstance(event, CallStarted):
                break
        waiting = asyncio.ensure_future(anext(loop))
        await toolbox.started["slow"].wait()
        waiting.cancel()
        await asyncio.wait({waiting})
    assert toolbox.cancelled == ["slow"]
    assert len(asyncio.all_tasks()) == 1


async def test_a_bug_of_the_toolbox_becomes_the_error_of_its_call_alone():
    toolbox = ScriptedToolbox({"bad": RuntimeError("bug"), "good": "fine"})
    events = await collect(ScriptedModel([call("bad"), call("good")], ["ok"]), toolbox)
    assert {finished.result.status for finished in of(CallFinished, events)} == {ToolStatus.OK, ToolStatus.ERROR}
    assert isinstance(events[-1], LoopEnded)
    assert len(of(RoundCompleted, events)) == 1
