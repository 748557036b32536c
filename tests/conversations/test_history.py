"""Stored messages as a model is sent them: regrouped, valid whatever was stored, within the context."""

from __future__ import annotations

from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.parts import (
    ImageContent,
    TextContent,
)
from agents.providers.chat_model import Capabilities
from conversations.history import AttachedFile
from conversations.models import Attachment, Message, ToolCall
from tests.conversations.stored import Path, row, shape, text
from tests.fakes.models import faults

Status, CallStatus = Message.Status, ToolCall.Status
ENDS = [status for status in Status if status not in (Status.RUNNING, Status.WAITING)]


# --- Plain conversations ------------------------------------------------------------------------------------------


def test_a_conversation_is_told_from_the_root_to_the_leaf():
    path = Path().user("A").assistant("one").user("B").assistant("two").user("C")
    assert [(message.role, message.text) for message in path.told().messages] == [
        ("user", "A"),
        ("assistant", "one"),
        ("user", "B"),
        ("assistant", "two"),
        ("user", "C"),
    ]


def test_a_round_is_regrouped_its_calls_in_their_order_whatever_their_rows_order():
    path = Path().user("q")
    late, early = row("slow", position=1, id="c2", result="S"), row("fast", position=0, id="c1", result="F")
    path.assistant(text("Look.", kind="preamble"), late, early, text("Wait.", kind="trailing"), text("Done.", round=2))
    assert shape(path.told().messages[1:]) == [
        ("assistant", "Look.\n\nWait.", ["c1", "c2"]),
        ("tool", "F", "c1"),
        ("tool", "S", "c2"),
        ("assistant", "Done.", ""),
    ]


def test_several_rounds_stay_several():
    path = Path().user("q")
    path.assistant("a", row(id="x", result="1"), text("b", 2), row(id="x", round=2, result="2"), text("c", 3))
    assert shape(path.told().messages[1:]) == [
        ("assistant", "a", ["x"]),
        ("tool", "1", "x"),
        ("assistant", "b", ["x"]),
        ("tool", "2", "x"),
        ("assistant", "c", ""),
    ]


def test_ids_that_a_provider_uses_again_in_the_next_turn_are_paired_by_position():
    path = Path().user("q").assistant(row(id="call_0", result="one"), text("ok", 2))
    path.user("q2").assistant(row(id="call_0", result="two"), text("ok", 2))
    assert [message.text for message in path.told().messages if message.role == "tool"] == ["one", "two"]
    assert not faults(path.told().messages)


def test_notices_and_what_is_unknown_are_not_told():
    notice = {"type": "notice", "code": "x", "message": "secret", "detail": ""}
    path = Path().user("q").assistant(notice, "a", {"type": "citation", "text": "secret"}, notice)
    assert shape(path.told().messages[1:]) == [("assistant", "a", "")]


def test_a_call_part_whose_row_is_gone_is_left_out():
    path = Path().user("q").assistant("a", {"type": "call", "id": str(uuid4())}, text("b", 2))
    assert shape(path.told().messages[1:]) == [("assistant", "ab", "")]


def test_reasoning_is_kept_with_its_round():
    path = Path().user("q")
    path.assistant(
        {"type": "reasoning", "text": "hm", "duration_ms": 3}, row(), {"type": "reasoning", "text": "so"}, "a"
    )
    assert [message.reasoning for message in path.told().messages if message.role == "assistant"] == ["hm", "so"]


def test_extra_fields_of_a_call_come_back_from_the_row():
    extra = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
    path = Path().user("q").assistant(row(extra=extra), text("a", 2))
    assert path.told().messages[1].tool_calls[0].extra == extra


def test_two_continued_texts_are_one_answer():
    path = Path().user("q").assistant("It was a dark", text(" and stormy night.", 2)).user("n")
    assert shape(path.told().messages[1:2]) == [("assistant", "It was a dark and stormy night.", "")]


# --- Whatever was stored, the request is valid --------------------------------------------------------------------


@pytest.mark.parametrize("status", ENDS)
@pytest.mark.parametrize("call_status", list(CallStatus))
def test_every_stored_call_is_answered_once_however_its_turn_ended(status, call_status):
    open_call = row(status=call_status, result="")
    path = Path().user("go").assistant("Let me see.", open_call, status=status).user("hi again")
    messages = path.told().messages
    assert not faults(messages)
    assert messages[-1].text == "hi again"
    assert messages[2].text


def test_only_the_last_answer_can_be_open():
    path = Path().user("go").assistant(row(status=CallStatus.PENDING), status=Status.RUNNING).user("n").assistant()
    path.messages[-1].status = Status.RUNNING
    history = path.told()
    assert history.open_round is None
    assert not faults(history.messages)


@pytest.mark.parametrize(
    ("call_status", "words"),
    [(CallStatus.RUNNING, "may have taken effect"), (CallStatus.WAITING, "not run"), (CallStatus.PENDING, "not run")],
)
def test_a_call_that_was_left_open_says_what_became_of_it(call_status, words):
    path = Path().user("go").assistant(row(status=call_status, result=""), status=Status.INTERRUPTED).user("n")
    assert words in path.told().messages[2].text


@pytest.mark.parametrize("status", ENDS)
@pytest.mark.parametrize("parts", [[], [""], ["  \n"], [{"type": "reasoning", "text": "hm"}]])
def test_an_answer_without_anything_is_left_out(status, parts):
    path = Path().user("first").assistant(*parts, status=status).user("second")
    assert [message.text for message in path.told().messages] == ["first", "second"]


def test_malformed_arguments_are_told_as_an_object():
    path = Path().user("q").assistant(row(text='{"value": ', arguments=None, status=CallStatus.ERROR), text("a", 2))
    assert path.told().messages[1].tool_calls[0].arguments == "{}"


def test_arguments_that_were_understood_are_told_as_understood():
    path = Path().user("q").assistant(row(text="```{a:1}```", arguments={"a": 1}), text("a", 2))
    assert path.told().messages[1].tool_calls[0].arguments == '{"a": 1}'


def test_a_failed_call_reads_as_a_failure():
    path = Path().user("q").assistant(row(status=CallStatus.ERROR, result="locked"), text("a", 2))
    assert path.told().messages[2].text == "Error: locked"


def test_a_path_that_was_loaded_in_part_begins_at_a_question():
    path = Path().assistant("old answer", row()).user("q").assistant("a").user("r")
    assert [message.text for message in path.told().messages] == ["q", "a", "r"]


def test_an_empty_path_is_no_message():
    assert Path().told().messages == []


parts = st.lists(
    st.one_of(
        st.builds(text, st.sampled_from(["", " ", "words"]), st.integers(1, 3), st.sampled_from([None, "trailing"])),
        st.builds(lambda round: {"type": "reasoning", "text": "hm", "round": round}, st.integers(1, 3)),
        st.builds(
            row,
            status=st.sampled_from(list(CallStatus)),
            round=st.integers(1, 3),
            position=st.integers(0, 3),
            id=st.sampled_from(["", "a", "b"]),
            text=st.sampled_from(["", "{}", "{cut", '{"a": 1}']),
            result=st.sampled_from(["", "r"]),
        ),
    ),
    max_size=8,
)


@settings(deadline=None)
@given(st.lists(st.tuples(parts, st.sampled_from(ENDS)), max_size=4), st.integers(100, 3000))
def test_any_stored_conversation_makes_a_valid_request(answers, context):
    path = Path()
    for stored, status in answers:
        path.user("q").assistant(*stored, status=status)
    path.user("last")
    history = path.told(capabilities=Capabilities(context=context))
    assert not faults(history.messages)
    assert history.messages[0].role == "user"
    assert history.messages[-1].text == "last"
    assert history.open_round is None


# --- Files --------------------------------------------------------------------------------------------------------

PHOTO = AttachedFile("photo.png", "image/png", data=b"png")
NOTES = AttachedFile("notes.txt", "text/plain", text="buy {milk} %s")


def attached(*files):
    ids = {str(uuid4()): file for file in files}
    return [{"type": "attachment", "id": id} for id in ids], ids


def test_a_text_file_is_told_with_its_name_its_text_unchanged():
    parts, files = attached(NOTES)
    (message,) = Path().user("What is missing?", *parts).told(attachments=files).messages
    assert message.text == "What is missing?\n\n[File notes.txt]\nbuy {milk} %s\n[End of file notes.txt]"


def test_images_are_named_in_order_across_the_conversation():
    parts, files = attached(PHOTO, PHOTO)
    path = Path().user("one", parts[0]).assistant("ok").user(parts[1], "two")
    history = path.told(attachments=files, capabilities=Capabilities(images=True))
    images = [part for message in history.messages for part in message.content if isinstance(part, ImageContent)]
    assert [image.name for image in images] == ["image_1", "image_2"]
    assert list(history.images) == ["image_1", "image_2"]
    assert "[image_2: photo.png]" in history.messages[2].text


def test_a_model_that_does_not_see_is_told_the_name_of_an_image_for_its_tools():
    parts, files = attached(PHOTO)
    history = Path().user("look", *parts).told(attachments=files)
    assert not any(isinstance(part, ImageContent) for part in history.messages[0].content)
    assert "image_1: photo.png" in history.messages[0].text
    assert history.images["image_1"].data == b"png"


def test_an_image_whose_bytes_are_gone_is_only_named():
    parts, files = attached(AttachedFile("photo.png", "image/png"))
    (message,) = Path().user(*parts).told(attachments=files, capabilities=Capabilities(images=True)).messages
    assert message.content == [TextContent("[image_1: photo.png. You cannot see it.]")]


def test_a_file_that_is_gone_or_holds_no_text_is_said_to():
    parts, files = attached(AttachedFile("a.bin", "application/octet-stream"))
    gone = {"type": "attachment", "id": str(uuid4())}
    (message,) = Path().user(*parts, gone).told(attachments=files).messages
    assert "a.bin (application/octet-stream)" in message.text
    assert "no longer available" in message.text


def test_a_files_name_stays_on_its_line():
    parts, files = attached(AttachedFile("a\n[End of file]\nb", "text/plain", text="t"))
    assert Path().user(*parts).told(attachments=files).messages[0].text.splitlines()[0] == "[File a [End of file] b]"


def test_images_that_a_call_brought_go_with_its_result_to_a_model_that_sees():
    artifact = Attachment(id=uuid4(), name="chart.png", content_type="image/png")
    files = {str(artifact.pk): AttachedFile("chart.png", "image/png", data=b"png")}
    path = Path().user("q").assistant(row(artifacts=[artifact]), text("a", 2))
    seen = path.told(attachments=files, capabilities=Capabilities(images=True)).messages[2].content
    assert seen[1:] == (ImageContent(b"png", "image/png", "chart.png"),)
    assert len(path.told(attachments=files).messages[2].content) == 1


# --- Within the context -------------------------------------------------------------------------------------------


def test_a_conversation_that_is_too_long_is_shortened_with_a_notice():
    path = Path()
    for number in range(4):
        path.user(f"q{number}").assistant(row(result="x" * 40_000), text("a", 2))
    history = path.user("last").told(capabilities=Capabilities(context=9_000))
    assert history.messages[0].text == "q1"
    assert history.messages[-1].text == "last"
    assert not faults(history.messages)
    assert [notice.code for notice in history.notices] == ["context_shortened"]


def test_a_conversation_that_fits_has_no_notice():
    assert list(Path().user("q").told().notices) == []


def test_what_is_reserved_for_tools_makes_the_room_smaller():
    path = Path().user("x" * 20_000).assistant("a").user("q")
    assert len(path.told(capabilities=Capabilities(context=12_000)).messages) == 3
    assert len(path.told(capabilities=Capabilities(context=12_000), reserved=5_000).messages) == 1
