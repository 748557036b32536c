"""What people are asked: the only way in which a turn waits and goes on. Answered once, by whom it was asked of."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.utils import timezone

from accounts import policy
from accounts.actors import Actor
from chatui.errors import ChatUIError, NotFoundError
from chatui.rows import writing
from chatui.text import clean
from conversations import transitions
from conversations.models import Question, ToolCall, Turn


class AlreadyAnsweredError(ChatUIError):
    """Somebody (the same person in another tab, perhaps) was first, or the question has expired or become void."""

    code = "already_answered"
    status = 409
    public_message = "This was decided already."


class NotSupportedError(ChatUIError):
    """A form of answer that this server does not offer for this question."""

    code = "not_supported"
    public_message = "This kind of decision is not possible here."


@dataclass(frozen=True, slots=True)
class Answered:
    """`resumed`: the turn was parked and is now this caller's to start; else its running task is to be told."""

    turn_id: UUID
    call_id: UUID
    question_id: UUID
    allowed: bool
    note: str
    resumed: bool


def decide(actor: Actor, call_id: UUID, *, allow: bool, note: str = "") -> Answered:
    """Answer the approval of a call. Raises `NotFoundError`, `PermissionDeniedError`, `AlreadyAnsweredError`."""
    policy.require(actor, policy.Action.ANSWER)
    with writing():
        question = (
            Question.objects.visible_to(actor)
            .select_related("turn")
            .filter(call=call_id, kind=Question.Kind.APPROVAL)
            .order_by("-created_at")
            .first()
        )
        if question is None:
            raise NotFoundError(public_message="There is no such question.")
        # The turn's row first: parking takes the same lock, so an answer is never lost between the two.
        turn = Turn.objects.select_for_update().get(pk=question.turn_id)
        answer = {"decision": "allow_once" if allow else "deny", "note": clean(note)}
        now = timezone.now()
        updated = (
            Question.objects.as_system()
            .filter(pk=question.pk, state=Question.State.OPEN, expires_at__gt=now)
            .update(state=Question.State.ANSWERED, answer=answer, answered_by_id=actor.user_id, answered_at=now)
        )
        if not updated:
            raise AlreadyAnsweredError
        ToolCall.objects.filter(pk=call_id, status=ToolCall.Status.WAITING).update(
            status=ToolCall.Status.PENDING, decided_by_id=actor.user_id
        )
        resumed = transitions.resume(turn.pk)
    return Answered(turn.pk, call_id, question.pk, allow, answer["note"], resumed)


def expire() -> list[UUID]:
    """Close the questions whose time is over; returns the parked turns that are now the caller's to start."""
    overdue = Question.objects.as_system().filter(state=Question.State.OPEN, expires_at__lte=timezone.now())
    resumed = []
    for question in overdue.select_related("turn")[:100]:
        with writing():
            Turn.objects.select_for_update().get(pk=question.turn_id)
            closed = (
                Question.objects.as_system()
                .filter(pk=question.pk, state=Question.State.OPEN)
                .update(state=Question.State.EXPIRED)
            )
            if not closed:
                continue
            ToolCall.objects.filter(pk=question.call_id, status=ToolCall.Status.WAITING).update(
                status=ToolCall.Status.EXPIRED,
                result_text="Nobody decided in time. The call was not made.",
            )
            if transitions.resume(question.turn_id):
                resumed.append(question.turn_id)
    return resumed


def unseen_answers(turn_id: UUID) -> list[tuple[UUID, bool, str]]:
    """Answered approvals of a running turn whose call has not run, as (call, allowed, note): for a heartbeat."""
    rows = Question.objects.as_system().filter(
        turn=turn_id, state=Question.State.ANSWERED, call__status=ToolCall.Status.PENDING
    )
    return [
        (question.call_id, question.answer["decision"] != "deny", question.answer.get("note", ""))
        for question in rows
        if question.call_id and question.answer
    ]
