"""Stored messages as a model is sent them: regrouped, valid whatever was stored, within the context."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.events import (
    CallAsked,
    CallFinished,
    CallStarted,
    LoopEnded,
    Noticed,
    ReasoningDelta,
    RoundCompleted,
    TextDelta,
)
from agents.loop import run_loop
from agents.parts import (
    Decision,
    Finish,
    ImageContent,
    ModelMessage,
    ReasoningChunk,
    TextContent,
    ToolRequest,
    ToolResult,
    ToolStatus,
    text_message,
)
from agents.providers.chat_model import Capabilities
from conversations.drafts import Draft
from conversations.history import GO_ON, AttachedFile, model_messages
from conversations.models import Attachment, Message, Question, ToolCall
from tests.fakes.models import ScriptedModel, ScriptedToolbox, call, faults

User, Assistant = Message.Role.USER, Message.Role.ASSISTANT
Status, CallStatus = Message.Status, ToolCall.Status
ENDS = [status for status in Status if status not in (Status.RUNNING, Status.WAITING)]


class Path:
    """A path of rows that are in no database."""

    def __init__(self):
        self.messages: list[Message] = []
        self.calls: dict = {}

    def user(self, *parts):
        parts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
        self.messages.append(Message(id=uuid4(), role=User, parts=parts))
        return self

    def assistant(self, *parts, status=Status.COMPLETED):
        """Parts as they are stored; a `ToolCall` stands for its part."""
        message = Message(id=uuid4(), role=Assistant, status=status, parts=[])
        rows = [part for part in parts if isinstance(part, ToolCall)]
        for part in parts:
            if isinstance(part, ToolCall):
                message.parts.append({"type": "call", "id": str(part.pk), "round": part.round})
            else:
                message.parts.append(
                    {"round": 1, **({"type": "text", "text": part} if isinstance(part, str) else part)}
                )
        self.messages.append(message)
        self.calls[message.pk] = rows
        return self

    def told(self, **options):
        options.setdefault("capabilities", Capabilities())
        return model_messages(self.messages, self.calls, **options)


def row(name="t", status=CallStatus.OK, *, round=1, position=0, id="c1", text="{}", result="r", **fields):
    questions, artifacts = fields.pop("questions", []), fields.pop("artifacts", [])
    found = ToolCall(
        id=uuid4(),
        round=round,
        position=position,
        provider_id=id,
        name=name,
        arguments_text=text,
        arguments=fields.pop("arguments", {}),
        status=status,
        result_text=result,
        **fields,
    )
    found._prefetched_objects_cache = {"questions": questions, "artifacts": artifacts}
    return found


def question(state, answer=None, minutes=0):
    return Question(
        state=state, answer=answer, created_at=datetime(2025, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
    )


def text(value, round=1, kind=None):
    return {"type": "text", "text": value, "round": round, **({"kind": kind} if kind else {})}


def shape(messages):
    return [
        (message.role, message.text, [request.id for request in message.tool_calls] or message.tool_call_id)
        for message in messages
    ]


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


# --- A turn that is resumed ---------------------------------------------------------------------------------------


def resumed(*parts, status=Status.RUNNING, **options):
    return Path().user("q").assistant(*parts, status=status).told(**options)


@pytest.mark.parametrize(
    ("call_status", "questions", "state"),
    [
        (CallStatus.PENDING, [], "pending"),
        (CallStatus.WAITING, [], "waiting"),
        (CallStatus.WAITING, [question("open")], "waiting"),
        (CallStatus.PENDING, [question("answered", {"decision": "allow_once"})], "allowed"),
        (CallStatus.PENDING, [question("answered", {"decision": "allow_always"})], "allowed"),
        (CallStatus.WAITING, [question("answered", {"decision": "deny"})], "denied"),
        (CallStatus.WAITING, [question("expired")], "expired"),
        (CallStatus.WAITING, [question("void")], "expired"),
        (CallStatus.PENDING, [question("answered", {"decision": "deny"}, 2), question("open", None, 1)], "denied"),
        (CallStatus.PENDING, [question("answered", None)], "denied"),
        (CallStatus.RUNNING, [question("answered", {"decision": "allow_once"})], "running"),
        (CallStatus.OK, [], "finished"),
        (CallStatus.EXPIRED, [question("expired")], "finished"),
        (CallStatus.DENIED, [], "finished"),
    ],
)
@pytest.mark.parametrize("status", [Status.RUNNING, Status.WAITING])
def test_the_last_round_is_open_and_each_call_stands_where_its_row_and_question_do(
    call_status, questions, state, status
):
    history = resumed("I will.", row(status=call_status, questions=questions), status=status)
    assert history.open_round is not None
    (open_call,) = history.open_round.calls
    assert open_call.state == state
    assert [message.text for message in history.messages] == ["q"]


def test_the_open_round_has_all_of_its_text_and_calls():
    history = resumed(
        text("a"), row(), text("b", 2), row("send", CallStatus.PENDING, round=2, id="x"), text("c", 2, "trailing")
    )
    assert history.open_round is not None
    assert (history.open_round.text, history.open_round.trailing_text, history.open_round.number) == ("b", "c", 2)
    assert [open_call.request.name for open_call in history.open_round.calls] == ["send"]
    assert shape(history.messages[1:]) == [("assistant", "a", ["c1"]), ("tool", "r", "c1")]


def test_the_answer_of_a_person_comes_with_its_note_and_edited_arguments():
    given_answer = {"decision": "allow_once", "note": "go", "arguments": {"to": "bob"}}
    history = resumed(row(status=CallStatus.PENDING, questions=[question("answered", given_answer)]))
    assert history.open_round is not None
    assert history.open_round.calls[0].note == "go"
    assert history.open_round.calls[0].arguments == {"to": "bob"}


def test_a_finished_call_of_the_open_round_has_its_stored_result():
    history = resumed(row(status=CallStatus.ERROR, result="locked"), row(status=CallStatus.PENDING, position=1, id="b"))
    assert history.open_round is not None
    assert history.open_round.calls[0].result == ToolResult(ToolStatus.ERROR, "locked")


def test_failures_of_the_rounds_before_count():
    history = resumed(
        row(status=CallStatus.ERROR, arguments={"a": 1}),
        row(status=CallStatus.ERROR, arguments={"a": 1}, round=2),
        row(status=CallStatus.PENDING, round=3),
    )
    assert history.open_round is not None
    assert history.open_round.failures == {("t", '{"a": 1}'): 2}


def test_a_fresh_turn_has_no_open_round():
    assert resumed().open_round is None
    assert [message.text for message in resumed().messages] == ["q"]


def test_a_resumed_turn_repeats_no_notice():
    path = (
        Path().user("x" * 40_000).assistant("a").user("q").assistant(row(status=CallStatus.PENDING), status="running")
    )
    assert list(path.told(capabilities=Capabilities(context=2_000)).notices) == []


# --- A turn that goes on from an answer ---------------------------------------------------------------------------


def continued(*before, since=(), **options):
    return resumed(*before, *since, continuing=True, first_part=len(before), **options)


def test_the_stored_answer_is_followed_by_one_line_that_asks_to_go_on():
    assert shape(continued("It was a dark").messages) == [
        ("user", "q", ""),
        ("assistant", "It was a dark", ""),
        ("user", GO_ON, ""),
    ]


def test_a_model_that_takes_a_prefill_goes_on_from_the_answer_itself():
    history = continued("It was a dark", capabilities=Capabilities(prefill=True))
    assert shape(history.messages) == [("user", "q", ""), ("assistant", "It was a dark", "")]


@pytest.mark.parametrize("before", [[], [{"type": "reasoning", "text": "hm"}], [" "]])
def test_where_nothing_was_written_the_question_is_asked_again(before):
    assert shape(continued(*before).messages) == [("user", "q", "")]


def test_calls_that_were_interrupted_are_told_and_need_no_line():
    history = continued("Let me look.", row(status=CallStatus.INTERRUPTED, result="interrupted: it may have"))
    assert shape(history.messages)[1:] == [
        ("assistant", "Let me look.", ["c1"]),
        ("tool", "interrupted: it may have", "c1"),
    ]
    assert history.open_round is None


def test_a_continued_turn_that_was_parked_has_the_line_before_its_own_rounds():
    history = continued("It was", since=[text("a dark", 2), row(status=CallStatus.PENDING, round=2)])
    assert shape(history.messages)[1:] == [("assistant", "It was", ""), ("user", GO_ON, "")]
    assert history.open_round is not None
    assert history.open_round.text == "a dark"


def test_a_continued_answer_is_one_answer_in_later_turns():
    path = Path().user("q").assistant("It was", text(" a dark", 2), row(round=2), text("night", 3)).user("n")
    assert shape(path.told().messages)[1:] == [
        ("assistant", "It was a dark", ["c1"]),
        ("tool", "r", "c1"),
        ("assistant", "night", ""),
        ("user", "n", ""),
    ]


# --- The database tells a model what memory told it ---------------------------------------------------------------


class Stored:
    """One answer as a consumer of the loop stores it, in rows that are in no database."""

    def __init__(self):
        self.draft, self.number, self.rows = Draft(), 1, {}

    def take(self, event):
        match event:
            case TextDelta(text):
                self.draft.add_text(text, self.number)
            case ReasoningDelta(text):
                self.draft.add_reasoning(text, self.number)
            case RoundCompleted(number, calls):
                for position, (id, prepared) in enumerate(calls):
                    self.rows[str(id)] = row(
                        prepared.request.name,
                        CallStatus.PENDING,
                        round=number,
                        position=position,
                        id=prepared.request.id,
                        text=prepared.request.arguments,
                        arguments=prepared.arguments,
                        extra=prepared.request.extra,
                    )
                    self.rows[str(id)].pk = id
                    self.draft.add_call(id, number)
                if event.trailing_text:
                    self.draft.add_trailing(event.trailing_text, number)
                self.number = number + 1
            case CallStarted(id):
                self.rows[str(id)].status = CallStatus.RUNNING
            case CallAsked(id):
                self.rows[str(id)].status = CallStatus.WAITING
            case CallFinished(id, result):
                self.rows[str(id)].status, self.rows[str(id)].result_text = CallStatus(result.status.value), result.text
            case Noticed(code, message, detail):
                self.draft.add_notice(code, message, detail)

    def path(self, status):
        message = Message(id=uuid4(), role=Assistant, status=status, parts=self.draft.parts())
        path = Path().user("hi")
        path.messages.append(message)
        path.calls[message.pk] = list(self.rows.values())
        return path

    def answer(self):
        for found in self.rows.values():
            if found.status == CallStatus.WAITING:
                found.status = CallStatus.PENDING
                found._prefetched_objects_cache["questions"] = [question("answered", {"decision": "allow_once"})]


steps = st.one_of(
    st.sampled_from(["Let me look. ", " ", "北京"]),
    st.just(ReasoningChunk("hm")),
    st.just(Finish.LENGTH),
    st.builds(
        lambda name, n: call(name, n=n), st.sampled_from(["good", "failed", "ask", "unknown"]), st.integers(0, 3)
    ),
    st.just(ToolRequest("odd", "good", "", {"extra_content": {"x": 1}})),
)


async def play(script):
    model = ScriptedModel(*script, ["The end."])
    toolbox = ScriptedToolbox({"good": "fine", "failed": ToolResult(ToolStatus.ERROR, "no"), "ask": "asked"})
    toolbox.decisions["ask"] = Decision.ASK
    stored, messages, open_round, ended = Stored(), [text_message("user", "hi")], None, None
    while ended is None or ended.outcome == "parked":
        loop = run_loop(model, toolbox, messages, open_round=open_round, decisions=asyncio.Queue())
        async with aclosing(loop):
            async for event in loop:
                stored.take(event)
                ended = event if isinstance(event, LoopEnded) else ended
        if ended.outcome == "parked":
            stored.answer()
            history = stored.path(Status.RUNNING).told()
            messages, open_round = history.messages, history.open_round
            assert open_round is not None
    return stored, model


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(steps, max_size=5), max_size=4))
def test_from_the_rows_a_model_is_told_what_it_was_told_in_memory(script):
    stored, model = asyncio.run(play(script))
    told = stored.path(Status.COMPLETED).told().messages
    asked = model.requests[-1].messages
    assert [plain(message) for message in told][: len(asked)] == [plain(message) for message in asked]
    assert not model.faults


def plain(message: ModelMessage):
    calls = [(request.id, request.name, request.arguments, request.extra) for request in message.tool_calls]
    text = message.text.split("\n\n[The ")[0]  # without what only the closing call is told
    return message.role, text, calls, message.tool_call_id, message.reasoning
