"""What people answer while the loop runs, and what it does with a turn that was parked."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import uuid4

import pytest

from agents.events import (
    CallAsked,
    CallFinished,
    CallProgressed,
    CallStarted,
    Outcome,
    RoundCompleted,
    StatusChanged,
)
from agents.loop import CallCancelled, Decided, Limits, OpenCall, OpenRound, Spent
from agents.parts import Decision, ToolRequest, ToolResult, ToolStatus
from tests.agents.loops import HI, collect, end, notices, of, results, told
from tests.fakes.models import ScriptedModel, ScriptedToolbox, call

ASK = {"send": Decision.ASK}


def answer(allowed=True, **fields):
    """React to every question with this answer."""

    def react(event, decisions):
        if isinstance(event, CallAsked):
            decisions.put_nowait(Decided(event.call_id, allowed, **fields))

    return react


# --- Questions ----------------------------------------------------------------------------------------------------


async def test_an_open_question_parks_the_turn_when_nothing_runs():
    toolbox = ScriptedToolbox({"send": "sent"}, ASK)
    model = ScriptedModel([call("send")])
    events = await collect(model, toolbox)
    assert [type(event) for event in events[-3:-1]] == [RoundCompleted, CallAsked]
    assert end(events).outcome is Outcome.PARKED
    assert not toolbox.called
    assert len(model.requests) == 1


async def test_siblings_run_to_their_end_before_the_turn_parks():
    toolbox = ScriptedToolbox({"clock": "noon", "send": "sent"}, ASK)
    events = await collect(ScriptedModel([call("send"), call("clock")]), toolbox)
    assert results(events)["clock"].text == "noon"
    assert end(events).outcome is Outcome.PARKED


async def test_the_model_is_not_asked_again_before_every_call_has_its_result():
    model = ScriptedModel([call("send", to="a"), call("send", to="b")])
    answered = []

    def one_only(event, decisions):
        if isinstance(event, CallAsked) and not answered:
            answered.append(event.call_id)
            decisions.put_nowait(Decided(event.call_id, allowed=True))

    events = await collect(model, ScriptedToolbox({"send": "sent"}, ASK), react=one_only)
    assert [finished.call_id for finished in of(CallFinished, events)] == answered
    assert end(events).outcome is Outcome.PARKED
    assert len(model.requests) == 1


async def test_an_answer_that_comes_while_a_sibling_runs_lets_that_call_run_now():
    gate = asyncio.Event()
    toolbox = ScriptedToolbox({"slow": gate, "send": "sent"}, ASK)
    model = ScriptedModel([call("slow"), call("send")], ["ok"])

    def react(event, decisions):
        answer()(event, decisions)
        if isinstance(event, CallFinished):
            gate.set()

    events = await collect(model, toolbox, react=react)
    assert list(results(events)) == ["send", "slow"]
    assert told(model) == ["done", "sent"]


async def test_an_answer_that_is_there_just_before_parking_is_not_lost():
    events = await collect(
        ScriptedModel([call("send")], ["ok"]), ScriptedToolbox({"send": "sent"}, ASK), react=answer()
    )
    assert end(events).outcome is Outcome.COMPLETED


async def test_a_denied_call_is_not_run_and_the_model_reads_the_note():
    toolbox = ScriptedToolbox({"send": "sent"}, ASK)
    model = ScriptedModel([call("send")], ["ok"])
    events = await collect(model, toolbox, react=answer(allowed=False, note="write to Bob instead"))
    assert not toolbox.called
    assert results(events)["send"].status is ToolStatus.DENIED
    assert "write to Bob instead" in told(model)[0]


async def test_a_denial_without_a_note_says_nothing_of_one():
    model = ScriptedModel([call("send")], ["ok"])
    await collect(model, ScriptedToolbox({"send": "sent"}, ASK), react=answer(allowed=False))
    assert "note" not in told(model)[0]


async def test_an_allowed_call_is_looked_at_again_before_it_runs():
    toolbox = ScriptedToolbox({"send": "sent"}, dict(ASK))

    def revoke(event, decisions):
        if isinstance(event, CallAsked):
            toolbox.decisions["send"] = Decision.DENY
            decisions.put_nowait(Decided(event.call_id, allowed=True))

    events = await collect(ScriptedModel([call("send")], ["ok"]), toolbox, react=revoke)
    assert not toolbox.called
    assert results(events)["send"].status is ToolStatus.DENIED


async def test_edited_arguments_are_what_runs_and_the_model_is_told():
    toolbox = ScriptedToolbox({"send": "sent"}, ASK)
    model = ScriptedModel([call("send", to="all")], ["ok"])
    events = await collect(model, toolbox, react=answer(arguments={"to": "bob"}))
    assert toolbox.called == [("send", {"to": "bob"})]
    assert of(CallStarted, events)[0].call.arguments == {"to": "bob"}
    assert '{"to": "bob"}' in told(model)[0]
    assert told(model)[0].endswith("sent")
    assert model.requests[1].messages[len(HI)].tool_calls[0].arguments == '{"to": "all"}'


async def test_a_second_answer_and_answers_to_strangers_change_nothing():
    toolbox = ScriptedToolbox({"send": "sent"}, ASK)

    def twice(event, decisions):
        if isinstance(event, CallAsked):
            for allowed in (True, False, True):
                decisions.put_nowait(Decided(event.call_id, allowed))
            decisions.put_nowait(Decided(uuid4(), allowed=True))
            decisions.put_nowait(CallCancelled(uuid4()))

    events = await collect(ScriptedModel([call("send")], ["ok"]), toolbox, react=twice)
    assert toolbox.called == [("send", {})]
    assert len(of(CallFinished, events)) == 1


async def test_a_late_answer_does_not_disturb_the_next_round():
    toolbox = ScriptedToolbox({"send": "sent", "clock": "noon"}, ASK)

    def late(event, decisions):
        answer()(event, decisions)
        if isinstance(event, CallFinished):
            decisions.put_nowait(Decided(event.call_id, allowed=False))
            decisions.put_nowait(CallCancelled(event.call_id))

    events = await collect(ScriptedModel([call("send")], [call("clock")], ["ok"]), toolbox, react=late)
    assert {result.status for result in results(events).values()} == {ToolStatus.OK}
    assert end(events).outcome is Outcome.COMPLETED


async def test_a_slow_second_look_does_not_hold_up_a_siblings_progress():
    looked, heard = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedToolbox):
        async def prepare(self, request):
            if request.name == "send" and len(self.prepared) >= 2:
                looked.set()
                await heard.wait()
            return await super().prepare(request)

    async def busy(arguments, progress):
        await looked.wait()
        await progress(1, None, None)
        await heard.wait()
        return "done"

    def react(event, decisions):
        answer()(event, decisions)
        if isinstance(event, CallProgressed):
            heard.set()

    toolbox = Slow({"busy": busy, "send": "sent"}, dict(ASK))
    events = await collect(ScriptedModel([call("busy"), call("send")], ["ok"]), toolbox, react=react)
    assert len(of(CallFinished, events)) == 2


# --- Cancelling one call ------------------------------------------------------------------------------------------


async def test_one_running_call_can_be_cancelled_and_its_siblings_go_on():
    gate = asyncio.Event()
    toolbox = ScriptedToolbox({"stuck": asyncio.Event(), "slow": gate})
    model = ScriptedModel([call("stuck"), call("slow")], ["ok"])

    def react(event, decisions):
        if isinstance(event, CallStarted) and event.call.tool == "stuck":
            decisions.put_nowait(CallCancelled(event.call_id))
        if isinstance(event, CallFinished):
            gate.set()

    events = await collect(model, toolbox, react=react)
    assert toolbox.cancelled == ["stuck"]
    assert results(events)["stuck"].status is ToolStatus.CANCELLED
    assert results(events)["slow"].status is ToolStatus.OK
    assert "cancelled" in told(model)[0]
    assert end(events).outcome is Outcome.COMPLETED


async def test_a_cancelled_call_is_over_at_once_and_its_late_result_ignored():
    release = asyncio.Event()

    async def stubborn(arguments, progress):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await release.wait()
        return "too late"

    def react(event, decisions):
        if isinstance(event, CallStarted):
            decisions.put_nowait(CallCancelled(event.call_id))
        if isinstance(event, StatusChanged) and finished:
            release.set()
        if isinstance(event, CallFinished):
            finished.append(event.result.status)

    finished: list[ToolStatus] = []
    events = await collect(ScriptedModel([call("t")], ["ok"]), ScriptedToolbox({"t": stubborn}), react=react)
    assert finished == [ToolStatus.CANCELLED]
    assert end(events).outcome is Outcome.COMPLETED


async def test_what_a_cancelled_call_still_says_is_ignored_while_a_sibling_runs():
    cancelled, returned = asyncio.Event(), asyncio.Event()

    async def stubborn(arguments, progress):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await cancelled.wait()
        await progress(99, None, None)
        returned.set()
        return "too late"

    def react(event, decisions):
        if isinstance(event, CallStarted) and event.call.tool == "stubborn":
            decisions.put_nowait(CallCancelled(event.call_id))
        if isinstance(event, CallFinished):
            cancelled.set()

    toolbox = ScriptedToolbox({"stubborn": stubborn, "sibling": returned})
    events = await collect(ScriptedModel([call("stubborn"), call("sibling")], ["ok"]), toolbox, react=react)
    assert [finished.result.status for finished in of(CallFinished, events)] == [ToolStatus.CANCELLED, ToolStatus.OK]
    assert not of(CallProgressed, events)


async def test_a_call_that_returned_before_its_cancellation_was_seen_keeps_its_true_result():
    def react(event, decisions):
        if isinstance(event, CallStarted):
            decisions.put_nowait(CallCancelled(event.call_id))

    events = await collect(ScriptedModel([call("send")], ["ok"]), ScriptedToolbox({"send": "sent"}), react=react)
    assert results(events)["send"] == ToolResult(ToolStatus.OK, "sent")


async def test_a_question_can_be_cancelled_which_runs_nothing():
    toolbox = ScriptedToolbox({"send": "sent"}, ASK)

    def react(event, decisions):
        if isinstance(event, CallAsked):
            decisions.put_nowait(CallCancelled(event.call_id))

    events = await collect(ScriptedModel([call("send")], ["ok"]), toolbox, react=react)
    assert results(events)["send"].status is ToolStatus.CANCELLED
    assert not toolbox.called


async def test_a_call_that_waits_for_a_slot_can_be_cancelled():
    gate = asyncio.Event()
    toolbox = ScriptedToolbox({"slow": gate, "next": "never"})

    def react(event, decisions):
        if isinstance(event, RoundCompleted):
            decisions.put_nowait(CallCancelled(event.calls[1][0]))
        if isinstance(event, CallFinished):
            gate.set()

    model = ScriptedModel([call("slow"), call("next")], ["ok"])
    events = await collect(model, toolbox, react=react, limits=Limits(max_parallel_calls=1))
    assert results(events)["next"].status is ToolStatus.CANCELLED
    assert [name for name, _ in toolbox.called] == ["slow"]


# --- A parked turn goes on ----------------------------------------------------------------------------------------

REQUEST = ToolRequest("c1", "send", '{"to": "bob"}')
OTHER = ToolRequest("c2", "clock", "{}")


def stored(state, request=REQUEST, **fields):
    return OpenCall(uuid4(), request, state, **fields)


def resume(*calls, **fields):
    return {"open_round": OpenRound("I will send it.", calls=calls, number=1, **fields), "spent": Spent(1, len(calls))}


async def test_an_allowed_call_runs_and_the_model_goes_on_from_the_stored_round():
    toolbox = ScriptedToolbox({"send": "sent"}, ASK)
    model = ScriptedModel(["Done."])
    events = await collect(model, toolbox, **resume(stored("allowed"), trailing_text="Wait."))
    assert toolbox.called == [("send", {"to": "bob"})]
    assert not of(RoundCompleted, events)
    assert not of(CallAsked, events)
    assistant, tool = model.requests[0].messages[len(HI) :]
    assert (assistant.text, assistant.tool_calls[0].id) == ("I will send it.\n\nWait.", "c1")
    assert tool.text == "sent"
    assert end(events).outcome is Outcome.COMPLETED


async def test_calls_that_have_finished_are_not_repeated():
    toolbox = ScriptedToolbox({"send": "sent", "clock": "noon"})
    model = ScriptedModel(["ok"])
    finished = stored("finished", OTHER, result=ToolResult(ToolStatus.OK, "eleven"))
    events = await collect(model, toolbox, **resume(stored("allowed"), finished))
    assert [name for name, _ in toolbox.called] == ["send"]
    assert len(of(CallFinished, events)) == 1
    assert told(model) == ["sent", "eleven"]


async def test_a_round_whose_calls_have_all_finished_goes_straight_to_the_model():
    model = ScriptedModel(["ok"])
    finished = stored("finished", result=ToolResult(ToolStatus.OK, "sent"))
    events = await collect(model, ScriptedToolbox(), **resume(finished))
    assert told(model) == ["sent"]
    assert not of(CallFinished, events)


async def test_a_denied_call_of_a_parked_turn_gets_its_result_with_the_note():
    model, toolbox = ScriptedModel(["ok"]), ScriptedToolbox({"send": "sent"}, ASK)
    events = await collect(model, toolbox, **resume(stored("denied", note="not now")))
    assert not toolbox.called
    assert of(CallFinished, events)[0].result.status is ToolStatus.DENIED
    assert "not now" in told(model)[0]


async def test_a_question_that_is_still_open_is_not_asked_again_and_parks_again():
    toolbox = ScriptedToolbox({"send": "sent", "clock": "noon"}, ASK)
    events = await collect(ScriptedModel(["never"]), toolbox, **resume(stored("waiting"), stored("allowed", OTHER)))
    assert not of(CallAsked, events)
    assert [name for name, _ in toolbox.called] == ["clock"]
    assert end(events).outcome is Outcome.PARKED


async def test_a_question_that_is_still_open_can_be_answered_while_a_sibling_runs():
    waiting = stored("waiting")
    gate = asyncio.Event()

    def react(event, decisions):
        if isinstance(event, CallStarted) and event.call.tool == "clock":
            decisions.put_nowait(Decided(waiting.call_id, allowed=True))
        if isinstance(event, CallFinished):
            gate.set()

    toolbox = ScriptedToolbox({"send": "sent", "clock": gate}, ASK)
    model = ScriptedModel(["ok"])
    await collect(model, toolbox, react=react, **resume(waiting, stored("pending", OTHER)))
    assert told(model) == ["sent", "done"]


async def test_a_call_that_ran_when_its_task_died_is_never_repeated():
    model, toolbox = ScriptedModel(["ok"]), ScriptedToolbox({"send": "sent"})
    events = await collect(model, toolbox, **resume(stored("running")))
    assert not toolbox.called
    assert of(CallFinished, events)[0].result.status is ToolStatus.INTERRUPTED
    assert told(model) == ["interrupted: it may have taken effect"]


async def test_a_call_whose_question_expired_says_so():
    events = await collect(ScriptedModel(["ok"]), ScriptedToolbox({"send": "sent"}), **resume(stored("expired")))
    assert of(CallFinished, events)[0].result.status is ToolStatus.EXPIRED


async def test_a_pending_call_runs():
    toolbox = ScriptedToolbox({"send": "sent"})
    await collect(ScriptedModel(["ok"]), toolbox, **resume(stored("pending")))
    assert toolbox.called == [("send", {"to": "bob"})]


async def test_a_pending_call_that_must_be_asked_by_now_is_asked():
    toolbox = ScriptedToolbox({"send": "sent"}, ASK)
    events = await collect(ScriptedModel(["ok"]), toolbox, **resume(stored("pending")))
    assert len(of(CallAsked, events)) == 1
    assert end(events).outcome is Outcome.PARKED


@pytest.mark.parametrize("state", ["allowed", "pending"])
async def test_a_stored_call_that_is_denied_by_now_does_not_run(state):
    toolbox = ScriptedToolbox({"send": "sent"}, {"send": Decision.DENY})
    model = ScriptedModel(["ok"])
    events = await collect(model, toolbox, **resume(stored(state)))
    assert not toolbox.called
    assert of(CallFinished, events)[0].result.status is ToolStatus.DENIED
    assert told(model)[0].startswith("denied:")


async def test_a_stored_call_whose_tool_is_gone_says_so():
    model = ScriptedModel(["ok"])
    await collect(model, ScriptedToolbox({"clock": "noon"}), **resume(stored("allowed")))
    assert "unknown tool" in told(model)[0]


async def test_edited_arguments_of_a_parked_call_are_what_runs():
    toolbox = ScriptedToolbox({"send": "sent"}, ASK)
    model = ScriptedModel(["ok"])
    await collect(model, toolbox, **resume(stored("allowed", arguments={"to": "eve"})))
    assert toolbox.called == [("send", {"to": "eve"})]
    assert "eve" in told(model)[0]


async def test_a_resumed_turn_repeats_no_notice():
    events = await collect(
        ScriptedModel(["ok"], tools=False), ScriptedToolbox({"send": "x"}), **resume(stored("denied"))
    )
    assert notices(events) == []


@pytest.mark.parametrize("spent", [Spent(3, 3), Spent()])
async def test_the_next_round_of_a_resumed_turn_has_the_next_number(spent):
    model = ScriptedModel([call("clock")], ["ok"])
    toolbox = ScriptedToolbox({"send": "sent", "clock": "noon"})
    options = resume(stored("allowed"))
    options["open_round"] = replace(options["open_round"], number=3)
    options["spent"] = spent
    events = await collect(model, toolbox, **options)
    assert [completed.round for completed in of(RoundCompleted, events)] == [4]
    assert end(events).spent.rounds == 4
