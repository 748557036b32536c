from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.utils import timezone

from accounts.actors import Actor
from accounts.models import Membership, Role, User
from agents.answers import Decided
from agents.models import Agent, AgentGrant
from agents.parts import Artifact, ToolResult, ToolStatus
from chatui.errors import InvalidRequestError, NotFoundError, PermissionDeniedError, TooLargeError
from conversations import questions, rounds, transitions, turns
from conversations.decisions import Decision
from conversations.models import Conversation, Message, Question, ToolCall, Turn
from conversations.transitions import Progress
from conversations.turns import NewTurn, NotOfferedError

Status = Message.Status


def question(text: str = "hi", **fields: Any) -> NewTurn:
    fields.setdefault("request_id", uuid4())
    return NewTurn(content=[{"type": "text", "text": text}], **fields)


def progress(text: str = "par", seq: int = 3) -> Progress:
    return Progress([{"type": "text", "text": text, "round": 1}], seq, {"output_tokens": 1}, 1.5)


def finish(turn_id: UUID, status: Status = Status.COMPLETED) -> None:
    assert transitions.end(turn_id, status, progress("done", 4)) is not None


@pytest.fixture
def agent(organization: Any, make_agent: Callable[..., Agent]) -> Agent:
    return make_agent(organization)


@pytest.fixture
def owner(alice: User, agent: Agent, actor_of: Callable[[User], Actor]) -> Actor:
    return actor_of(alice)


def begin(actor: Actor, **fields: Any) -> turns.Begun:
    fields.setdefault("agent", None if fields.get("conversation_id") else "helper")
    return turns.begin_turn(actor, question(**fields))


def test_the_first_turn_makes_a_conversation_with_a_title_a_question_and_an_empty_answer(owner: Actor) -> None:
    begun = begin(owner, text="  What   is\nthe time?")
    turn = Turn.objects.get(pk=begun.turn_id)
    assert turn.status == Status.RUNNING
    assert turn.conversation.title == "What is the time?"
    assert turn.message.parent == turn.user_message
    assert turn.conversation.current_leaf == turn.message
    assert turn.message.parts == []


def test_a_long_question_is_cut_to_a_title_of_sixty_characters(owner: Actor) -> None:
    title = Turn.objects.get(pk=begin(owner, text="word " * 100).turn_id).conversation.title
    assert title.startswith("word word")
    assert title.endswith("…")
    assert 50 < len(title) <= 60


def test_the_same_request_begins_one_turn_however_often_it_is_sent(owner: Actor) -> None:
    request_id = uuid4()
    first = begin(owner, request_id=request_id)
    second = begin(owner, request_id=request_id)
    assert second.repeated
    assert second.turn_id == first.turn_id
    assert Message.objects.count() == 2


def test_a_second_turn_in_the_conversation_is_refused_while_the_first_is_open(owner: Actor) -> None:
    begun = begin(owner)
    for status in (Status.RUNNING, Status.WAITING):
        Turn.objects.filter(pk=begun.turn_id).update(status=status)
        with pytest.raises(turns.TurnRunningError):
            begin(owner, conversation_id=begun.conversation.pk)
    assert Message.objects.count() == 2


def test_the_database_itself_refuses_a_second_open_turn(owner: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = begin(owner)
    monkeypatch.setattr(Turn, "OPEN", ())  # as if both had looked before either wrote
    with pytest.raises(turns.TurnRunningError):
        begin(owner, conversation_id=begun.conversation.pk)
    assert Message.objects.count() == 2


def test_a_user_has_a_bounded_number_of_running_turns(owner: Actor, settings: Any) -> None:
    for _ in range(settings.TURN["PER_USER"]):
        begin(owner)
    with pytest.raises(turns.TooManyTurnsError):
        begin(owner)


def test_the_next_question_follows_the_current_answer_and_an_edit_makes_a_sibling(owner: Actor) -> None:
    first = begin(owner)
    finish(first.turn_id)
    second = begin(owner, conversation_id=first.conversation.pk, text="more")
    finish(second.turn_id)
    answer = Turn.objects.get(pk=first.turn_id).message
    assert Turn.objects.get(pk=second.turn_id).user_message.parent == answer
    edited = begin(owner, conversation_id=first.conversation.pk, parent_id=answer.pk, text="other")
    assert Turn.objects.get(pk=edited.turn_id).user_message.parent == answer
    finish(edited.turn_id)
    again = begin(owner, conversation_id=first.conversation.pk, parent_id="root", text="from the start")
    assert Turn.objects.get(pk=again.turn_id).user_message.parent is None


def test_a_question_follows_an_answer_never_a_question(owner: Actor) -> None:
    first = begin(owner)
    finish(first.turn_id)
    asked = Turn.objects.get(pk=first.turn_id).user_message_id
    with pytest.raises(InvalidRequestError):
        begin(owner, conversation_id=first.conversation.pk, parent_id=asked)


def test_a_parent_of_another_conversation_does_not_exist(owner: Actor) -> None:
    first, other = begin(owner), begin(owner)
    finish(first.turn_id)
    with pytest.raises(NotFoundError):
        begin(owner, conversation_id=first.conversation.pk, parent_id=Turn.objects.get(pk=other.turn_id).message_id)


def test_a_new_conversation_has_no_message_to_follow(owner: Actor) -> None:
    begun = begin(owner, text="one")
    finish(begun.turn_id)
    answer = Turn.objects.get(pk=begun.turn_id).message_id
    with pytest.raises(NotFoundError):
        begin(owner, text="two", parent_id=answer)
    begin(owner, text="three", parent_id="root")
    assert Conversation.objects.as_system().count() == 2


def test_a_conversation_keeps_its_agent_and_says_so(owner: Actor, organization: Any, make_agent: Any) -> None:
    make_agent(organization, slug="other")
    begun = begin(owner, text="one")
    finish(begun.turn_id)
    with pytest.raises(InvalidRequestError, match="another agent"):
        begin(owner, text="two", conversation_id=begun.conversation.pk, agent="other")
    begin(owner, text="two", conversation_id=begun.conversation.pk, agent="helper")


def test_an_account_that_cannot_be_chosen_is_refused_not_ignored(owner: Actor) -> None:
    with pytest.raises(NotOfferedError, match="account"):
        begin(owner, text="one", accounts={"tickets": "work"})
    assert not Conversation.objects.as_system().exists()


def test_a_title_that_a_person_gives_in_the_very_moment_of_a_question_stays(
    owner: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = begin(owner, text="one")
    finish(begun.turn_id)
    check = turns._check_selection

    def renamed_meanwhile(*args: Any) -> None:
        Conversation.objects.as_system().update(title="Mine", title_source=Conversation.TitleSource.PERSON)
        check(*args)

    monkeypatch.setattr(turns, "_check_selection", renamed_meanwhile)
    begin(owner, text="two", conversation_id=begun.conversation.pk)
    assert Conversation.objects.as_system().get().title == "Mine"


def test_another_persons_and_another_organizations_conversation_do_not_exist(
    owner: Actor, bob: User, charlie: User, actor_of: Callable[[User], Actor]
) -> None:
    begun = begin(owner)
    finish(begun.turn_id)
    for stranger in (actor_of(bob), actor_of(charlie)):
        for kind in (
            {"conversation_id": begun.conversation.pk},
            {"message_id": Turn.objects.get(pk=begun.turn_id).message_id},
        ):
            with pytest.raises(NotFoundError):
                begin(stranger, **kind)
        with pytest.raises(NotFoundError):
            turns.request_stop(stranger, begun.turn_id)


def test_an_agent_of_another_organization_or_without_a_grant_does_not_exist(
    owner: Actor, agent: Agent, charlie: User, actor_of: Callable[[User], Actor]
) -> None:
    with pytest.raises(NotFoundError):
        begin(actor_of(charlie))
    AgentGrant.objects.filter(agent=agent).update(deny=True)
    with pytest.raises(NotFoundError):
        begin(owner)


def test_an_auditor_does_not_chat(owner: Actor) -> None:
    Membership.objects.filter(user_id=owner.user_id).update(role=Role.AUDITOR)
    with pytest.raises(PermissionDeniedError):
        begin(replace(owner, role=Role.AUDITOR))


def test_an_empty_and_an_oversized_message_are_refused_and_leave_nothing(owner: Actor) -> None:
    with pytest.raises(InvalidRequestError):
        begin(owner, text=" \n ")
    with pytest.raises(TooLargeError):
        begin(owner, text="x" * (2**20 + 1))
    assert not Conversation.objects.as_system().exists()


def test_a_message_of_one_mebibyte_is_taken_whole(owner: Actor) -> None:
    begun = begin(owner, text="x" * 2**20)
    assert len(Turn.objects.get(pk=begun.turn_id).user_message.parts[0]["text"]) == 2**20


def test_a_server_or_a_model_that_the_agent_does_not_have_is_not_offered(owner: Actor) -> None:
    with pytest.raises(turns.NotOfferedError):
        begin(owner, servers=["tickets"])
    begun = begin(owner)
    finish(begun.turn_id)
    with pytest.raises(turns.NotOfferedError):
        turns.begin_turn(
            owner,
            NewTurn(
                request_id=uuid4(),
                kind=Turn.Kind.REGENERATE,
                message_id=Turn.objects.get(pk=begun.turn_id).message_id,
                model="other",
            ),
        )


def test_regenerating_makes_a_sibling_answer_and_keeps_the_old_one(owner: Actor) -> None:
    begun = begin(owner)
    finish(begun.turn_id)
    old = Turn.objects.get(pk=begun.turn_id).message
    again = turns.begin_turn(owner, NewTurn(request_id=uuid4(), kind=Turn.Kind.REGENERATE, message_id=old.pk))
    new = Turn.objects.get(pk=again.turn_id).message
    assert new.parent == old.parent
    assert new != old
    old.refresh_from_db()
    assert old.parts == progress("done").parts


@pytest.mark.parametrize("status", [Status.STOPPED, Status.TRUNCATED, Status.INTERRUPTED])
def test_a_cut_answer_is_continued_in_the_same_message(owner: Actor, status: Status) -> None:
    begun = begin(owner)
    finish(begun.turn_id, status)
    message = Turn.objects.get(pk=begun.turn_id).message
    on = turns.begin_turn(owner, NewTurn(request_id=uuid4(), kind=Turn.Kind.CONTINUE, message_id=message.pk))
    turn = Turn.objects.get(pk=on.turn_id)
    assert turn.message == message
    assert (turn.first_part, turn.rounds) == (1, 1)


def test_a_complete_answer_is_not_continued(owner: Actor) -> None:
    begun = begin(owner)
    finish(begun.turn_id)
    message_id = Turn.objects.get(pk=begun.turn_id).message_id
    with pytest.raises(turns.NotContinuableError):
        turns.begin_turn(owner, NewTurn(request_id=uuid4(), kind=Turn.Kind.CONTINUE, message_id=message_id))


def test_a_turn_ends_once_and_its_first_end_stays(owner: Actor) -> None:
    begun = begin(owner)
    assert transitions.end(begun.turn_id, Status.STOPPED, progress("kept")) is not None
    assert transitions.end(begun.turn_id, Status.COMPLETED, progress("lost")) is None
    message = Turn.objects.get(pk=begun.turn_id).message
    assert (message.status, message.parts[0]["text"]) == (Status.STOPPED, "kept")


def test_a_checkpoint_after_the_end_changes_nothing(owner: Actor) -> None:
    begun = begin(owner)
    assert transitions.claim(begun.turn_id, "here")
    finish(begun.turn_id)
    assert not transitions.checkpoint("here", {begun.turn_id: progress("late")})
    assert Turn.objects.get(pk=begun.turn_id).message.parts[0]["text"] == "done"


def test_a_process_that_lost_its_turn_writes_no_more(owner: Actor) -> None:
    begun = begin(owner)
    assert transitions.claim(begun.turn_id, "old")
    assert transitions.claim(begun.turn_id, "new")
    assert not transitions.checkpoint("old", {begun.turn_id: progress()})
    assert transitions.park(begun.turn_id, "old", progress()) is None
    assert transitions.checkpoint("new", {begun.turn_id: progress()})


# --- Waiting ------------------------------------------------------------------------------------------------------


def asked(begun: turns.Begun) -> tuple[ToolCall, Question]:
    turn = Turn.objects.get(pk=begun.turn_id)
    call = ToolCall.objects.create(
        turn=turn, message=turn.message, round=1, position=0, provider_id="c1", name="a__b", status="waiting"
    )
    row = Question.objects.create(
        organization_id=turn.conversation.organization_id,
        turn=turn,
        call=call,
        kind=Question.Kind.APPROVAL,
        asked_of_id=turn.conversation.owner_id,
        expires_at=timezone.now() + timedelta(hours=1),
    )
    return call, row


def parked(actor: Actor) -> tuple[turns.Begun, ToolCall, Question]:
    begun = begin(actor)
    transitions.claim(begun.turn_id, "here")
    call, row = asked(begun)
    assert transitions.park(begun.turn_id, "here", progress()) is not None
    return begun, call, row


def test_an_answer_to_a_parked_turn_resumes_it_once(owner: Actor) -> None:
    begun, call, _ = parked(owner)
    answer = questions.decide(owner, Decision("allow_once"), call_id=call.pk)
    assert answer.resumed
    assert Turn.objects.get(pk=begun.turn_id).status == Status.RUNNING
    with pytest.raises(questions.AlreadyAnsweredError):
        questions.decide(owner, Decision("deny"), call_id=call.pk)
    call.refresh_from_db()
    assert (call.status, call.decided_by_id) == (ToolCall.Status.PENDING, owner.user_id)


def test_an_answer_that_comes_before_the_turn_parks_keeps_it_from_parking(owner: Actor) -> None:
    begun = begin(owner)
    transitions.claim(begun.turn_id, "here")
    call, _ = asked(begun)
    assert not questions.decide(owner, Decision("deny", note="no"), call_id=call.pk).resumed
    assert transitions.park(begun.turn_id, "here", progress()) is None
    ((_, unseen),) = questions.unseen_answers(begun.turn_id)
    assert replace(unseen, seal=None) == Decided(call.pk, False, "no", by=owner.user_id)


def test_a_question_that_expires_before_the_turn_parks_keeps_it_from_waiting_for_ever(owner: Actor) -> None:
    begun = begin(owner)
    transitions.claim(begun.turn_id, "here")
    asked(begun)
    Question.objects.as_system().update(expires_at=timezone.now() - timedelta(seconds=1))
    assert questions.expire().resumed == ()  # it runs: nobody has to start it
    assert transitions.park(begun.turn_id, "here", progress()) is None
    assert Turn.objects.get(pk=begun.turn_id).status == Status.RUNNING


def test_nobody_else_answers(owner: Actor, bob: User, charlie: User, actor_of: Callable[[User], Actor]) -> None:
    _, call, row = parked(owner)
    for stranger in (actor_of(bob), actor_of(charlie)):
        with pytest.raises(NotFoundError):
            questions.decide(stranger, Decision("allow_once"), call_id=call.pk)
    row.refresh_from_db()
    assert row.state == Question.State.OPEN


def test_a_key_without_the_scope_does_not_answer(owner: Actor) -> None:
    _, call, _ = parked(owner)
    with pytest.raises(PermissionDeniedError):
        questions.decide(replace(owner, scopes=frozenset({"chat"})), Decision("allow_once"), call_id=call.pk)


def test_stopping_a_waiting_turn_ends_it_and_voids_its_question(owner: Actor) -> None:
    begun, call, row = parked(owner)
    stop = turns.request_stop(owner, begun.turn_id)
    assert stop.ended is not None
    assert stop.ended.outcome == "stopped"
    row.refresh_from_db()
    call.refresh_from_db()
    assert (row.state, call.status) == (Question.State.VOID, ToolCall.Status.CANCELLED)
    with pytest.raises(questions.AlreadyAnsweredError):
        questions.decide(owner, Decision("allow_once"), call_id=call.pk)


def test_an_overdue_question_expires_and_its_turn_goes_on_with_a_result_that_says_so(owner: Actor) -> None:
    begun, call, _ = parked(owner)
    Question.objects.as_system().update(expires_at=timezone.now() - timedelta(seconds=1))
    with pytest.raises(questions.AlreadyAnsweredError):
        questions.decide(owner, Decision("allow_once"), call_id=call.pk)
    assert questions.expire().resumed == (begun.turn_id,)
    assert questions.expire() == questions.Expired()
    call.refresh_from_db()
    assert call.status == ToolCall.Status.EXPIRED
    assert "Nobody decided" in call.result_text


# --- Stopping and reaping -----------------------------------------------------------------------------------------


def test_stopping_a_running_turn_marks_it_for_its_owner(owner: Actor) -> None:
    begun = begin(owner)
    transitions.claim(begun.turn_id, "there")
    assert turns.request_stop(owner, begun.turn_id).ended is None
    assert transitions.heartbeat("there", [begun.turn_id]) == {begun.turn_id}
    assert transitions.heartbeat("elsewhere", [begun.turn_id]) == set()


def test_stopping_a_turn_whose_owner_is_gone_ends_it_here(owner: Actor) -> None:
    begun = begin(owner)
    Turn.objects.update(heartbeat_at=timezone.now() - timedelta(minutes=1))
    stop = turns.request_stop(owner, begun.turn_id)
    assert stop.ended is not None
    assert Turn.objects.get(pk=begun.turn_id).status == Status.STOPPED


def test_the_reaper_ends_only_turns_without_a_heartbeat_and_keeps_their_text(owner: Actor) -> None:
    dead, live, waiting = begin(owner), begin(owner), parked(owner)[0]
    transitions.claim(dead.turn_id, "dead")
    assert transitions.checkpoint("dead", {dead.turn_id: progress("kept")})
    call = asked(dead)[0]
    ToolCall.objects.filter(pk=call.pk).update(status="running")
    Turn.objects.filter(pk=dead.turn_id).update(heartbeat_at=timezone.now() - timedelta(minutes=1))
    assert [row[0] for row in transitions.reap()] == [dead.turn_id]
    message = Turn.objects.get(pk=dead.turn_id).message
    assert (message.status, message.parts[0]["text"]) == (Status.INTERRUPTED, "kept")
    call.refresh_from_db()
    assert call.status == ToolCall.Status.INTERRUPTED
    assert Turn.objects.get(pk=live.turn_id).status == Status.RUNNING
    assert Turn.objects.get(pk=waiting.turn_id).status == Status.WAITING


def test_a_turn_that_cannot_be_ended_keeps_no_other_from_its_end(
    owner: Actor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken, well = begin(owner), begin(owner)
    end = transitions.end

    def fail(turn_id: UUID, *args: Any, **fields: Any) -> Any:
        if turn_id == broken.turn_id:
            raise RuntimeError("something in its rows")
        return end(turn_id, *args, **fields)

    monkeypatch.setattr(transitions, "end", fail)
    assert [reaped[0] for reaped in transitions.reap(everything=True)] == [well.turn_id]
    assert "could not be ended" in caplog.text


def test_the_only_process_there_is_reaps_everything_that_ran_at_its_start(owner: Actor) -> None:
    begun, waiting = begin(owner), parked(owner)[0]
    assert [row[0] for row in transitions.reap(everything=True)] == [begun.turn_id]
    assert Turn.objects.get(pk=waiting.turn_id).status == Status.WAITING


def test_a_turn_that_was_asked_to_stop_before_its_process_died_ends_as_stopped(owner: Actor) -> None:
    begun = begin(owner)
    turns.request_stop(owner, begun.turn_id)
    transitions.reap(everything=True)
    assert Turn.objects.get(pk=begun.turn_id).status == Status.STOPPED


def test_a_result_that_comes_after_the_end_leaves_neither_a_file_nor_a_claim_to_one(
    owner: Actor, settings: Any
) -> None:
    begun = begin(owner)
    call, _ = asked(begun)
    assert transitions.end(begun.turn_id, Status.STOPPED, None) is not None
    late = ToolResult(ToolStatus.OK, "late", ({"type": "text", "text": "late"},), [Artifact(b"x", "text/plain", "a")])
    stored = rounds.finish_call(Turn.objects.get(pk=begun.turn_id), call.pk, late)
    assert (stored.content, stored.artifacts) == ([], [])
    assert not [path for path in Path(settings.MEDIA_ROOT).rglob("*") if path.is_file()]
    call.refresh_from_db()
    assert (call.status, call.result_content) == (ToolCall.Status.CANCELLED, [])
