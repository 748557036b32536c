"""What people are shown when a call needs them: the frame of each kind of question, and of its answer."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from agents.events import CallAnswered
from agents.parts import PersonNeeded, PreparedCall
from conversations import wire
from conversations.frame_bounds import bounded, shortened_content
from conversations.models import Question, ToolCall
from conversations.plans import TurnPlan
from conversations.rounds import StoredQuestion
from mcpservers.credentials import SignIn

# How `questions.expire` and `questions.withdraw` close a question, and end its call.
_ENDS = {
    (Question.State.EXPIRED, ToolCall.Status.EXPIRED),
    (Question.State.VOID, ToolCall.Status.DENIED),
    (Question.State.VOID, ToolCall.Status.CANCELLED),
}


def frame_of(
    call_id: UUID, call: PreparedCall, question: StoredQuestion, needed: PersonNeeded | None
) -> wire.TurnFrame:
    """The card of a question. `needed` is None for an approval."""
    if needed is None:
        return wire.CallApproval(
            call_id=call_id,
            question_id=question.id,
            server=call.server,
            server_title=call.server_title,
            tool=call.tool,
            title=call.title,
            account=call.account,
            arguments=bounded(call.arguments, call_id),
            claims=dict(call.claims),
            reason=call.reason,
            expires_at=question.expires_at,
            can_edit=call.can_edit,
            can_remember=call.can_remember,
            can_decide=question.by_owner,
            approvers=list(question.names),
        )
    card = needed.card
    if needed.kind == "authorization":
        return wire.AuthorizationRequired(
            call_id=call_id,
            question_id=question.id,
            server=card.get("server", ""),
            title=card.get("title", ""),
            url=card.get("url", ""),
            scopes=card.get("scopes", []),
            account=card.get("account"),
            host=card.get("host", ""),
            expires_at=question.expires_at,
            new_scopes=card.get("new_scopes", []),
        )
    return wire.ElicitationRequested(
        elicitation_id=question.id,
        call_id=call_id,
        server=card.get("server", ""),
        title=card.get("title", ""),
        mode=card.get("mode", "form"),
        message=card.get("message", ""),
        schema=card.get("schema"),
        order=card.get("order", []),
        url=card.get("url"),
        host=card.get("host", ""),
        step=card.get("step", 1),
        steps=card.get("steps", 1),
        expires_at=question.expires_at,
    )


def sign_in_frame(sign_in: SignIn) -> wire.TurnFrame:
    """The card of a server whose very list needs a sign-in: no call waits for it."""
    return wire.AuthorizationRequired(
        call_id=None,
        question_id=None,
        server=sign_in.server,
        title=sign_in.title,
        url=sign_in.url,
        scopes=list(sign_in.scopes),
        account=sign_in.account or None,
        host=sign_in.host,
        expires_at=None,
        new_scopes=list(sign_in.new_scopes),
    )


def answer_frame(event: CallAnswered, question: StoredQuestion | None) -> wire.TurnFrame:
    """What everybody who follows the turn is told of the answer."""
    card = event.needed.card
    if event.needed.kind == "authorization":
        account = event.answer.content.get("account") if event.answer.action == "accept" else None
        return wire.AuthorizationCompleted(
            call_id=event.call_id, server=card.get("server", ""), account=str(account) if account else None
        )
    return wire.ElicitationResolved(
        elicitation_id=question.id if question is not None else event.call_id,
        call_id=event.call_id,
        action=event.answer.action,
    )


def ended_frames(plan: TurnPlan) -> Iterator[wire.TurnFrame]:
    """The ends of calls of the last round that came while the turn waited: cancelled, or not answered in time.

    Whoever closes such a question has only rows, so followers hear of it from the task that goes on with the turn.
    """
    turn = plan.turn
    for call in plan.calls.get(turn.message_id, ()):
        if (call.turn_id, call.round) != (turn.pk, turn.rounds):
            continue
        question = max(call.questions.all(), key=lambda question: question.created_at, default=None)
        if question is not None and (question.state, call.status) in _ENDS and call.duration_ms is None:  # else shown
            content = shortened_content(call.result_content, call.pk)
            yield wire.CallFinished(call_id=call.pk, status=call.status, content=content, artifacts=[], duration_ms=0)
