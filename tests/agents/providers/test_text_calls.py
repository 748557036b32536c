"""Calls that a model writes as text are calls where nothing else is meant: each case over real HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from agents.parts import Finish, TextChunk
from agents.providers.assembler import Assembler
from tests.agents.providers.conftest import STOP, Reply, ask, cost
from tests.fakes.endpoint import Endpoint, delta, text

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
        assert (await ask(model_of(), **options)).text == WRITTEN


def test_ordinary_text_is_never_held_back() -> None:
    assembler = Assembler(["get_weather"])
    for piece in ("The", " sky", " is", "\n", " blue <", "b> and"):
        assembler.feed(delta(piece))
        shown = "".join(event.text for event in assembler.drain() if isinstance(event, TextChunk))
        assert shown.lstrip("<") == piece.rstrip("<")


def test_a_written_call_that_comes_letter_by_letter_takes_time_in_proportion() -> None:
    def assemble(count: int) -> None:
        assembler = Assembler(["get_weather"])
        for piece in ["<tool_call>", *["a>" * 20] * count]:
            assembler.feed(delta(piece))

    assert cost(lambda: assemble(20_000)) < 8 * cost(lambda: assemble(5_000))
