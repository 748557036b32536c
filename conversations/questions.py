"""What people are asked: the only way in which a turn waits and goes on. Answered once, by whom it was asked of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from accounts import audit, policy
from accounts.actors import Actor, find_actor
from accounts.approvers import ANSWERING
from accounts.models import AuditAction, Membership
from agents.answers import Decided
from agents.parts import PersonAnswer, Seal
from chatui.errors import ChatUIError, NotFoundError
from chatui.rows import writing
from conversations import auditing, settling, standing, transitions
from conversations.decisions import Decision, NotSupportedError, answer_of
from conversations.models import Question, ToolCall, Turn
from conversations.settling import Settled
from mcpservers.elicitation import checked

NOBODY_DECIDED = "Nobody decided in time. The call was not made."
NOBODY_IS_LEFT = (
    "Nobody who was to approve this call is a member who may approve any more, so it was not made. "
    "Ask an admin to change the rule."
)
WITHDRAWN = "Cancelled by the user before it ran."
NOT_YOURS = (
    "There is no such question for you. A call is approved by whoever it was made for, or by those whom its rule names."
)


class AlreadyAnsweredError(ChatUIError):
    """Somebody (the same person in another tab, perhaps) was first, or the question has expired or become void."""

    code = "already_answered"
    status = 409
    public_message = "This was decided already."


@dataclass(frozen=True, slots=True)
class Answered:
    """`resumed`: the turn was parked and is now this caller's to start; else its running task is to be told so.

    `audience` are all who might have answered: they are told that it is settled.
    """

    turn_id: UUID
    call_id: UUID
    question_id: UUID
    organization_id: UUID
    kind: str
    decided: Decided
    resumed: bool
    audience: tuple[UUID, ...] = ()


def decide(
    actor: Actor, decision: Decision, *, call_id: UUID | None = None, question_id: UUID | None = None
) -> Answered:
    """Answer the approval of a call, or decline the sign-in that it asks for; `question_id`: that very question.

    Raises `NotFoundError`, `PermissionDeniedError`, `AlreadyAnsweredError`, `NotSupportedError`, and
    `InvalidRequestError` for an answer that makes no sense; the question then stays open.
    """
    policy.require(actor, policy.Action.ANSWER)
    with writing():
        kinds = (Question.Kind.APPROVAL, Question.Kind.AUTHORIZATION)
        asked = Question.objects.visible_to(actor).filter(kind__in=kinds).select_related("turn", "call")
        asked = asked.filter(pk=question_id) if question_id is not None else asked
        asked = asked.filter(call=call_id) if call_id is not None else asked
        question = asked.order_by("-created_at").first()
        if question is None:
            raise NotFoundError(public_message=NOT_YOURS)
        if question.state != Question.State.OPEN or question.expires_at <= timezone.now():
            raise _too_late(actor, question.pk)
        if question.kind == Question.Kind.AUTHORIZATION:
            if decision.allows:
                raise NotSupportedError(public_message="Sign in at the server to let this call go on.")
            return answer(actor, question, {"action": "decline"})
        answered = answer(actor, question, answer_of(actor, question, decision))
        if decision.decision == "allow_always" and decision.scope is not None:
            standing.remember(actor, question, decision.scope)
        _record(actor, question, decision)
        return answered


def _record(actor: Actor, question: Question, decision: Decision) -> None:
    call = question.call
    assert call is not None
    audit.record(
        AuditAction.APPROVAL_ANSWERED,
        organization_id=actor.organization_id,
        actor_id=actor.user_id,
        via=audit.via_of(actor),
        person_id=question.asked_of_id,
        server_id=call.server_id,
        server=call.server_slug,
        tool=call.tool,
        turn_id=question.turn_id,
        call_id=call.pk,
        verdict="allow" if decision.allows else "deny",
        details={"decision": decision.decision, "changed": decision.allows and decision.arguments is not None},
    )


def audience(question: Question) -> tuple[UUID, ...]:
    """All who are told of a question: whose call it is, and who else may answer. One query."""
    return (question.asked_of_id, *question.approvers.values_list("pk", flat=True))


def elicited(actor: Actor, question_id: UUID, action: str, content: Mapping[str, Any] | None = None) -> Answered:
    """Answer what a server asks: `content` goes with `accept` alone, and is checked against the form.

    Raises as `decide`, and `InvalidAnswerError`, which names the fields; the question then stays open.
    """
    policy.require(actor, policy.Action.ANSWER)
    with writing():
        asked = Question.objects.visible_to(actor).filter(pk=question_id, kind=Question.Kind.ELICITATION)
        question = asked.select_related("call").first()
        if question is None:
            raise NotFoundError(public_message=NOT_YOURS)
        if question.state != Question.State.OPEN or question.expires_at <= timezone.now():
            raise _too_late(actor, question.pk)
        form = question.details.get("schema")
        given = {"action": action, "content": checked(form, content or {}) if action == "accept" and form else {}}
        answered = answer(actor, question, given)
        _record_elicited(actor, question, action)
        return answered


def _record_elicited(actor: Actor, question: Question, action: str) -> None:
    call = question.call
    audit.record(
        AuditAction.ELICITATION_ANSWERED,
        organization_id=actor.organization_id,
        actor_id=actor.user_id,
        via=audit.via_of(actor),
        person_id=question.asked_of_id,
        server_id=call.server_id if call else None,
        server=question.details.get("server", ""),
        tool=call.tool if call else "",
        turn_id=question.turn_id,
        call_id=question.call_id,
        details={"action": action, "mode": question.details.get("mode"), "host": question.details.get("host")},
    )


def completed(server_id: UUID, user_id: UUID | None, elicitation: str) -> list[Answered]:
    """Accept the open questions whose address the server says was dealt with; of all users without a `user_id`."""
    with writing():
        asked = Question.objects.as_system().filter(
            kind=Question.Kind.ELICITATION,
            state=Question.State.OPEN,
            expires_at__gt=timezone.now(),
            call__server=server_id,
            details__mode="url",
            details__elicitation=elicitation,
        )
        if user_id is not None:
            asked = asked.filter(asked_of=user_id)
        actors = {
            user: find_actor(user, organization) for user, organization in asked.values_list("asked_of", "organization")
        }
        found = [(question, actors[question.asked_of_id]) for question in asked]
        return [answer(actor, question, {"action": "accept"}) for question, actor in found if actor is not None]


def signed_in(actor: Actor, server_id: UUID, account: str) -> list[Answered]:
    """Answer every open question of this actor that waits for an account at the server."""
    with writing():
        waiting = Question.objects.visible_to(actor).filter(
            kind=Question.Kind.AUTHORIZATION,
            state=Question.State.OPEN,
            expires_at__gt=timezone.now(),
            call__server=server_id,
        )
        given = {"action": "accept", "content": {"account": account}}
        return [answer(actor, question, given) for question in waiting]


def answer(actor: Actor, question: Question, given: Mapping[str, Any]) -> Answered:
    """Store the answer to one question, which the actor may give, once. Inside `writing()`."""
    # The turn's row first: parking takes the same lock, so an answer is never lost between the two.
    turn = Turn.objects.select_for_update().get(pk=question.turn_id)
    now = timezone.now()
    updated = (
        Question.objects.as_system()
        .filter(pk=question.pk, state=Question.State.OPEN, expires_at__gt=now)
        .update(state=Question.State.ANSWERED, answer=dict(given), answered_by_id=actor.user_id, answered_at=now)
    )
    if not updated or question.call_id is None:
        raise _too_late(actor, question.pk)
    fields: dict[str, Any] = {"status": ToolCall.Status.PENDING}
    if question.kind == Question.Kind.APPROVAL:
        fields |= {"decided_by_id": actor.user_id, "decided_at": now}
    ToolCall.objects.filter(pk=question.call_id, status=ToolCall.Status.WAITING).update(**fields)
    question.answered_by_id = actor.user_id
    decided = _decided(question.call_id, question, given)
    resumed = transitions.resume(turn.pk)
    ids = (turn.pk, question.call_id, question.pk, question.organization_id)
    return Answered(*ids, question.kind, decided, resumed, audience(question))


def _too_late(actor: Actor, question_id: UUID) -> AlreadyAnsweredError:
    """Says who was first, or what became of the question."""
    rows = Question.objects.as_system().filter(pk=question_id)
    match rows.values_list("state", "answered_by", "answered_by__username").first():
        case (Question.State.ANSWERED, actor.user_id, _):
            words = "You have answered this already, perhaps in another window."
        case (Question.State.ANSWERED, _, str(name)):
            words = f"{name} has answered this already."
        case (Question.State.OPEN | Question.State.EXPIRED, *_):
            words = "The time to answer this is over."
        case (Question.State.VOID, *_):
            words = "Nobody needs an answer to this any more."
        case _:
            words = AlreadyAnsweredError.public_message
    return AlreadyAnsweredError(public_message=words)


def _decided(call_id: UUID, question: Question, given: Mapping[str, Any]) -> Decided:
    if question.kind == Question.Kind.APPROVAL:
        return Decided(
            call_id,
            given["decision"] != "deny",
            given.get("note", ""),
            given.get("arguments"),
            by=question.answered_by_id,
            seal=Seal(question.definition, question.arguments),
        )
    action = given["action"]
    return Decided(call_id, action == "accept", answer=PersonAnswer(action, given.get("content") or {}))


@dataclass(frozen=True, slots=True)
class Expired:
    """Questions that were closed without an answer, and the parked turns that are now the caller's to start."""

    settled: tuple[Settled, ...] = ()
    resumed: tuple[UUID, ...] = ()


def expire() -> Expired:
    """Close the questions whose time is over, and those that nobody can answer any more."""
    asked = Question.objects.as_system().filter(state=Question.State.OPEN)
    overdue = list(asked.filter(expires_at__lte=timezone.now()).values_list("pk", "turn_id", "call_id")[:100])
    ends = [(ids, Question.State.EXPIRED, ToolCall.Status.EXPIRED, NOBODY_DECIDED) for ids in overdue]
    ends += [(ids, Question.State.VOID, ToolCall.Status.DENIED, NOBODY_IS_LEFT) for ids in _without_approvers()]
    settled: list[Settled] = []
    resumed = []
    for (question_id, turn_id, call_id), state, status, words in ends:
        with writing():
            Turn.objects.select_for_update().get(pk=turn_id)
            closed = settling.close(Question.objects.as_system().filter(pk=question_id), state)
            if not closed:
                continue
            settled += closed
            waiting = ToolCall.objects.filter(pk=call_id, status=ToolCall.Status.WAITING)
            # What expired is told as such wherever it is shown.
            shown = [{"type": "text", "text": words}] if status == ToolCall.Status.DENIED else []
            if waiting.update(status=status, result_text=words, result_content=shown) and call_id is not None:
                auditing.record_end(call_id, words)
            if transitions.resume(turn_id):
                resumed.append(turn_id)
    return Expired(tuple(settled), tuple(resumed))


def withdraw(turn_id: UUID, call_id: UUID) -> Expired:
    """Cancel a call for which its turn is parked; nothing of a turn that is not, or of a call that waits no longer."""
    with writing():
        # The turn's row first, as `answer` does: an answer and this are one after the other.
        parked = Turn.objects.select_for_update().filter(pk=turn_id, status=Turn.Status.WAITING).first()
        waiting = ToolCall.objects.filter(pk=call_id, turn=turn_id, status=ToolCall.Status.WAITING)
        if parked is None or not waiting.update(status=ToolCall.Status.CANCELLED, result_text=WITHDRAWN):
            return Expired()
        auditing.record_end(call_id, WITHDRAWN)
        settled = settling.close(Question.objects.as_system().filter(call=call_id), Question.State.VOID)
        return Expired(settled, (turn_id,) if transitions.resume(turn_id) else ())


def _without_approvers() -> list[tuple[UUID, UUID, UUID | None]]:
    """(question, turn, call) of approvals all of whose approvers have left, or may not approve any more."""
    members = Membership.objects.active().filter(
        organization_id=OuterRef(OuterRef("organization_id")), role__in=ANSWERING
    )
    left = Question.approvers.through.objects.filter(question_id=OuterRef("pk"), user_id__in=members.values("user_id"))
    asked = Question.objects.as_system().filter(state=Question.State.OPEN, kind=Question.Kind.APPROVAL, by_owner=False)
    return list(asked.filter(~Exists(left)).values_list("pk", "turn_id", "call_id")[:100])


def give_up(question_id: UUID) -> tuple[Settled, ...]:
    """Close the question of a running call that waits for it no longer: expired, if its time was over, else void."""
    with writing():
        asked = Question.objects.as_system().filter(pk=question_id)
        # The turn's row first, as `answer` does: of an answer and this, one is first, and the other sees it.
        Turn.objects.select_for_update(of=("self",)).filter(questions=question_id).first()
        soon = timezone.now() + timedelta(seconds=1)  # who waited for it has a clock of its own
        state = Question.State.EXPIRED if asked.filter(expires_at__lte=soon).exists() else Question.State.VOID
        return settling.close(asked, state)


def unseen_answers(turn_id: UUID) -> list[tuple[UUID, Decided]]:
    """Answers to a running turn whose call has not gone on: for a heartbeat, where another process took them.

    Each with its question, since the call may ask another one by now.
    """
    waits = Q(call__status=ToolCall.Status.PENDING) | Q(
        call__status=ToolCall.Status.RUNNING, kind=Question.Kind.ELICITATION
    )
    rows = Question.objects.as_system().filter(waits, turn=turn_id, state=Question.State.ANSWERED)
    newest = {question.call_id: question for question in rows.order_by("created_at")}
    return [(row.pk, _decided(call_id, row, row.answer)) for call_id, row in newest.items() if call_id and row.answer]
