"""Calls that come in fragments, however an endpoint cuts and numbers them, are whole calls: each over real HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agents.arguments import MAX_ARGUMENTS, parse_arguments
from agents.parts import ArgumentsProgress, Finish, ModelMessage, TextContent
from agents.providers.assembler import Assembler
from tests.agents.providers.conftest import BERGEN, CALLS, OSLO, QUESTION, START, STOP, Reply, ask, call, called, cost
from tests.fakes.endpoint import Endpoint, delta, text

ENDING = called(call(arguments='"}'))


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


# --- Long arguments -----------------------------------------------------------------------------------------------


def test_two_megabytes_in_twenty_thousand_fragments_take_time_in_proportion() -> None:
    fragment = called(call("get_weather", "a" * 100, id="c1"))
    lengths: list[int] = []

    def assemble(count: int) -> None:
        assembler = Assembler(["get_weather"])
        for chunk in [called(call("get_weather", '{"city":"', id="c1")), *[fragment] * count, ENDING, CALLS]:
            assembler.feed(chunk)
            assembler.drain()
        (request,) = assembler.finish(done=True)[1].requests
        lengths.append(len(json.loads(request.arguments)["city"]))

    assert cost(lambda: assemble(20_000)) < 8 * cost(lambda: assemble(5_000))
    assert max(lengths) == 2_000_000


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
