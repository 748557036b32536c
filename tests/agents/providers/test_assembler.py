"""What endpoints stream, with all their oddities, becomes the same clean values: each case over real HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.parts import Completion, Finish, ReasoningChunk, TextChunk, TokenUsage
from agents.providers.assembler import Assembler
from agents.providers.chat_model import EndpointRateLimitedError, EndpointUnavailableError
from chatui.text import clean
from tests.agents.providers.conftest import CALLS, OSLO, START, STOP, Reply, call, called
from tests.fakes.endpoint import chunk, delta

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
