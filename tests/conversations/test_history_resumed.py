"""Stored messages of a turn that goes on: what stands of it, and that a model is told what memory told it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
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
    ModelMessage,
    ReasoningChunk,
    ToolRequest,
    ToolResult,
    ToolStatus,
    text_message,
)
from agents.providers.chat_model import Capabilities
from conversations.drafts import Draft
from conversations.history import GO_ON
from conversations.models import Message, ToolCall
from tests.conversations.stored import Path, question, row, shape, text
from tests.fakes.models import ScriptedModel, ScriptedToolbox, call

Assistant, Status, CallStatus = Message.Role.ASSISTANT, Message.Status, ToolCall.Status


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
