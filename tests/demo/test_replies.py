"""The scripted model's script: which tools for which question, and answers from what they brought."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conversations.configuration.reading import read_document
from demo.endpoint import Choice
from demo.replies import STARTERS, Call, reply
from demo.running import HERE

TOOLS = [
    f"cafe__{name}" for name in ("current_time", "calculate", "search_notes", "add_note", "brew_coffee", "draw_chart")
] + ["notes__list_my_notes", "notes__add_my_note"]


def asked(text: str, *more: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "system", "content": "You help."}, {"role": "user", "content": text}, *more]


def called(*calls: tuple[str, str]) -> list[dict[str, Any]]:
    """The assistant's calls by (tool, result) and the results."""
    made = [
        {"id": f"c{index}", "type": "function", "function": {"name": f"cafe__{name}", "arguments": "{}"}}
        for index, (name, _) in enumerate(calls)
    ]
    results = [{"role": "tool", "tool_call_id": f"c{i}", "content": text} for i, (_, text) in enumerate(calls)]
    return [{"role": "assistant", "content": "", "tool_calls": made}, *results]


@pytest.mark.parametrize(
    ("question", "calls"),
    [
        (
            STARTERS[0],
            [
                Call("cafe__current_time", {"timezone": "Asia/Shanghai"}),
                Call("cafe__current_time", {"timezone": "America/New_York"}),
            ],
        ),
        (STARTERS[6], [Call("cafe__calculate", {"expression": "(17 * 23 + 2^10) / 3"})]),
        (STARTERS[4], [Call("cafe__search_notes", {"query": "espresso machine"})]),
        (STARTERS[3], [Call("cafe__brew_coffee", {"cups": 5, "seconds_per_cup": 1})]),
        (STARTERS[1], [Call("cafe__add_note", {"title": "buy oat milk on Friday", "text": "buy oat milk on Friday"})]),
        (STARTERS[2], [Call("notes__list_my_notes", {})]),
        ("What is in my notes?", [Call("notes__list_my_notes", {})]),
        ("Write in my own notes: call the dentist", [Call("notes__add_my_note", {"text": "call the dentist"})]),
        ("上海现在几点？", [Call("cafe__current_time", {"timezone": "Asia/Shanghai"})]),
        ("12 × 4 ÷ 3", [Call("cafe__calculate", {"expression": "12 * 4 / 3"})]),
    ],
)
def test_a_question_is_answered_with_the_tools_that_fit_it(question: str, calls: list[Call]) -> None:
    assert list(reply(asked(question), TOOLS).calls) == calls


def test_the_starters_of_the_demo_s_agent_are_those_that_the_model_knows() -> None:
    environment = Choice("x", "x", "x").environment() | {"DEMO_NOTES_URL": "http://127.0.0.1:9/mcp"}
    value = read_document((HERE / "chatui.yaml").read_text(), environment).value
    assert tuple(value["organizations"]["demo"]["agents"]["assistant"]["starters"]) == STARTERS
    assert all(reply(asked(starter), TOOLS).calls for starter in STARTERS)


def test_a_tool_that_is_not_offered_is_not_called_but_named() -> None:
    answer = reply(asked(STARTERS[6]), [])
    assert not answer.calls
    assert "`calculate`" in answer.text


def test_two_clocks_become_one_table() -> None:
    times = [
        (
            "current_time",
            json.dumps({"iso": "2026-03-01T20:15:00+08:00", "timezone": "Asia/Shanghai", "weekday": "Sunday"}),
        ),
        (
            "current_time",
            json.dumps({"iso": "2026-03-01T07:15:00-05:00", "timezone": "America/New_York", "weekday": "Sunday"}),
        ),
    ]
    text = reply(asked(STARTERS[0], *called(*times)), TOOLS).text
    assert "| Shanghai | 20:15 | Sunday |" in text
    assert "| New York | 07:15 | Sunday |" in text


@pytest.mark.parametrize(
    ("tool", "result", "expected"),
    [
        ("calculate", '{"expression": "1+1", "result": 2}', "`1+1` = **2**"),
        ("search_notes", '{"notes": [{"title": "Rota", "text": "Mira opens."}]}', "> **Rota** – Mira opens."),
        ("search_notes", '{"notes": []}', "There is no note about that."),
        ("add_note", '{"id": 7, "title": "Milk"}', "Done: note 7, “Milk”."),
        ("list_my_notes", '{"owner": "Mira", "notes": ["Dentist", "Milk"]}', "**Mira**:\n\n- Dentist\n- Milk"),
        ("list_my_notes", "You have not signed in.", "The tool did not do it."),
        ("brew_coffee", "5 cups are ready after 5.0 seconds.", "☕ 5 cups are ready"),
        ("add_note", "The user denied this call: not today", "> The user denied this call: not today"),
        ("calculate", "Error: That divides by zero.", "The tool did not do it."),
        ("calculate", "[1, 2]", "The tool did not do it."),
    ],
)
def test_an_answer_is_made_of_what_the_tool_brought(tool: str, result: str, expected: str) -> None:
    answer = reply(asked("Go", *called((tool, result))), TOOLS)
    assert expected in answer.text
    assert not answer.calls


def test_only_the_newest_question_counts() -> None:
    earlier = [*called(("calculate", "{}")), {"role": "assistant", "content": "2"}, {"role": "user", "content": "fail"}]
    assert reply(asked("1+1", *earlier), TOOLS).fault == "fail"


@pytest.mark.parametrize("word", ["fail", "Stall!", "please cut"])
def test_it_breaks_on_request(word: str) -> None:
    assert reply(asked(word)).fault


def test_a_sentence_that_holds_such_a_word_is_no_request_to_break() -> None:
    assert not reply(asked("Why did my soufflé fail so badly yesterday?")).fault


def test_it_says_what_it_is_in_the_language_of_the_question() -> None:
    assert "no artificial intelligence" in reply(asked("Hello")).text
    assert "脚本演示模型" in reply(asked("你好")).text


@pytest.mark.parametrize("messages", [[], [{"role": "system", "content": "x"}], [{"role": "user", "content": None}]])
def test_odd_conversations_get_an_answer(messages: list[dict[str, Any]]) -> None:
    assert reply(messages, TOOLS).text


def test_content_in_parts_is_read() -> None:
    parts = [{"type": "text", "text": "2+3"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    assert reply([{"role": "user", "content": parts}], TOOLS).calls[0].arguments == {"expression": "2+3"}
