"""Reasoning, in fields or between tags, is told apart from the answer: each case over real HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from agents.parts import Finish, TextChunk
from agents.providers.assembler import Assembler
from tests.agents.providers.conftest import CALLS, OSLO, STOP, Reply, call, called
from tests.fakes.endpoint import delta


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
