"""Two answers to one question at the same moment, in transactions of their own: one counts, the other is told whose."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.actors import Actor
from accounts.models import AuditRecord, User
from agents.models import Agent
from conversations import questions
from conversations.decisions import Decision
from conversations.models import Question, ToolCall, Turn
from conversations.questions import AlreadyAnsweredError, Answered
from tests.conversations.test_turns import parked

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer at a time"),
]


@pytest.fixture
def owner(alice: User, organization: Any, make_agent: Callable[..., Agent], actor_of: Callable[[User], Actor]) -> Actor:
    make_agent(organization)
    return actor_of(alice)


Verb = Callable[[], Answered]


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Answered | AlreadyAnsweredError]]:
    """What becomes of two answers, both of which have seen that the question is open."""
    both, store = threading.Barrier(2, timeout=20), questions.answer

    def answer(*args: Any) -> Answered:
        both.wait()
        return store(*args)

    monkeypatch.setattr(questions, "answer", answer)

    def run(verb: Verb) -> Answered | AlreadyAnsweredError:
        try:
            return verb()
        except AlreadyAnsweredError as error:
            return error
        finally:
            connection.close()

    def both_of(*verbs: Verb) -> list[Answered | AlreadyAnsweredError]:
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(run, verbs))

    return both_of


def test_of_two_people_who_decide_one_is_heard_and_the_other_told_who_it_was(
    owner: Actor, bob: User, actor_of: Callable[[User], Actor], together: Any
) -> None:
    begun, call, row = parked(owner)
    row.approvers.add(bob)
    people = {owner.user_id: "alice", bob.pk: "bob"}
    first, second = together(
        lambda: questions.decide(owner, Decision("allow_once"), call_id=call.pk),
        lambda: questions.decide(actor_of(bob), Decision("deny", note="no"), call_id=call.pk),
    )
    won, lost = (first, second) if isinstance(first, Answered) else (second, first)
    assert isinstance(won, Answered)
    assert won.resumed
    assert isinstance(lost, AlreadyAnsweredError)
    row.refresh_from_db()
    call.refresh_from_db()
    assert row.answered_by_id == call.decided_by_id == won.decided.by
    assert row.answer["decision"] == ("allow_once" if won.decided.allowed else "deny")
    assert lost.public_message == f"{people[row.answered_by_id]} has answered this already."
    assert Turn.objects.get(pk=begun.turn_id).status == Turn.Status.RUNNING
    assert AuditRecord.objects.as_system().filter(action="approval.answered").count() == 1


def test_of_two_windows_in_which_a_form_is_sent_one_is_heard(owner: Actor, together: Any) -> None:
    _, call, row = parked(owner)
    form = {"type": "object", "properties": {"name": {"type": "string"}}}
    details = {"mode": "form", "schema": form, "server": "notes"}
    Question.objects.as_system().filter(pk=row.pk).update(kind=Question.Kind.ELICITATION, details=details)
    first, second = together(
        lambda: questions.elicited(owner, row.pk, "accept", {"name": "Ada"}),
        lambda: questions.elicited(owner, row.pk, "decline"),
    )
    won, lost = (first, second) if isinstance(first, Answered) else (second, first)
    assert isinstance(won, Answered)
    assert won.resumed
    assert isinstance(lost, AlreadyAnsweredError)
    assert lost.public_message == "You have answered this already, perhaps in another window."
    row.refresh_from_db()
    assert won.decided.answer is not None
    assert row.answer["action"] == won.decided.answer.action
    assert ToolCall.objects.get(pk=call.pk).status == ToolCall.Status.PENDING
    assert AuditRecord.objects.as_system().filter(action="elicitation.answered").count() == 1


def test_who_gives_a_question_up_takes_the_lock_of_its_turn_first(owner: Actor) -> None:
    _, _, row = parked(owner)
    with CaptureQueriesContext(connection) as made:
        (settled,) = questions.give_up(row.pk)
    assert settled.state == Question.State.VOID
    locked = [number for number, query in enumerate(made) if "FOR UPDATE" in query["sql"]]
    changed = [number for number, query in enumerate(made) if query["sql"].startswith("UPDATE")]
    assert locked
    assert locked[0] < changed[0]
    assert '"conversations_turn"' in made[locked[0]]["sql"]
    with pytest.raises(AlreadyAnsweredError, match="Nobody needs"):
        questions.decide(owner, Decision("allow_once"), call_id=row.call_id)
