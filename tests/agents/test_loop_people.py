"""Calls that need a person before they can go on: parked or kept open, answered, declined, taken up again."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from uuid import UUID, uuid4

from agents.events import CallAnswered, CallAsked, CallFinished, CallStarted, LoopEnded, LoopEvent, Outcome
from agents.loop import Decided, Limits, OpenCall, OpenRound, run_loop
from agents.parts import PersonAnswer, PersonNeeded, Resumed, ToolRequest, ToolStatus
from agents.stopwatch import Stopwatch
from tests.agents.loops import HI
from tests.fakes.models import Asking, ScriptedModel, ScriptedToolbox, TakenBack

SIGN_IN = PersonNeeded("authorization", {"server": "notes"})
FORM = PersonNeeded("elicitation", {"message": "Which one?"}, {"state": "s"})


async def events_of(
    toolbox: ScriptedToolbox, open_round: OpenRound | None = None, answers: dict[str, Decided] | None = None
) -> list[LoopEvent]:
    """Every event; `answers` are given as soon as the call's question is asked."""
    queue: asyncio.Queue = asyncio.Queue()
    model = (
        ScriptedModel([ToolRequest("c1", "tool", "{}")], ["done"]) if open_round is None else ScriptedModel(["done"])
    )
    events = []
    async with aclosing(run_loop(model, toolbox, HI, open_round=open_round, decisions=queue)) as loop:
        async for event in loop:
            events.append(event)
            if isinstance(event, CallAsked) and answers:
                answer = answers.pop(event.needed.kind if event.needed else "approval")
                queue.put_nowait(Decided(event.call_id, answer.allowed, answer.note, answer=answer.answer))
    return events


def only(events: list[LoopEvent], kind: type) -> list:
    return [event for event in events if isinstance(event, kind)]


def call_id() -> UUID:
    return uuid4()


async def test_a_call_that_needs_a_person_parks_the_turn() -> None:
    events = await events_of(ScriptedToolbox({"tool": SIGN_IN}))
    asked = only(events, CallAsked)
    assert [(event.needed, event.live) for event in asked] == [(SIGN_IN, False)]
    assert events[-1].outcome is Outcome.PARKED
    assert not only(events, CallFinished)


async def test_an_answer_in_the_same_task_makes_the_call_once_more() -> None:
    toolbox = ScriptedToolbox({"tool": SIGN_IN})
    events = await events_of(
        toolbox, answers={"authorization": Decided(call_id(), True, answer=PersonAnswer("accept"))}
    )
    assert [event.answer.action for event in only(events, CallAnswered)] == ["accept"]
    assert toolbox.resumed == [None, Resumed(SIGN_IN, PersonAnswer("accept"))]
    assert len(only(events, CallStarted)) == 2
    assert only(events, CallFinished)[0].result.status is ToolStatus.OK
    assert events[-1].outcome is Outcome.COMPLETED


async def test_a_declined_sign_in_tells_the_model_and_calls_nothing() -> None:
    toolbox = ScriptedToolbox({"tool": SIGN_IN})
    events = await events_of(
        toolbox, answers={"authorization": Decided(call_id(), False, answer=PersonAnswer("decline"))}
    )
    assert len(toolbox.called) == 1
    assert only(events, CallFinished)[0].result.status is ToolStatus.DENIED
    assert "declined" in only(events, CallFinished)[0].result.text
    assert events[-1].outcome is Outcome.COMPLETED


async def test_a_declined_question_of_a_server_is_carried_to_it() -> None:
    toolbox = ScriptedToolbox({"tool": FORM})
    answer = Decided(call_id(), False, answer=PersonAnswer("decline"))
    await events_of(toolbox, answers={"elicitation": answer})
    assert toolbox.resumed[-1] == Resumed(FORM, PersonAnswer("decline"))


async def test_a_call_may_wait_for_its_answer_while_it_runs() -> None:
    toolbox = ScriptedToolbox({"tool": Asking(FORM)})
    answer = Decided(call_id(), True, answer=PersonAnswer("accept", {"name": "blue"}))
    events = await events_of(toolbox, answers={"elicitation": answer})
    assert [event.live for event in only(events, CallAsked)] == [True]
    assert [event.live for event in only(events, CallAnswered)] == [True]
    assert len(toolbox.called) == 1
    assert only(events, CallFinished)[0].result.text == 'accept {"name": "blue"}'


async def test_a_stored_answer_makes_the_call_again_without_asking() -> None:
    toolbox = ScriptedToolbox({"tool": FORM})
    resumed = Resumed(FORM, PersonAnswer("accept", {"name": "red"}))
    stored = OpenCall(call_id(), ToolRequest("c1", "tool", "{}"), "pending", resumed=resumed)
    events = await events_of(toolbox, OpenRound(calls=[stored]))
    assert toolbox.resumed == [resumed]
    assert [event.answer for event in only(events, CallAnswered)] == [resumed.answer]
    assert only(events, CallFinished)[0].result.text == 'accept {"name": "red"}'


async def test_a_stored_call_that_waits_for_a_sign_in_goes_on_with_the_answer() -> None:
    toolbox = ScriptedToolbox({"tool": SIGN_IN})
    stored = OpenCall(call_id(), ToolRequest("c1", "tool", "{}"), "waiting", needed=SIGN_IN)
    queue: asyncio.Queue = asyncio.Queue()
    queue.put_nowait(Decided(stored.call_id, True, answer=PersonAnswer("accept")))
    loop = run_loop(ScriptedModel(["done"]), toolbox, HI, open_round=OpenRound(calls=[stored]), decisions=queue)
    async with aclosing(loop):
        events = [event async for event in loop]
    assert only(events, CallFinished)[0].result.status is ToolStatus.OK
    assert isinstance(events[-1], LoopEnded)


async def test_a_question_that_is_taken_back_is_told_and_the_call_goes_on() -> None:
    toolbox = ScriptedToolbox({"tool": TakenBack(FORM)})
    events = await events_of(toolbox)
    assert [(event.answer.action, event.given_up) for event in only(events, CallAnswered)] == [("cancel", True)]
    assert only(events, CallFinished)[0].result.text == "went on alone"
    assert events.index(only(events, CallAnswered)[0]) < events.index(only(events, CallFinished)[0])


async def test_an_answer_to_an_approval_does_not_answer_a_question_that_came_later() -> None:
    toolbox = ScriptedToolbox({"tool": Asking(FORM)})
    queue: asyncio.Queue = asyncio.Queue()
    model = ScriptedModel([ToolRequest("c1", "tool", "{}")], ["done"])
    async with aclosing(run_loop(model, toolbox, HI, decisions=queue)) as loop:
        events = []
        async for event in loop:
            events.append(event)
            if isinstance(event, CallAsked):
                queue.put_nowait(Decided(event.call_id, True))  # an approval, told once more
                queue.put_nowait(Decided(event.call_id, False, answer=PersonAnswer("decline")))
    assert only(events, CallFinished)[0].result.text == "decline {}"


async def test_an_answer_to_an_approval_does_not_stand_for_a_sign_in_that_came_later() -> None:
    answers = {"authorization": Decided(call_id(), True)}  # an approval, told once more
    events = await events_of(ScriptedToolbox({"tool": SIGN_IN}), answers=answers)
    assert not only(events, CallAnswered)
    assert events[-1].outcome is Outcome.PARKED


async def test_the_time_in_which_a_person_is_asked_is_not_the_turns() -> None:
    now = 0.0
    toolbox = ScriptedToolbox({"tool": Asking(FORM)})
    queue: asyncio.Queue = asyncio.Queue()
    model = ScriptedModel([ToolRequest("c1", "tool", "{}")], ["done"])
    limits = Limits(max_seconds=60)
    async with aclosing(run_loop(model, toolbox, HI, limits=limits, decisions=queue, clock=lambda: now)) as loop:
        events = []
        async for event in loop:
            events.append(event)
            if isinstance(event, CallStarted):
                now += 5
            if isinstance(event, CallAsked):
                now += 1000
                queue.put_nowait(Decided(event.call_id, True, answer=PersonAnswer("accept")))
    assert events[-1].outcome is Outcome.COMPLETED
    assert events[-1].spent.seconds == 5


def test_a_stopwatch_goes_on_when_the_last_pause_ends() -> None:
    now = 10.0
    watch = Stopwatch(3, lambda: now)
    now += 1
    watch.pause()
    watch.pause()
    now += 100
    watch.resume()
    now += 100
    assert watch.seconds() == 4
    watch.resume()
    watch.resume()
    now += 2
    assert watch.seconds() == 6
