"""Two versions of a tool are compared as a person reads them: words of texts, lines of schemas, nothing invisible."""

from __future__ import annotations

import json
import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mcpservers.pin_diff import CONTEXT, LONGEST_TEXT, MOST_LINES, FieldDiff, differences
from tests.mcpservers.pinning import tool


def told(field: FieldDiff) -> list[tuple[str, str]]:
    return [(piece.op, piece.text) for piece in field.pieces]


def test_of_a_text_the_changed_words_are_told() -> None:
    (field,) = differences(tool(description="Send a mail to Bob."), tool(description="Send a mail to everybody."))
    assert (field.field, field.lines, field.changed) == ("description", False, True)
    assert told(field) == [("same", "Send a mail to "), ("removed", "Bob"), ("added", "everybody"), ("same", ".")]


def test_what_nobody_sees_is_written_out() -> None:
    (field,) = differences(tool(description="Send it."), tool(description="Send\u200b it\u202e."))
    assert "".join(text for op, text in told(field) if op != "removed") == "Send⟨U+200B⟩ it⟨U+202E⟩."
    assert "".join(text for op, text in told(field) if op != "added") == "Send it."
    (field,) = differences(tool(annotations={"title": "a\u200b"}), tool(annotations={"title": "a"}))
    assert [text.strip() for op, text in told(field) if op == "removed"] == ['"title": "a⟨U+200B⟩"']
    assert [text.strip() for op, text in told(field) if op == "added"] == ['"title": "a"']


def test_of_a_schema_the_changed_lines_with_their_surroundings() -> None:
    before = {"type": "object", "properties": {f"p{n:02}": {"type": "string"} for n in range(30)}}
    after = json.loads(json.dumps(before))
    after["properties"]["p15"]["type"] = "integer"
    (field,) = differences(tool(inputSchema=before), tool(inputSchema=after))
    assert (field.field, field.lines) == ("inputSchema", True)
    changed = [(op, text.strip()) for op, text in told(field) if op in ("added", "removed")]
    assert changed == [("removed", '"type": "string"'), ("added", '"type": "integer"')]
    assert sum(op == "same" for op, _ in told(field)) == 2 * CONTEXT
    assert [op for op, _ in (told(field)[0], told(field)[-1])] == ["gap", "gap"]


def test_the_order_of_keys_is_no_change() -> None:
    before, after = {"type": "object", "title": "A"}, {"title": "A", "type": "object"}
    assert differences(tool(inputSchema=before), tool(inputSchema=after)) == []


def test_what_comes_or_goes_is_a_change_also_if_it_is_empty() -> None:
    without = {"name": "look", "inputSchema": {}}
    for value in ({}, None, {"type": "object"}):
        (field,) = differences(without, without | {"outputSchema": value})
        assert {op for op, _ in told(field)} == {"added"}
    (field,) = differences(without | {"description": ""}, without)
    assert (field.field, field.changed) == ("description", True)


def test_a_text_that_became_something_else_is_shown_as_json() -> None:
    (field,) = differences(tool(description="A"), tool(description=["A"]))
    assert field.lines


def test_a_new_tool_shows_all_of_it_as_it_is() -> None:
    fields = differences(None, tool(annotations={"readOnlyHint": True}))
    assert [field.field for field in fields] == ["name", "description", "inputSchema", "annotations"]
    assert not any(field.changed for field in fields)


def test_what_is_long_is_cut_and_says_so_in_time() -> None:
    began = time.thread_time()
    (text,) = differences(tool(description="a " * 200_000), tool(description="b " * 200_000))
    many: dict[str, Any] = {"enum": list(range(20_000))}
    (lines,) = differences(tool(inputSchema=many), tool(inputSchema={"enum": list(range(1, 20_001))}))
    assert text.cut
    assert lines.cut
    assert sum(len(piece.text) for piece in text.pieces) <= 2 * LONGEST_TEXT
    assert len(lines.pieces) <= 2 * MOST_LINES
    assert time.thread_time() - began < 5


@given(st.text(max_size=80), st.text(max_size=80))
def test_the_pieces_of_a_text_make_up_both_versions(old: str, new: str) -> None:
    from mcpservers.visible import revealed

    for field in differences({"description": old}, {"description": new}):
        assert "".join(piece.text for piece in field.pieces if piece.op != "added") == revealed(old)
        assert "".join(piece.text for piece in field.pieces if piece.op != "removed") == revealed(new)
