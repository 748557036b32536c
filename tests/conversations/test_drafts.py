from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from conversations.drafts import Draft


@given(st.lists(st.text(max_size=20)))
def test_stored_text_is_the_concatenation_of_the_deltas(deltas: list[str]) -> None:
    draft = Draft()
    for delta in deltas:
        draft.add_text(delta, 1)
    assert "".join(part["text"] for part in draft.parts()) == "".join(deltas)


def test_text_after_reasoning_and_text_after_a_call_are_parts_of_their_own() -> None:
    draft, call = Draft(), uuid4()
    draft.add_reasoning("hm", 1)
    draft.add_text("Let me ", 1)
    draft.add_text("look.", 1)
    draft.add_call(call, 1)
    draft.add_trailing("(aside)", 1)
    draft.add_text("Done.", 2)
    parts = draft.parts()
    assert [part["type"] for part in parts] == ["reasoning", "text", "call", "text", "text"]
    assert parts[1] == {"type": "text", "text": "Let me look.", "round": 1, "kind": "preamble"}
    assert parts[2]["id"] == str(call)
    assert parts[3]["kind"] == "trailing"
    assert draft.text() == "Let me look.\n\nDone."


def test_parts_that_were_taken_do_not_change_when_the_draft_grows() -> None:
    draft = Draft()
    draft.add_text("a", 1)
    taken = draft.parts()
    draft.add_text("b", 1)
    assert taken[0]["text"] == "a"
    assert draft.parts()[0]["text"] == "ab"


def test_a_continued_draft_keeps_what_was_there() -> None:
    draft = Draft([{"type": "text", "text": "The answer", "round": 1}])
    draft.add_text(" is 42.", 2)
    assert [part["text"] for part in draft.parts()] == ["The answer", " is 42."]


def test_a_settled_reasoning_part_says_how_long_it_took() -> None:
    draft = Draft()
    draft.add_reasoning("hm", 1)
    draft.add_text("x", 1)
    assert draft.parts()[0]["duration_ms"] >= 0
