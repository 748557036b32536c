"""The limits of a turn: it ends in an answer from what it has, never in silence."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from agents.events import CallAsked, CallFinished, CallStarted, Outcome, RoundCompleted, TextDelta
from agents.limits import FailureCount
from agents.loop import Limits, OpenCall, OpenRound, Spent
from agents.parts import Decision, Finish, ToolRequest, ToolResult, ToolStatus
from agents.providers.chat_model import EndpointUnavailableError
from tests.agents.loops import collect, end, notices, of, results, told
from tests.fakes.models import ScriptedModel, ScriptedToolbox, call

CLOCK = {"clock": "noon"}


def rounds_for_ever(closing=("closed",)):
    """A model that calls a tool whenever it may."""
    number = 0

    def next_call(messages):
        nonlocal number
        number += 1
        return [call("clock", n=number)]

    return Greedy(next_call, closing)


class Greedy(ScriptedModel):
    def __init__(self, answer, closing, **options):
        super().__init__(answer, **options)
        self.closing = closing

    def stream(self, messages, tools=(), *, tool_choice="auto"):
        if tool_choice == "none":
            self.answers = [self.closing]
        return super().stream(messages, tools, tool_choice=tool_choice)


def loop_time():
    return asyncio.get_running_loop().time()


@pytest.fixture
def outlasting(ahead):
    """A tool that runs for ever, once it runs."""

    async def hang(arguments, progress):
        ahead(100)
        await asyncio.Event().wait()

    return hang


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


async def test_after_the_last_round_one_closing_call_without_tools_lets_the_model_answer():
    model = rounds_for_ever()
    events = await collect(model, ScriptedToolbox(CLOCK), limits=Limits(max_rounds=3))
    assert len(of(RoundCompleted, events)) == 3
    assert [request.tool_choice for request in model.requests] == ["auto"] * 3 + ["none"]
    assert [tool.name for tool in model.requests[-1].tools] == ["clock"]
    assert "".join(delta.text for delta in of(TextDelta, events)) == "closed"
    assert (end(events).outcome, end(events).code) == (Outcome.EXHAUSTED, "max_rounds")
    assert notices(events) == ["limit_reached"]
    assert end(events).spent.rounds == 3


async def test_ten_rounds_are_the_default():
    model = rounds_for_ever()
    await collect(model, ScriptedToolbox(CLOCK))
    assert len(model.requests) == 11


async def test_the_closing_call_tells_the_model_why_without_a_message_of_its_own():
    model = rounds_for_ever()
    await collect(model, ScriptedToolbox(CLOCK), limits=Limits(max_rounds=1))
    assert model.requests[-1].messages[-1].role == "tool"
    assert "limit of rounds" in told(model)[-1]
    assert told(model)[-1].startswith("noon")


async def test_the_closing_call_drops_the_tools_only_where_the_model_wants_it():
    model = Greedy([call("clock")], ["closed"], drop_tools_on_close=True)
    await collect(model, ScriptedToolbox(CLOCK), limits=Limits(max_rounds=1))
    assert model.requests[-1].tools == []
    assert len(model.requests[0].tools) == 1


@pytest.mark.parametrize("closing", [[], ["  "], [call("clock")]])
async def test_a_model_that_still_says_nothing_is_not_silence_for_the_person(closing):
    toolbox = ScriptedToolbox(CLOCK)
    events = await collect(rounds_for_ever(closing), toolbox, limits=Limits(max_rounds=1))
    assert notices(events) == ["limit_reached", "empty_response"]
    assert end(events).outcome is Outcome.EXHAUSTED
    assert len(toolbox.called) == 1


async def test_text_after_a_call_that_is_not_run_any_more_is_shown():
    model = rounds_for_ever([call("clock"), "the answer"])
    events = await collect(model, ScriptedToolbox(CLOCK), limits=Limits(max_rounds=1))
    assert [delta.text for delta in of(TextDelta, events)] == ["the answer"]
    assert notices(events) == ["limit_reached"]


async def test_a_closing_call_that_fails_ends_the_turn_as_failed():
    model = rounds_for_ever([EndpointUnavailableError()])
    events = await collect(model, ScriptedToolbox(CLOCK), limits=Limits(max_rounds=1))
    assert end(events).outcome is Outcome.FAILED


async def test_rounds_spent_before_the_turn_was_parked_count():
    stored = OpenCall(uuid4(), ToolRequest("c", "clock", "{}"), "allowed")
    model = rounds_for_ever()
    events = await collect(
        model,
        ScriptedToolbox(CLOCK),
        limits=Limits(max_rounds=3),
        spent=Spent(rounds=2, calls=2),
        open_round=OpenRound(calls=[stored], number=2),
    )
    assert len(of(RoundCompleted, events)) == 1
    assert end(events).code == "max_rounds"


async def test_calls_above_the_limit_are_not_run_and_the_model_is_told():
    toolbox = ScriptedToolbox(CLOCK)
    model = Greedy([call("clock", n=1), call("clock", n=2), call("clock", n=3)], ["closed"])
    events = await collect(model, toolbox, limits=Limits(max_calls=2))
    assert len(toolbox.called) == 2
    assert len(of(CallFinished, events)) == 3
    assert "limit of tool calls" in told(model)[2]
    assert (end(events).outcome, end(events).code) == (Outcome.EXHAUSTED, "max_calls")


async def test_a_call_above_the_limit_is_not_asked_about():
    toolbox = ScriptedToolbox({"clock": "noon", "send": "sent"}, {"send": Decision.ASK})
    model = Greedy([call("clock"), call("send")], ["closed"])
    events = await collect(model, toolbox, limits=Limits(max_calls=1))
    assert not of(CallAsked, events)
    assert end(events).outcome is Outcome.EXHAUSTED


# --- Repeated failures --------------------------------------------------------------------------------------------

FAILED = ToolResult(ToolStatus.ERROR, "no such file")


async def test_the_same_call_failing_three_times_in_a_row_ends_in_the_closing_call():
    model = Greedy([call("read", path="/x")], ["I cannot read it."])
    events = await collect(model, ScriptedToolbox({"read": FAILED}))
    assert len(model.requests) == 4
    assert (end(events).outcome, end(events).code) == (Outcome.EXHAUSTED, "repeated_failure")
    assert "failed 3 times" in end(events).message


@pytest.mark.parametrize("status", [ToolStatus.TIMEOUT, ToolStatus.UNAVAILABLE, ToolStatus.DENIED])
async def test_whatever_the_failure_is(status):
    model = Greedy([call("read")], ["closed"])
    await collect(model, ScriptedToolbox({"read": ToolResult(status, "no")}))
    assert len(model.requests) == 4


async def test_unknown_tools_and_bad_arguments_are_failures_too():
    model = Greedy([call("nonsense")], ["closed"])
    await collect(model, ScriptedToolbox({"read": FAILED}))
    assert len(model.requests) == 4


async def test_other_arguments_are_another_call():
    paths = iter(range(100))
    model = Greedy(lambda messages: [call("read", path=next(paths))], ["closed"])
    events = await collect(model, ScriptedToolbox({"read": FAILED}), limits=Limits(max_rounds=5))
    assert end(events).code == "max_rounds"


async def test_the_order_of_arguments_does_not_make_another_call():
    texts = iter(['{"a": 1, "b": 2}', '{"b": 2, "a": 1}', '{"b":2,"a":1}'])
    model = Greedy(lambda messages: [ToolRequest("c", "read", next(texts))], ["closed"])
    events = await collect(model, ScriptedToolbox({"read": FAILED}))
    assert end(events).code == "repeated_failure"


async def test_the_same_call_failing_three_times_within_one_round_is_one_failure():
    model = ScriptedModel([call("read", id="a"), call("read", id="b"), call("read", id="c")], ["ok"])
    events = await collect(model, ScriptedToolbox({"read": FAILED}))
    assert end(events).outcome is Outcome.COMPLETED


async def test_failures_before_the_turn_was_parked_count():
    request = ToolRequest("c", "read", '{"path": "/x"}')
    stored = OpenCall(uuid4(), request, "finished", result=FAILED)
    before = OpenRound(calls=[stored], number=3, failures={("read", '{"path": "/x"}'): 2})
    model = Greedy([call("read", path="/x")], ["closed"])
    events = await collect(model, ScriptedToolbox({"read": FAILED}), spent=Spent(3, 3), open_round=before)
    assert end(events).code == "repeated_failure"
    assert len(model.requests) == 1


KEY, OTHER = ("read", "{}"), ("write", "{}")


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ([[(KEY, False)], [(KEY, False)], [(KEY, False)]], 3),
        ([[(KEY, False)], [(KEY, True)], [(KEY, False)]], 1),
        ([[(KEY, False)], [(OTHER, True)], [(KEY, False)]], 1),  # progress in between
        ([[(KEY, False)], [(OTHER, False)], [(KEY, False)]], 2),  # none
        ([[(KEY, False), (OTHER, True)]] * 3, 3),
        ([[(KEY, False), (KEY, False)]], 1),
        ([[(KEY, False), (KEY, True)]], 0),
        ([[]], 0),
    ],
)
def test_failures_in_a_row_are_counted_for_each_call(rounds, expected):
    count = FailureCount()
    for calls in rounds:
        count.record(calls)
    assert count.highest == expected


# --- Time ---------------------------------------------------------------------------------------------------------


async def test_when_the_time_is_over_the_next_request_is_the_closing_call():
    clock = Clock()

    async def slow(arguments, progress):
        clock.now += 100
        return "noon"

    model = rounds_for_ever()
    events = await collect(model, ScriptedToolbox({"clock": slow}), limits=Limits(max_seconds=150), clock=clock)
    assert len(of(RoundCompleted, events)) == 2
    assert (end(events).outcome, end(events).code) == (Outcome.EXHAUSTED, "max_seconds")
    assert end(events).spent.seconds == 200


async def test_time_that_ran_before_the_turn_was_parked_counts_and_waiting_does_not():
    clock = Clock()
    model = rounds_for_ever()
    events = await collect(
        model, ScriptedToolbox(CLOCK), limits=Limits(max_seconds=150), spent=Spent(0, 0, 149.5), clock=clock
    )
    assert end(events).code == "max_rounds"  # a clock that stands still uses up nothing
    clock.now += 3600  # parked
    stored = OpenCall(uuid4(), ToolRequest("c", "clock", "{}"), "allowed")
    events = await collect(
        ScriptedModel(["ok"]),
        ScriptedToolbox(CLOCK),
        limits=Limits(max_seconds=150),
        spent=Spent(1, 1, 149.5),
        open_round=OpenRound(calls=[stored]),
        clock=clock,
    )
    assert end(events).outcome is Outcome.COMPLETED
    assert end(events).spent.seconds == 149.5


async def test_calls_that_the_model_took_all_the_time_to_write_are_not_run():
    clock = Clock()

    def write_slowly(messages):
        clock.now += 100
        return [call("clock")]

    toolbox = ScriptedToolbox(CLOCK)
    model = Greedy(write_slowly, ["closed"])
    events = await collect(model, toolbox, limits=Limits(max_seconds=50), clock=clock)
    assert not toolbox.called
    assert not of(CallStarted, events)
    assert end(events).code == "max_seconds"


async def test_a_call_that_runs_when_the_time_is_over_is_stopped_and_the_model_answers(ahead):
    def react(event, decisions):
        if isinstance(event, CallFinished) and event.result.status is ToolStatus.OK:
            ahead(100)

    toolbox = ScriptedToolbox({"hangs": asyncio.Event(), "clock": "noon"})
    model = Greedy([call("hangs"), call("clock")], ["closed"])
    events = await collect(model, toolbox, react=react, limits=Limits(max_seconds=60), clock=loop_time)
    assert toolbox.cancelled == ["hangs"]
    assert results(events)["hangs"].status is ToolStatus.TIMEOUT
    assert results(events)["clock"].status is ToolStatus.OK
    assert end(events).code == "max_seconds"


async def test_a_call_that_waits_for_a_slot_when_the_time_is_over_is_not_run(outlasting):
    toolbox = ScriptedToolbox({"hangs": outlasting, "clock": "noon"})
    model = Greedy([call("hangs"), call("clock")], ["closed"])
    events = await collect(model, toolbox, limits=Limits(max_seconds=60, max_parallel_calls=1), clock=loop_time)
    assert [name for name, _ in toolbox.called] == ["hangs"]
    assert "not run" in results(events)["clock"].text


async def test_an_open_question_outlives_the_time_limit(outlasting):
    toolbox = ScriptedToolbox({"hangs": outlasting, "send": "sent"}, {"send": Decision.ASK})
    model = Greedy([call("hangs"), call("send")], ["closed"])
    events = await collect(model, toolbox, limits=Limits(max_seconds=60), clock=loop_time)
    assert end(events).outcome is Outcome.PARKED


async def test_an_allowed_call_without_time_left_is_not_run_and_the_model_closes():
    stored = OpenCall(uuid4(), ToolRequest("c", "clock", "{}"), "allowed")
    toolbox, model = ScriptedToolbox(CLOCK), Greedy([call("clock")], ["closed"])
    events = await collect(
        model, toolbox, limits=Limits(max_seconds=10), spent=Spent(1, 1, 11), open_round=OpenRound(calls=[stored])
    )
    assert not toolbox.called
    assert not of(CallStarted, events)
    assert end(events).code == "max_seconds"


# --- Cut-off calls ------------------------------------------------------------------------------------------------

CUT = [ToolRequest("c", "write", '{"text": "Once upo', complete=False)]


@pytest.mark.parametrize("finish", [Finish.LENGTH, Finish.CUT])
async def test_a_cut_off_call_is_never_run_and_a_smaller_one_asked_for(finish):
    toolbox = ScriptedToolbox({"write": "written"})
    model = ScriptedModel([*CUT, finish], [call("write", text="short")], ["done"])
    events = await collect(model, toolbox)
    assert toolbox.called == [("write", {"text": "short"})]
    assert "smaller call" in told(model, 1)[0]
    assert end(events).outcome is Outcome.COMPLETED


async def test_a_call_is_cut_off_where_its_completion_was_even_if_it_parses():
    toolbox = ScriptedToolbox({"write": "written"})
    model = ScriptedModel([ToolRequest("c", "write", "{}"), Finish.LENGTH], ["done"])
    await collect(model, toolbox)
    assert not toolbox.called


async def test_a_call_that_is_marked_as_cut_off_is_not_run_however_its_completion_ended():
    toolbox = ScriptedToolbox({"write": "written"})
    model = ScriptedModel([ToolRequest("c", "write", "{}", complete=False), call("write", n=2)], ["done"])
    await collect(model, toolbox)
    assert toolbox.called == [("write", {"n": 2})]


async def test_calls_that_were_complete_before_the_cut_are_run():
    toolbox = ScriptedToolbox({"clock": "noon", "write": "written"})
    model = ScriptedModel([call("clock"), *CUT, Finish.LENGTH], ["done"])
    events = await collect(model, toolbox)
    assert [name for name, _ in toolbox.called] == ["clock"]
    assert results(events)["write"].status is ToolStatus.ERROR
    assert end(events).outcome is Outcome.COMPLETED


async def test_after_two_retries_a_call_that_is_cut_off_again_ends_the_turn_as_truncated():
    toolbox = ScriptedToolbox({"write": "written"})
    model = ScriptedModel(["Writing.", *CUT, Finish.LENGTH])
    events = await collect(model, toolbox)
    assert len(model.requests) == 3
    assert not toolbox.called
    assert len(of(CallFinished, events)) == 3
    assert (end(events).outcome, end(events).code) == (Outcome.TRUNCATED, "call_cut_off")
    assert notices(events) == ["call_cut_off"]


async def test_a_whole_call_in_between_gives_new_retries():
    toolbox = ScriptedToolbox({"write": "written"})
    cut = [*CUT, Finish.LENGTH]
    model = ScriptedModel(cut, cut, [call("write")], cut, cut, ["done"])
    events = await collect(model, toolbox)
    assert end(events).outcome is Outcome.COMPLETED
