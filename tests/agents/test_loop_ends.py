"""How a turn ends when a model, its endpoint or its provider does something else than answer."""

from __future__ import annotations

import pytest

from agents.events import CallFinished, ModelNamed, Outcome, RoundCompleted, TextDelta
from agents.parts import Completion, Finish, ReasoningChunk, ToolRequest, ToolStatus, text_message
from agents.providers.chat_model import (
    EndpointAuthenticationError,
    EndpointError,
    EndpointRateLimitedError,
    EndpointRequestError,
    EndpointUnavailableError,
)
from chatui.errors import ChatUIError
from tests.agents.loops import HI, collect, end, notices, of, results, told
from tests.fakes.models import ScriptedModel, ScriptedToolbox, call

CLOCK = {"clock": "noon"}
REFUSES_TOOLS = EndpointRequestError("HTTP 400: this model does not support tools", detail="does not support tools")


def shown(events):
    return "".join(delta.text for delta in of(TextDelta, events))


# --- Odd answers --------------------------------------------------------------------------------------------------


async def test_an_answer_cut_by_its_length_is_truncated():
    events = await collect(ScriptedModel(["half", Finish.LENGTH]))
    assert (end(events).outcome, shown(events)) == (Outcome.TRUNCATED, "half")


async def test_an_answer_that_was_all_reasoning_up_to_the_limit_says_so():
    events = await collect(ScriptedModel([ReasoningChunk("hm"), Finish.LENGTH]))
    assert end(events).outcome is Outcome.TRUNCATED
    assert notices(events) == ["empty_response"]


async def test_an_answer_whose_stream_broke_off_is_truncated_and_says_so():
    events = await collect(ScriptedModel(["half", Finish.CUT]))
    assert end(events).outcome is Outcome.TRUNCATED
    assert notices(events) == ["answer_cut"]


async def test_a_stream_that_broke_off_before_any_text_is_a_failure():
    events = await collect(ScriptedModel([Finish.CUT]))
    assert (end(events).outcome, end(events).code) == (Outcome.FAILED, "endpoint_unavailable")
    assert end(events).message


@pytest.mark.parametrize("answer", [[], ["  \n"], [ReasoningChunk("hm")]])
async def test_an_empty_answer_is_said_to_be_empty_and_asked_for_only_once(answer):
    model = ScriptedModel(answer)
    events = await collect(model)
    assert end(events).outcome is Outcome.COMPLETED
    assert notices(events) == ["empty_response"]
    assert len(model.requests) == 1


async def test_an_empty_answer_after_a_tool_call_is_said_to_be_empty():
    events = await collect(ScriptedModel(["Looking.", call("clock")], []), ScriptedToolbox(CLOCK))
    assert notices(events) == ["empty_response"]


async def test_an_answer_that_a_filter_withheld_is_said_to_be_and_not_retried():
    model = ScriptedModel([Finish.CONTENT_FILTER])
    events = await collect(model)
    assert (end(events).outcome, end(events).code) == (Outcome.FAILED, "content_filter")
    assert notices(events) == ["content_filter"]
    assert len(model.requests) == 1


async def test_an_answer_that_a_filter_cut_keeps_what_was_shown():
    model = ScriptedModel(["So far", Finish.CONTENT_FILTER])
    events = await collect(model)
    assert (end(events).outcome, shown(events)) == (Outcome.COMPLETED, "So far")
    assert notices(events) == ["content_filter"]
    assert len(model.requests) == 1


async def test_calls_of_a_completion_that_a_filter_stopped_are_not_run():
    model, toolbox = ScriptedModel([call("clock"), Finish.CONTENT_FILTER]), ScriptedToolbox(CLOCK)
    events = await collect(model, toolbox)
    assert not toolbox.called
    assert results(events)["clock"].status is ToolStatus.ERROR
    assert len(model.requests) == 1
    assert notices(events) == ["content_filter"]


async def test_a_refusal_is_an_answer_and_flagged():
    from agents.parts import TextChunk

    class Refusing(ScriptedModel):
        async def _stream(self, answer):
            yield TextChunk("I will not do this.")
            yield Completion("I will not do this.", refusal=True)

    events = await collect(Refusing())
    assert shown(events) == "I will not do this."
    assert end(events).outcome is Outcome.COMPLETED
    assert end(events).refusal
    assert notices(events) == ["refusal"]


async def test_an_ordinary_answer_is_not_flagged():
    assert not end(await collect(ScriptedModel(["Yes."]))).refusal


# --- Endpoints that fail ------------------------------------------------------------------------------------------


async def test_a_failing_endpoint_ends_the_turn_with_a_code_and_plain_words():
    events = await collect(ScriptedModel([EndpointAuthenticationError("HTTP 401 sk-secret")]))
    assert (end(events).outcome, end(events).code) == (Outcome.FAILED, "endpoint_authentication")
    assert end(events).message == EndpointAuthenticationError.public_message


async def test_what_was_shown_before_a_failure_stays_and_nothing_is_asked_again():
    model = ScriptedModel(["Par", EndpointUnavailableError("log", detail="backend busy")])
    events = await collect(model)
    assert shown(events) == "Par"
    assert end(events).outcome is Outcome.FAILED
    assert "backend busy" in end(events).message
    assert "log" not in end(events).message
    assert len(model.requests) == 1


async def test_a_rate_limit_says_when_to_come_back():
    events = await collect(ScriptedModel([EndpointRateLimitedError("429", retry_after=12.2)]))
    assert "13 s" in end(events).message


async def test_a_failure_after_tool_calls_keeps_the_round():
    events = await collect(ScriptedModel([call("clock")], [EndpointUnavailableError()]), ScriptedToolbox(CLOCK))
    assert results(events)["clock"].text == "noon"
    assert end(events).outcome is Outcome.FAILED
    assert end(events).spent.rounds == 1


async def test_any_error_of_ours_is_told_in_its_own_words():
    class OverBudget(ChatUIError):
        code = "budget"
        public_message = "Your budget for today is used up."

    events = await collect(ScriptedModel([OverBudget()]))
    assert (end(events).code, end(events).message) == ("budget", "Your budget for today is used up.")


async def test_the_first_model_event_names_the_model_not_a_failed_request():
    assert not of(ModelNamed, await collect(ScriptedModel([EndpointError()])))


# --- An endpoint that refuses tools -------------------------------------------------------------------------------


async def test_an_endpoint_that_refuses_tools_is_asked_without_as_long_as_nothing_was_shown():
    model = ScriptedModel([REFUSES_TOOLS], ["plain"])
    events = await collect(model, ScriptedToolbox(CLOCK))
    assert [len(request.tools) for request in model.requests] == [1, 0]
    assert (end(events).outcome, shown(events)) == (Outcome.COMPLETED, "plain")
    assert notices(events) == ["tools_refused"]


async def test_it_is_asked_without_only_once():
    model = ScriptedModel([REFUSES_TOOLS])
    events = await collect(model, ScriptedToolbox(CLOCK))
    assert len(model.requests) == 2
    assert end(events).outcome is Outcome.FAILED


@pytest.mark.parametrize("before", ["text", ReasoningChunk("hm")])
async def test_nothing_that_was_shown_is_discarded_for_an_answer_without_tools(before):
    model = ScriptedModel([before, REFUSES_TOOLS])
    events = await collect(model, ScriptedToolbox(CLOCK))
    assert len(model.requests) == 1
    assert end(events).outcome is Outcome.FAILED


async def test_a_refusal_of_tools_after_a_round_is_a_failure():
    model = ScriptedModel([call("clock")], [REFUSES_TOOLS])
    events = await collect(model, ScriptedToolbox(CLOCK))
    assert len(model.requests) == 2
    assert end(events).outcome is Outcome.FAILED


@pytest.mark.parametrize(
    "error",
    [EndpointRequestError("HTTP 400: context too long"), EndpointUnavailableError("tools are down"), EndpointError()],
)
async def test_other_errors_are_not_taken_for_a_refusal_of_tools(error):
    model = ScriptedModel([error])
    events = await collect(model, ScriptedToolbox(CLOCK))
    assert len(model.requests) == 1
    assert end(events).outcome is Outcome.FAILED


async def test_where_no_tools_were_offered_there_is_nothing_to_leave_out():
    model = ScriptedModel([REFUSES_TOOLS])
    await collect(model, ScriptedToolbox())
    assert len(model.requests) == 1


# --- Without tools ------------------------------------------------------------------------------------------------


async def test_tools_off_gives_a_plain_answer_and_says_so():
    model = ScriptedModel(["plain"])
    events = await collect(model, ScriptedToolbox(CLOCK), tools=False)
    assert model.requests[0].tools == []
    assert notices(events) == ["tools_off"]


async def test_a_model_that_cannot_use_tools_gives_a_plain_answer_and_says_so():
    model = ScriptedModel(["plain"], name="Small", tools=False)
    events = await collect(model, ScriptedToolbox(CLOCK))
    assert model.requests[0].tools == []
    assert notices(events) == ["model_without_tools"]
    assert of(type(events[0]), events)[0].message.startswith("Small cannot")


async def test_a_model_that_cannot_use_tools_says_nothing_where_there_are_none():
    assert notices(await collect(ScriptedModel(["plain"], tools=False))) == []


@pytest.mark.parametrize("options", [{"tools": False}, {}])
async def test_a_call_that_was_not_offered_is_not_run(options):
    toolbox = ScriptedToolbox(CLOCK) if options else ScriptedToolbox()
    model = ScriptedModel([call("clock")], ["plain"])
    events = await collect(model, toolbox, **options)
    assert not toolbox.called
    assert "no tools are available" in told(model)[0]
    assert end(events).outcome is Outcome.COMPLETED


# --- Room in the context ------------------------------------------------------------------------------------------


async def test_results_that_outgrow_the_context_are_cut_oldest_first_with_one_notice():
    outputs = {f"t{number}": str(number) * 40_000 for number in range(4)}
    model = ScriptedModel(*[[call(name)] for name in outputs], ["done"], context=29_000)
    events = await collect(model, ScriptedToolbox(outputs))
    assert [len(text) for text in told(model)] == [8_000, 8_000, 40_000, 40_000]
    assert notices(events) == ["context_shortened"]
    assert end(events).outcome is Outcome.COMPLETED


async def test_the_current_question_is_sent_whatever_its_size():
    question = [HI[0], text_message("user", "x" * 100_000)]
    model = ScriptedModel(["ok"], context=1_000)
    await collect(model, messages=question)
    assert model.requests[0].messages == question


async def test_a_cut_off_call_is_stored_as_a_call_that_failed():
    model = ScriptedModel([ToolRequest("c", "clock", '{"a', complete=False), Finish.LENGTH], ["ok"])
    events = await collect(model, ScriptedToolbox(CLOCK))
    ((_, prepared),) = of(RoundCompleted, events)[0].calls
    assert prepared.result is not None
    assert len(of(CallFinished, events)) == 1
