"""What a model is told of a round, and how a conversation is fitted into a context."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.context import Answered, estimate_tokens, fit, input_budget, message_tokens, round_messages, shortened
from agents.parts import (
    ImageContent,
    ModelMessage,
    TextContent,
    ToolRequest,
    ToolResult,
    ToolStatus,
    text_message,
)
from agents.providers.chat_model import Capabilities
from tests.fakes.models import faults


def answered(id="c1", arguments="{}", text="r", understood=None, status=ToolStatus.OK):
    return Answered(ToolRequest(id, "t", arguments), ToolResult(status, text), understood)


# --- A round ------------------------------------------------------------------------------------------------------


def test_a_round_is_the_assistants_message_and_one_tool_message_for_each_call():
    messages = round_messages("Look.", [answered("a"), answered("b", text="s")], trailing_text="Wait.")
    assert [message.role for message in messages] == ["assistant", "tool", "tool"]
    assert messages[0].text == "Look.\n\nWait."
    assert [message.tool_call_id for message in messages[1:]] == ["a", "b"]
    assert [message.text for message in messages[1:]] == ["r", "s"]


@pytest.mark.parametrize("text", ["", "  \n"])
def test_a_round_without_anything_to_tell_is_no_message(text):
    assert round_messages(text, [], reasoning="hm") == []


def test_a_round_of_calls_alone_has_no_empty_text():
    assert round_messages("", [answered()])[0].content == ()


def test_calls_with_one_id_or_none_are_answered_under_ids_of_their_own():
    messages = round_messages("", [answered("x"), answered("x"), answered(""), answered("x")])
    ids = [call.id for call in messages[0].tool_calls]
    assert len(set(ids)) == 4
    assert ids[0] == "x"
    assert [message.tool_call_id for message in messages[1:]] == ids


def test_arguments_that_are_an_object_go_back_as_they_were_written():
    assert round_messages("", [answered(arguments='{"a":  1}')])[0].tool_calls[0].arguments == '{"a":  1}'


@pytest.mark.parametrize("arguments", ["", '{"value": ', "[1]", "null", "[" * 100_000])
def test_other_arguments_go_back_as_they_were_understood_else_empty(arguments):
    assert round_messages("", [answered(arguments=arguments)])[0].tool_calls[0].arguments == "{}"
    understood = round_messages("", [answered(arguments=arguments, understood={"a": "ü"})])
    assert understood[0].tool_calls[0].arguments == '{"a": "ü"}'


@pytest.mark.parametrize("status", [ToolStatus.ERROR, ToolStatus.TIMEOUT, ToolStatus.UNAVAILABLE])
def test_a_failure_cannot_be_taken_for_a_success(status):
    assert round_messages("", [answered(text="all fine", status=status)])[1].text == "Error: all fine"
    assert round_messages("", [answered(text="Error: no", status=status)])[1].text == "Error: no"


@pytest.mark.parametrize("status", list(ToolStatus))
def test_no_tool_message_is_empty(status):
    assert round_messages("", [answered(text="  ", status=status)])[1].text.strip()


# --- Tokens -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("abcd", 1), ("abcde", 2), ("x" * 400, 100), ("北京" * 50, 100), ("北京abcd", 3)]
)
def test_four_characters_are_a_token_and_a_wide_one_is_one(text, tokens):
    assert estimate_tokens(text) == tokens


@given(st.text())
def test_the_estimate_lies_between_a_quarter_and_all_of_the_characters(text):
    assert len(text) / 4 <= estimate_tokens(text) <= len(text) * 1.0 or len(text) < 4


def test_a_lone_surrogate_is_counted_not_an_error():
    assert estimate_tokens("\ud800" * 8) > 0


def test_what_is_reserved_and_room_for_the_answer_come_off_the_context():
    assert input_budget(Capabilities(context=100_000), 1_000) == 100_000 - 4_096 - 1_000
    assert input_budget(Capabilities(context=4_000)) == 3_000


# --- Fitting ------------------------------------------------------------------------------------------------------

SYSTEM = text_message("system", "You help.")


def turn(number, output=0, answer="ok"):
    """A turn with a tool output of so many characters, if any."""
    messages = [text_message("user", f"q{number}")]
    if output:
        messages += round_messages("", [answered(f"c{number}", text=str(number)[0] * output)])
    return [*messages, text_message("assistant", answer)]


def tokens(messages):
    return sum(message_tokens(message) for message in messages)


def questions(messages):
    return [message.text for message in messages if message.role == "user"]


def outputs(messages):
    return [len(message.text) for message in messages if message.role == "tool"]


def test_what_fits_stays_as_it_is():
    messages = [SYSTEM, *turn(1, 50_000), *turn(2)]
    fitted = fit(messages, tokens(messages))
    assert (fitted.messages, fitted.cut, fitted.dropped) == (messages, 0, 0)


def test_first_the_outputs_of_old_turns_are_cut_oldest_first_and_no_more_than_needed():
    messages = [SYSTEM, *turn(1, 20_000), *turn(2, 20_000), *turn(3, 20_000)]
    fitted = fit(messages, tokens(messages) - 100)
    assert outputs(fitted.messages) == [8_000, 20_000, 20_000]
    assert (fitted.cut, fitted.dropped) == (1, 0)
    fitted = fit(messages, tokens(messages) - 4_000)
    assert outputs(fitted.messages) == [8_000, 8_000, 20_000]


def test_then_the_oldest_turns_are_dropped_whole():
    messages = [SYSTEM, *turn(1, 20_000), *turn(2, 20_000), *turn(3, 20_000)]
    fitted = fit(messages, 8_000)
    assert questions(fitted.messages) == ["q2", "q3"]
    assert outputs(fitted.messages) == [8_000, 20_000]
    assert fitted.messages[0] == SYSTEM
    assert fitted.dropped == 1


def test_last_the_outputs_of_the_current_turn_are_cut():
    messages = [SYSTEM, *turn(1, 20_000), *turn(2, 20_000)]
    fitted = fit(messages, 2_200)
    assert questions(fitted.messages) == ["q2"]
    assert outputs(fitted.messages) == [8_000]


def test_the_system_prompt_and_the_current_question_stay_however_little_fits():
    messages = [SYSTEM, *turn(1), *turn(2)]
    assert fit(messages, 0).messages == [SYSTEM, *turn(2)]
    assert fit(messages, -10_000).messages == [SYSTEM, *turn(2)]


def test_short_outputs_are_not_counted_as_cut():
    messages = [SYSTEM, *turn(1, 100), *turn(2)]
    fitted = fit(messages, tokens(messages) - 1)
    assert (fitted.cut, fitted.dropped) == (0, 1)


def test_images_of_an_old_turn_are_left_out_before_the_turn_is():
    seen = ModelMessage("tool", (TextContent("a chart"), ImageContent(b"png", "image/png")), tool_call_id="c1")
    asked = ModelMessage("assistant", (), tool_calls=[ToolRequest("c1", "draw", "{}")])
    messages = [text_message("user", "q1"), asked, seen, text_message("assistant", "nice"), *turn(2)]
    fitted = fit(messages, tokens(messages) - 900)
    assert fitted.dropped == 0
    assert not any(isinstance(part, ImageContent) for message in fitted.messages for part in message.content)


def test_an_output_that_is_cut_says_how_long_it_was():
    text = shortened("x" * 50_000)
    assert len(text) == 8_000
    assert "50000 characters" in text
    assert shortened("short") == "short"


def test_nothing_is_nothing():
    assert fit([], 10).messages == []


sizes = st.lists(st.tuples(st.integers(0, 30_000), st.integers(1, 2_000)), min_size=1, max_size=8)


@given(sizes, st.integers(0, 60_000))
def test_whatever_is_left_out_the_rest_is_valid_and_keeps_the_newest(shape, budget):
    messages = [SYSTEM]
    for number, (output, answer) in enumerate(shape):
        messages += turn(number, output, "a" * answer)
    before = list(messages)
    fitted = fit(messages, budget)
    assert messages == before
    assert not faults(fitted.messages)
    assert fitted.messages[0] == SYSTEM
    assert fitted.messages[1].role == "user"
    kept = questions(fitted.messages)
    assert kept == [f"q{number}" for number in range(len(shape))][-len(kept) :]
    assert fitted.dropped == len(shape) - len(kept)
    assert tokens(fitted.messages) <= budget or fitted.dropped == len(shape) - 1
