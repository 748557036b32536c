"""What endpoints stream, with all their oddities, becomes the same clean values: each case over real HTTP."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.arguments import MAX_ARGUMENTS, parse_arguments
from agents.parts import (
    ArgumentsProgress,
    Completion,
    Finish,
    ModelMessage,
    ReasoningChunk,
    TextChunk,
    TextContent,
    TokenUsage,
)
from agents.providers.assembler import Assembler
from agents.providers.chat_model import EndpointRateLimitedError, EndpointUnavailableError
from chatui.text import clean
from tests.agents.providers.conftest import QUESTION, Reply, ask, call, called
from tests.fakes.endpoint import Endpoint, chunk, delta, text

OSLO, BERGEN = '{"city":"Oslo"}', '{"city":"Bergen"}'
START = delta("", role="assistant")
STOP, CALLS = delta(finish="stop"), delta(finish="tool_calls")


# --- Calls --------------------------------------------------------------------------------------------------------


async def test_a_new_id_with_a_name_at_an_occupied_index_opens_a_new_call(reply: Reply) -> None:
    first = called(call("get_weather", OSLO, id="call_a"))
    answered = await reply(START, first, called(call("add_numbers", '{"a":2,"b":3}', id="call_b")), CALLS)
    assert answered.calls == [("get_weather", OSLO), ("add_numbers", '{"a":2,"b":3}')]
    assert [request.id for request in answered.completion.requests] == ["call_a", "call_b"]


async def test_a_call_without_an_index_and_with_finish_stop_is_a_call(reply: Reply) -> None:
    fragment = call("get_weather", '{"city":"Lima"}', index=None, id="function-call-1")
    answered = await reply(called(fragment, role="assistant"), STOP)
    assert [(request.id, request.name) for request in answered.completion.requests] == [
        ("function-call-1", "get_weather")
    ]
    assert answered.completion.finish is Finish.TOOL_CALLS
    assert answered.completion.requests[0].complete


async def test_parallel_calls_without_any_index_are_told_apart(reply: Reply) -> None:
    one, two = call("get_weather", OSLO, index=None), call("get_weather", BERGEN, index=None)
    assert (await reply(called(one), called(two), STOP)).calls == [("get_weather", OSLO), ("get_weather", BERGEN)]
    assert (await reply(called(one, two), STOP)).calls == [("get_weather", OSLO), ("get_weather", BERGEN)]
    other = call("add_numbers", '{"a":1}', index=None)
    assert (await reply(called(one), called(other), STOP)).calls == [("get_weather", OSLO), ("add_numbers", '{"a":1}')]


async def test_a_fragment_without_id_belongs_to_the_newest_call_at_its_index(reply: Reply) -> None:
    pieces = [call(arguments='{"city":'), call(arguments='"Oslo"}')]
    others = [call(arguments='{"city":'), call(arguments='"Bergen"}')]
    opening = [call("get_weather", "", id="call_a"), call("get_weather", "", id="call_b")]
    steps = [opening[0], *pieces, opening[1], *others]
    answered = await reply(START, *(called(step) for step in steps), CALLS)
    assert answered.calls == [("get_weather", OSLO), ("get_weather", BERGEN)]


async def test_interleaved_fragments_go_to_their_index(reply: Reply) -> None:
    answered = await reply(
        called(call("get_weather", "", index=0, id="a"), call("get_weather", "", index=1, id="b")),
        called(call(arguments='{"city":', index=1), call(arguments='{"city":', index=0)),
        called(call(arguments='"Oslo"}', index=0)),
        called(call(arguments='"Bergen"}', index=1)),
        CALLS,
    )
    assert answered.calls == [("get_weather", OSLO), ("get_weather", BERGEN)]


async def test_a_first_call_at_index_one_leaves_no_hole(reply: Reply) -> None:
    opening = called(call("get_weather", "", index=1, id="tooluse_1"))
    answered = await reply(
        delta("Let me look.", role="assistant"), opening, called(call(arguments='{"city":"Rome"}', index=1)), CALLS
    )
    assert answered.calls == [("get_weather", '{"city":"Rome"}')]
    assert answered.completion.text == "Let me look."


async def test_a_call_without_id_gets_one_that_is_kept(endpoint: Endpoint, model_of: Any, reply: Reply) -> None:
    answered = await reply(
        START, called(call("get_weather", '{"ci')), called(call(arguments='ty":"Cork"}')), CALLS, end="done"
    )
    (request,) = answered.completion.requests
    assert (request.name, request.arguments) == ("get_weather", '{"city":"Cork"}')
    assert request.id
    endpoint.script(text("Rain."))
    result = ModelMessage("tool", (TextContent("rain"),), tool_call_id=request.id)
    await ask(model_of(), [*QUESTION, ModelMessage("assistant", (), (request,)), result])
    sent = endpoint.last.messages
    assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"] == request.id


@pytest.mark.parametrize("call_id", ["tool-aa62", None])
async def test_id_and_name_repeated_in_every_chunk_are_not_concatenated(reply: Reply, call_id: str | None) -> None:
    pieces = ["", '{"city":', '"Kyiv"}']
    answered = await reply(START, *(called(call("get_weather", piece, id=call_id)) for piece in pieces), CALLS)
    assert answered.calls == [("get_weather", '{"city":"Kyiv"}')]
    if call_id:
        assert answered.completion.requests[0].id == call_id


async def test_a_name_may_be_split_or_grow(reply: Reply) -> None:
    split = [call("get_", "", id="c1"), call("weather"), call(arguments=OSLO)]
    assert (await reply(*map(called, split), CALLS)).calls == [("get_weather", OSLO)]
    grown = [call("get_", "", id="c1"), call("get_weather", ""), call(arguments=OSLO)]
    assert (await reply(*map(called, grown), CALLS)).calls == [("get_weather", OSLO)]


async def test_an_id_that_changes_with_every_fragment_is_one_call(reply: Reply) -> None:
    for index in (0, None):
        fragments = [
            call("get_weather", "", index=index, id="a"),
            call(arguments='{"city":', index=index, id="b"),
            call(arguments='"Oslo"}', index=index, id="c"),
        ]
        answered = await reply(*map(called, fragments), CALLS)
        assert answered.calls == [("get_weather", OSLO)]
        assert answered.completion.requests[0].id == "a"


async def test_empty_ids_and_names_in_later_fragments_are_nothing(reply: Reply) -> None:
    fragments = [call("get_weather", "", id="a"), call("", '{"city":', id=""), call("", '"Oslo"}', id="")]
    answered = await reply(*map(called, fragments), CALLS)
    assert answered.calls == [("get_weather", OSLO)]
    assert answered.completion.requests[0].id == "a"


async def test_one_id_for_all_parallel_calls_becomes_an_id_each(reply: Reply) -> None:
    both = called(call("get_weather", OSLO, index=0, id="call_0"), call("get_weather", BERGEN, index=1, id="call_0"))
    answered = await reply(both, CALLS)
    assert answered.calls == [("get_weather", OSLO), ("get_weather", BERGEN)]
    assert len({request.id for request in answered.completion.requests}) == 2


async def test_fragments_are_matched_by_id_where_there_is_no_index(reply: Reply) -> None:
    fragments = [
        call("get_weather", "", index=None, id="a"),
        call("get_weather", "", index=None, id="b"),
        call(arguments=OSLO, index=None, id="a"),
        call(arguments=BERGEN, index=None, id="b"),
    ]
    assert (await reply(*map(called, fragments), CALLS)).calls == [("get_weather", OSLO), ("get_weather", BERGEN)]


async def test_an_index_that_grows_with_every_fragment_is_one_call(reply: Reply) -> None:
    fragments = [call("get_weather", "", index=0, id="a")]
    fragments += [call(arguments=piece, index=n) for n, piece in enumerate(('{"city":', '"Oslo"}'), 1)]
    assert (await reply(*map(called, fragments), CALLS)).calls == [("get_weather", OSLO)]


async def test_a_call_whose_name_comes_after_its_arguments_is_a_call(reply: Reply) -> None:
    fragments = [call(arguments='{"city":', id="a"), call(arguments='"Oslo"}'), call("get_weather")]
    assert (await reply(*map(called, fragments), CALLS)).calls == [("get_weather", OSLO)]


async def test_arguments_sent_whole_once_more_are_collapsed(reply: Reply) -> None:
    whole = called(call(arguments='{"city":"Gent"}'))
    answered = await reply(START, called(call("get_weather", "", id="c1")), whole, whole, CALLS)
    assert answered.calls == [("get_weather", '{"city":"Gent"}')]


async def test_a_whole_repetition_of_the_same_call_is_one_call(reply: Reply) -> None:
    whole = called(call("get_weather", OSLO, id="c1"))
    assert (await reply(whole, whole, CALLS)).calls == [("get_weather", OSLO)]


async def test_arguments_may_come_as_an_object(reply: Reply) -> None:
    answered = await reply(called(call("get_weather", {"city": "Zürich"}, id="c1")), CALLS)
    assert answered.calls == [("get_weather", '{"city": "Zürich"}')]


async def test_null_arguments_are_no_arguments(reply: Reply) -> None:
    fragment = {"index": 0, "id": "c1", "function": {"name": "get_weather", "arguments": None}}
    assert (await reply(called(fragment), CALLS)).calls == [("get_weather", "")]


async def test_a_flat_call_and_a_legacy_function_call_are_calls(reply: Reply) -> None:
    flat = {"index": 0, "id": "c1", "name": "get_weather", "arguments": OSLO}
    assert (await reply(called(flat), CALLS)).calls == [("get_weather", OSLO)]
    legacy = delta(function_call={"name": "get_weather", "arguments": '{"city":'})
    more = delta(function_call={"arguments": '"Oslo"}'})
    answered = await reply(legacy, more, delta(finish="function_call"))
    assert answered.calls == [("get_weather", OSLO)]


@pytest.mark.parametrize("calls", [None, [], [None], ["x"], {}, "x", [{}], [{"index": 0, "function": None}]])
async def test_tool_calls_that_are_none_cost_no_text(reply: Reply, calls: Any) -> None:
    answered = await reply(delta("one ", tool_calls=None), delta("two", tool_calls=calls), STOP)
    assert answered.text == "one two"
    assert not answered.calls


async def test_a_call_of_a_tool_that_is_not_offered_is_passed_on(reply: Reply) -> None:
    assert (await reply(called(call("rm_rf", "{}", id="c1")), CALLS)).calls == [("rm_rf", "{}")]


async def test_text_after_the_first_call_is_kept_and_not_streamed(reply: Reply) -> None:
    answered = await reply(
        delta("Before."), called(call("get_weather", OSLO, id="c1")), delta("Aft"), delta("er."), CALLS
    )
    assert answered.text == answered.completion.text == "Before."
    assert answered.completion.trailing_text == "After."
    blank = await reply(called(call("get_weather", OSLO, id="c1")), delta("\n"), CALLS)
    assert blank.completion.trailing_text == ""


async def test_text_in_the_chunk_of_the_first_call_precedes_it(reply: Reply) -> None:
    answered = await reply(called(call("get_weather", OSLO, id="c1"), content="Looking."), CALLS)
    assert (answered.text, answered.completion.trailing_text) == ("Looking.", "")


async def test_a_signature_comes_back_with_its_call_only(reply: Reply, endpoint: Endpoint, model_of: Any) -> None:
    signature = {"extra_content": {"google": {"thought_signature": "c2lnMQ=="}}}
    answered = await reply(
        called(call("get_weather", OSLO, index=None, id="fc1", **signature)),
        delta(role="assistant", extra_content={"google": {"thought_signature": "c2lnMg=="}}),
        STOP,
    )
    (request,) = answered.completion.requests
    assert request.extra == signature
    endpoint.script(text("ok"))
    await ask(model_of(), [*QUESTION, ModelMessage("assistant", (), (request,))])
    assert endpoint.last.messages[1]["tool_calls"][0]["extra_content"] == signature["extra_content"]


async def test_a_signature_in_a_later_fragment_is_added_and_never_replaced(reply: Reply) -> None:
    answered = await reply(
        called(call("get_weather", "", id="c1", extra_content={"a": 1})),
        called(call(arguments=OSLO, extra_content={"a": 2}, thought_signature="s", other=None)),
        CALLS,
    )
    assert answered.completion.requests[0].extra == {"extra_content": {"a": 1}, "thought_signature": "s"}


# --- Cut off ------------------------------------------------------------------------------------------------------


async def test_an_answer_cut_by_its_length_says_so(reply: Reply) -> None:
    answered = await reply(delta("The answer is"), delta(finish="length"))
    assert (answered.completion.text, answered.completion.finish) == ("The answer is", Finish.LENGTH)


@pytest.mark.parametrize("arguments", ["", '{"city":', OSLO])
async def test_a_call_cut_by_the_length_is_not_complete(reply: Reply, arguments: str) -> None:
    answered = await reply(called(call("get_weather", arguments, id="c1")), delta(finish="length"))
    assert [request.complete for request in answered.completion.requests] == [False]
    assert answered.completion.finish is Finish.LENGTH


async def test_whole_calls_before_a_cut_one_are_complete(reply: Reply) -> None:
    answered = await reply(
        called(call("get_weather", OSLO, id="c1")),
        called(call("get_weather", "", index=1, id="c2")),
        called(call("get_weather", '{"ci', index=2, id="c3")),
        end="eof",
    )
    assert [request.complete for request in answered.completion.requests] == [True, False, False]
    assert answered.completion.finish is Finish.CUT


async def test_a_stream_that_just_ends_is_cut(reply: Reply) -> None:
    answered = await reply(delta("Hel"), end="eof")
    assert (answered.completion.text, answered.completion.finish) == ("Hel", Finish.CUT)


async def test_done_without_a_finish_is_a_whole_answer(reply: Reply) -> None:
    answered = await reply(delta("Hello"), delta(""))
    assert (answered.completion.text, answered.completion.finish) == ("Hello", Finish.STOP)
    answered = await reply(called(call("get_weather", OSLO, id="c1")))
    assert [request.complete for request in answered.completion.requests] == [True]


async def test_a_finish_without_done_is_a_whole_answer(reply: Reply) -> None:
    answered = await reply(delta("Hello"), STOP, end="eof")
    assert answered.completion.finish is Finish.STOP


async def test_a_reset_after_the_finish_costs_nothing(reply: Reply) -> None:
    answered = await reply(called(call("get_weather", OSLO, id="c1")), CALLS, end="reset")
    assert answered.calls == [("get_weather", OSLO)]


@pytest.mark.parametrize("reason", ["eos_token", "end_turn", "COMPLETE", 7])
async def test_an_unknown_reason_to_finish_is_a_stop(reply: Reply, reason: Any) -> None:
    assert (await reply(delta("Hi"), delta(finish=reason))).completion.finish is Finish.STOP


async def test_a_withheld_answer_says_so_even_without_text(reply: Reply) -> None:
    answered = await reply(chunk({"delta": {"role": "assistant", "content": None}}), delta(finish="content_filter"))
    assert (answered.completion.text, answered.completion.finish) == ("", Finish.CONTENT_FILTER)


async def test_finish_tool_calls_without_a_call_is_a_stop(reply: Reply) -> None:
    assert (await reply(delta("Hi"), CALLS)).completion.finish is Finish.STOP


# --- Chunks of odd shapes -----------------------------------------------------------------------------------------


async def test_a_first_chunk_without_choices_is_passed_over(reply: Reply) -> None:
    filters = [{"prompt_index": 0, "content_filter_results": {"hate": {"filtered": False}}}]
    answered = await reply(chunk(None, id="", model="", prompt_filter_results=filters), delta("Hi"), STOP)
    assert answered.text == "Hi"
    assert answered.completion.model == "test-model"


async def test_usage_comes_with_empty_null_or_missing_choices_and_counts_once(reply: Reply) -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
    without = {"object": "chat.completion.chunk", "usage": usage}
    trailing = [chunk(None, usage=usage), {**without, "choices": None}, without]
    answered = await reply(delta("ok"), STOP, *trailing)
    assert answered.text == "ok"
    assert answered.completion.usage == TokenUsage(5, 1)


async def test_cumulative_usage_on_every_chunk_ends_nothing_and_the_last_counts(reply: Reply) -> None:
    def used(made: int) -> dict[str, int]:
        return {"prompt_tokens": 9, "completion_tokens": made, "total_tokens": 9 + made}

    answered = await reply(
        delta(role="assistant", tool_calls=[call("get_weather", "", id="c1")], usage=used(1)),
        delta(tool_calls=[call(arguments='{"city":"Graz"}')], usage=used(7)),
        delta(finish="tool_calls", usage=used(8)),
    )
    assert answered.calls == [("get_weather", '{"city":"Graz"}')]
    assert answered.completion.usage == TokenUsage(9, 8)


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None, "completion_tokens": None}, "7", [1], 7])
async def test_usage_that_says_nothing_is_estimated(reply: Reply, usage: Any) -> None:
    answered = await reply(delta("four char"), chunk({"delta": {}, "finish_reason": "stop"}, usage=usage))
    assert answered.completion.usage is not None
    assert answered.completion.usage.estimated
    assert answered.completion.usage.output_tokens == 3


@pytest.mark.parametrize(
    "odd",
    [
        chunk({"delta": None}),
        chunk({"content_filter_results": {}}),
        chunk({"delta": "text"}),
        chunk({"delta": []}),
        chunk(None, choices=[None]),
        chunk(None, choices="x"),
        chunk({"delta": {"content": None, "reasoning_content": None, "refusal": None, "tool_calls": None}}),
        chunk({"delta": {"content": 7}}),
        chunk({"delta": {"content": {}}}),
        {"object": "ping"},
        "data: 7\n\n",
        'data: "text"\n\n',
        "data: null\n\n",
        "data: []\n\n",
        "event: ping\ndata: \n\n",
        "data:\n\n",
    ],
)
async def test_a_chunk_that_says_nothing_costs_nothing(reply: Reply, odd: Any) -> None:
    answered = await reply(delta("A"), odd, delta("B"), chunk({"delta": None, "finish_reason": "stop"}))
    assert answered.text == answered.completion.text == "AB"
    assert answered.completion.finish is Finish.STOP


async def test_only_the_first_choice_is_the_answer(reply: Reply) -> None:
    other = chunk({"index": 1, "delta": {"content": "other"}})
    both = chunk(None, choices=[{"index": 0, "delta": {"content": "B"}}, {"index": 1, "delta": {"content": "x"}}])
    assert (await reply(delta("A"), other, both, STOP)).text == "AB"


async def test_a_cumulative_message_beside_the_deltas_is_not_shown_twice(reply: Reply) -> None:
    steps = [chunk({"delta": {"content": piece}, "message": {"content": piece}}) for piece in ("Hello", " there")]
    last = chunk({"message": {"content": "Hello there"}, "finish_reason": "stop"})
    assert (await reply(*steps, last)).text == "Hello there"


async def test_a_whole_message_in_a_chunk_is_taken(reply: Reply) -> None:
    message = {"role": "assistant", "content": "Hi", "tool_calls": [call("get_weather", OSLO, index=None)] * 2}
    answered = await reply(chunk({"message": message, "finish_reason": "tool_calls"}))
    assert answered.text == "Hi"
    assert answered.calls == [("get_weather", OSLO)] * 2


async def test_content_may_be_a_list_of_parts(reply: Reply) -> None:
    thinking = [{"type": "thinking", "thinking": [{"type": "text", "text": "hmm"}]}]
    answered = await reply(delta(thinking), delta([{"type": "text", "text": "4"}]), delta("2"), STOP)
    assert (answered.reasoning, answered.text) == ("hmm", "42")
    odd = [None, 7, {"type": "text"}, {"type": "text", "text": None}, "x", {"type": "image_url"}]
    assert (await reply(delta(odd), delta({"type": "text", "text": "y"}), STOP)).text == "xy"


async def test_a_refusal_is_shown_and_flagged(reply: Reply) -> None:
    answered = await reply(
        delta("", role="assistant", refusal=None), delta(refusal="I will "), delta(refusal="not do this."), STOP
    )
    assert answered.text == answered.completion.text == "I will not do this."
    assert answered.completion.refusal
    assert not (await reply(delta("Sure.", refusal=""), STOP)).completion.refusal


async def test_an_empty_answer_is_an_empty_completion(reply: Reply) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 40, "total_tokens": 50}
    answered = await reply(START, delta(finish="stop", usage=usage))
    assert [type(event) for event in answered.events] == [Completion]
    assert (answered.completion.text, answered.completion.finish) == ("", Finish.STOP)


async def test_an_emoji_split_into_two_chunks_as_surrogates_is_whole(reply: Reply) -> None:
    start = '{"choices":[{"index":0,"delta":{"content":"'
    halves = [f'data: {start}a\\ud83c"}}}}]}}\n\n', f'data: {start}\\udf78b"}}}}]}}\n\n']
    answered = await reply(*halves, STOP)
    assert answered.text == "a\U0001f378b"


async def test_lone_surrogates_and_nul_become_replacement_characters(reply: Reply) -> None:
    start = '{"choices":[{"index":0,"delta":{"content":"'
    answered = await reply(f'data: {start}x\\udf78y\\u0000z\\ud83c"}}}}]}}\n\n', STOP)
    assert answered.text == answered.completion.text == "x\ufffdy\ufffdz\ufffd"


# --- Reasoning ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning_content": "hmm"},
        {"reasoning": "hmm"},
        {"reasoning": "hmm", "reasoning_content": "hmm"},
        {"reasoning": "hmm", "reasoning_details": [{"type": "reasoning.text", "text": "hmm"}]},
        {"reasoning_details": [{"type": "reasoning.text", "text": "hmm"}]},
        {"reasoning": {"text": "hmm"}},
    ],
)
async def test_reasoning_comes_in_any_of_its_fields_and_once(reply: Reply, fields: dict[str, Any]) -> None:
    answered = await reply(delta("", **fields), delta("42", reasoning_content=None), STOP)
    assert (answered.reasoning, answered.text) == ("hmm", "42")
    assert answered.completion.reasoning == "hmm"


async def test_think_tags_split_over_chunks_are_recognised(reply: Reply) -> None:
    answered = await reply(delta("<th"), delta("ink>plan"), delta(" it</thi"), delta("nk>42"), STOP)
    assert (answered.reasoning, answered.text) == ("plan it", "42")


async def test_the_answer_in_the_chunk_of_the_closing_tag_is_the_answer(reply: Reply) -> None:
    answered = await reply(delta("<think>a</think>\n\nVisible"), STOP)
    assert (answered.reasoning, answered.text) == ("a", "Visible")
    assert (answered.completion.reasoning, answered.completion.text) == ("a", "Visible")


@pytest.mark.parametrize(
    "content",
    [
        "<think>plan</think>42",
        "\n<think>\nplan</think>\n\n42",
        "<THINK>plan</Think>42",
        "<thinking>plan</thinking>42",
        "<thought>plan</thought>42",
        "[THINK]plan[/THINK]42",
        "◁think▷plan◁/think▷42",
        "<think>pl</think>\n<think>an</think>42",
        "<think></think>\n<think>plan</think>\n42",
    ],
)
async def test_every_form_of_the_tags_is_recognised_whole_and_letter_by_letter(reply: Reply, content: str) -> None:
    for pieces in ([content], list(content)):
        answered = await reply(*map(delta, pieces), STOP)
        assert (answered.reasoning, answered.text) == ("plan", "42")


@pytest.mark.parametrize(
    "content",
    [
        "Use <think> and </think> around it.",
        "a < b and b > a",
        "The tag `</think>` closes it.",
        "<thin",
        "<",
        "x <",
        "<thesis>plan</thesis>",
        "1 <think",
        "   indented",
        "İ<thi İ",
    ],
)
async def test_text_about_tags_stays_text(reply: Reply, content: str) -> None:
    for pieces in ([content], list(content)):
        answered = await reply(*map(delta, pieces), STOP)
        assert (answered.reasoning, answered.text) == ("", content)


async def test_a_block_that_is_never_closed_is_reasoning(reply: Reply) -> None:
    answered = await reply(delta("<think>plan</th"), delta(finish="length"))
    assert (answered.reasoning, answered.text) == ("plan</th", "")
    assert answered.completion.finish is Finish.LENGTH


async def test_a_closing_tag_alone_ends_the_reasoning_before_it(reply: Reply) -> None:
    answered = await reply(delta("plan it</think>\n\n42"), STOP)
    assert (answered.reasoning, answered.text) == ("plan it", "42")


async def test_a_model_that_sends_only_the_closing_tag_is_remembered(reply: Reply) -> None:
    first = await reply(delta("plan"), STOP)
    assert first.text == "plan"
    await reply(delta("plan it</think>42"), STOP)
    answered = await reply(delta("pl"), delta("an"), delta("</thi"), delta("nk>\n4"), delta("2"), STOP)
    assert (answered.reasoning, answered.text) == ("plan", "42")
    unthinking = await reply(delta("The "), delta("answer."), STOP)
    assert unthinking.completion.text == unthinking.text == "The answer."
    forgotten = await reply(delta("The "), delta("answer."), STOP)
    assert (forgotten.reasoning, forgotten.text) == ("", "The answer.")


def test_text_that_was_shown_stays_text_when_a_closing_tag_comes() -> None:
    assembler = Assembler()
    assembler.feed(delta("plan"))
    assert assembler.drain() == [TextChunk("plan")]
    assembler.feed(delta(" it</think>42", finish="stop"))
    events, completion = assembler.finish(done=True)
    assert "".join(event.text for event in events if isinstance(event, TextChunk)) == " it42"
    assert completion.text == "plan it42"


async def test_a_closing_tag_after_reasoning_of_its_own_field_is_text(reply: Reply) -> None:
    answered = await reply(delta(reasoning_content="hmm"), delta("a </think> b"), STOP)
    assert (answered.reasoning, answered.text) == ("hmm", "a </think> b")


async def test_reasoning_after_a_call_is_still_reasoning(reply: Reply) -> None:
    answered = await reply(called(call("get_weather", OSLO, id="c1")), delta(reasoning="and"), CALLS)
    assert answered.completion.reasoning == "and"


# --- Calls written as text ----------------------------------------------------------------------------------------

WRITTEN = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


@pytest.mark.parametrize(
    ("content", "count"),
    [
        (WRITTEN, 1),
        (f"{WRITTEN}\n{WRITTEN.replace('Oslo', 'Bergen')}", 2),
        (f"<think>I call</think>\n{WRITTEN}\n", 1),
        (f"I call</think>\n{WRITTEN}\n", 1),
        (WRITTEN.replace("arguments", "parameters"), 1),
        (WRITTEN.replace("</tool_call>", ""), 1),
    ],
)
async def test_an_answer_that_is_nothing_but_written_calls_is_calls(reply: Reply, content: str, count: int) -> None:
    for pieces in ([content], list(content)):
        answered = await reply(*map(delta, pieces), STOP)
        assert answered.text == answered.completion.text == ""
        assert len(answered.calls) == count
        assert answered.calls[0] == ("get_weather", '{"city": "Oslo"}')
        assert answered.completion.finish is Finish.TOOL_CALLS
        assert all(request.id for request in answered.completion.requests)


@pytest.mark.parametrize(
    "content",
    [
        f"Like this: {WRITTEN}",
        f"{WRITTEN} That was it.",
        WRITTEN.replace("get_weather", "rm_rf"),
        WRITTEN.replace('"name"', '"tool"'),
        "<tool_call>not json</tool_call>",
        "<tool_call>",
        "<tool_calls>",
        "<tool",
        f"{WRITTEN}{WRITTEN.replace('get_weather', 'rm_rf')}",
        '{"name": "get_weather", "arguments": {"city": "Oslo"}}',
        f"```\n{WRITTEN}\n```",
    ],
)
async def test_anything_else_that_looks_like_a_written_call_is_shown(reply: Reply, content: str) -> None:
    for pieces in ([content], list(content)):
        answered = await reply(*map(delta, pieces), STOP)
        assert answered.text == answered.completion.text == content
        assert not answered.calls


def test_a_written_call_that_prose_follows_is_shown_at_once() -> None:
    assembler = Assembler(["get_weather"])
    for piece in [*WRITTEN, " That"]:
        assembler.feed(delta(piece))
    assert assembler.drain() == [TextChunk(f"{WRITTEN} That")]


async def test_a_written_call_that_was_cut_off_is_text(reply: Reply) -> None:
    answered = await reply(delta(WRITTEN[:-20]), delta(finish="length"))
    assert answered.text == WRITTEN[:-20]
    assert not answered.calls


async def test_a_written_call_is_text_where_no_tool_may_be_called(endpoint: Endpoint, model_of: Any) -> None:
    for options in ({"tools": ()}, {"tool_choice": "none"}):
        endpoint.script(text(WRITTEN))
        assert (await ask(model_of(), **options)).text == WRITTEN  # type: ignore[arg-type]


def test_ordinary_text_is_never_held_back() -> None:
    assembler = Assembler(["get_weather"])
    for piece in ("The", " sky", " is", "\n", " blue <", "b> and"):
        assembler.feed(delta(piece))
        shown = "".join(event.text for event in assembler.drain() if isinstance(event, TextChunk))
        assert shown.lstrip("<") == piece.rstrip("<")


# --- Errors in the stream -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        'data: {"error":{"message":"backend busy","type":"server_error","code":503}}\n\n',
        'data: {"error":"backend busy"}\n\n',
        'data: {"type":"error","error":{"message":"backend busy"}}\n\n',
        'data: {"object":"error","message":"backend busy","code":500}\n\n',
        'event: error\ndata: {"message":"backend busy"}\n\n',
        "event: error\ndata: backend busy\n\n",
        '{"error":{"message":"backend busy"}}\n\n',
        'data: {"id":"x","choices":[{"index":0,"del\ndata: {"type":"error","error":{"message":"backend busy"}}\n\n',
        'data: {"choices":[],"error":{"message":"backend busy"}}\n\n',
    ],
)
async def test_an_error_in_mid_stream_keeps_what_was_shown(reply: Reply, event: str) -> None:
    answered = await reply(delta("Par"), delta("t <"), event, end="eof")
    assert answered.text == "Part <"
    assert isinstance(answered.error, EndpointUnavailableError)
    assert "backend busy" in answered.error.detail


async def test_an_error_code_in_the_stream_tells_the_kind(reply: Reply) -> None:
    answered = await reply(delta("A"), {"error": {"message": "slow down", "code": 429}}, end="eof")
    assert isinstance(answered.error, EndpointRateLimitedError)


async def test_an_error_that_is_null_is_none(reply: Reply) -> None:
    assert (await reply({**delta("A"), "error": None}, STOP)).text == "A"


async def test_a_broken_chunk_is_an_error_and_not_a_gap(reply: Reply) -> None:
    answered = await reply(delta("A"), 'data: {"choices":[{"del\n\n', delta("B"), STOP)
    assert answered.text == "A"
    assert isinstance(answered.error, EndpointUnavailableError)


async def test_a_finish_that_means_an_error_is_one(reply: Reply) -> None:
    answered = await reply(delta("A"), delta(finish="error"))
    assert isinstance(answered.error, EndpointUnavailableError)


# --- Long arguments -----------------------------------------------------------------------------------------------


def test_two_megabytes_in_twenty_thousand_fragments_take_no_two_seconds() -> None:
    piece = "a" * 100
    fragments = [called(call("get_weather", '{"city":"', id="c1"))]
    fragments += [called(call("get_weather", piece, id="c1")) for _ in range(20_000)]
    fragments += [called(call(arguments='"}')), CALLS]
    began = time.process_time()
    assembler = Assembler(["get_weather"])
    for fragment in fragments:
        assembler.feed(fragment)
        assembler.drain()
    _, completion = assembler.finish(done=True)
    assert time.process_time() - began < 6
    assert len(json.loads(completion.requests[0].arguments)["city"]) == 2_000_000


def test_a_written_call_of_a_megabyte_letter_by_letter_is_not_quadratic() -> None:
    assembler = Assembler(["get_weather"])
    began = time.process_time()
    for piece in ["<tool_call>", *["a>"] * 100_000]:
        assembler.feed(delta(piece))
    assert time.process_time() - began < 6


def test_arguments_above_the_limit_are_cut_so_that_they_are_refused() -> None:
    assembler = Assembler()
    assembler.feed(called(call("t", '{"q":"' + "a" * MAX_ARGUMENTS, id="c1")))
    assembler.feed(called(call(arguments="b" * MAX_ARGUMENTS)))
    assembler.feed(CALLS)
    (request,) = assembler.finish()[1].requests
    assert len(request.arguments) == MAX_ARGUMENTS + 1
    assert "too large" in parse_arguments(request.arguments).error


def test_long_arguments_give_a_sign_of_life_at_most_once_a_second() -> None:
    now = 0.0
    assembler = Assembler(clock=lambda: now)
    assembler.feed(called(call("get_weather", "", id="c1")))
    signs = assembler.drain()
    assert signs == [ArgumentsProgress("get_weather", 0)]
    for _ in range(600):
        now += 0.2
        assembler.feed(called(call(arguments="a" * 500)))
        signs += assembler.drain()
    assert 110 <= len(signs) <= 121
    assert all(isinstance(sign, ArgumentsProgress) for sign in signs)


# --- Properties ---------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(alphabet="<>/thinkcal_`[] \n{}", max_size=6), max_size=20))
def test_the_shown_text_is_always_the_text_of_the_completion(pieces: list[str]) -> None:
    assembler = Assembler(["t"])
    events = []
    for piece in pieces:
        assembler.feed(delta(piece))
        events += assembler.drain()
    last, completion = assembler.finish(done=True)
    events += last
    assert "".join(event.text for event in events if isinstance(event, TextChunk)) == completion.text
    assert "".join(event.text for event in events if isinstance(event, ReasoningChunk)) == completion.reasoning


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="<[◁"), max_size=8), max_size=20), st.integers(1, 5))
def test_text_without_tags_arrives_as_it_was_sent(pieces: list[str], drained_every: int) -> None:
    assembler = Assembler()
    for number, piece in enumerate(pieces):
        assembler.feed(delta(piece))
        if number % drained_every == 0:
            assembler.drain()
    whole = clean("".join(pieces))
    assert assembler.finish(done=True)[1].text == (whole if whole.strip() else "")


JSONISH = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "content",
                    "tool_calls",
                    "function",
                    "name",
                    "arguments",
                    "id",
                    "index",
                    "usage",
                    "reasoning",
                    "finish_reason",
                    "message",
                    "type",
                    "text",
                    "refusal",
                    "model",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(JSONISH, max_size=4))
def test_no_chunk_of_any_shape_raises(documents: list[Any]) -> None:
    assembler = Assembler(["t"])
    for document in documents:
        assembler.feed({"choices": [{"delta": document}]})
        assembler.feed({"choices": [document]})
        assembler.feed(document)
    assembler.finish()
