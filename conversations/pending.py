"""What waits for a person's answer, as the approvals page shows it: the call in full, and nothing of the chat."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import Prefetch, Q
from django.utils import timezone

from accounts import policy
from accounts.actors import Actor
from accounts.models import User
from chatui.errors import NotFoundError
from conversations.decisions import can_remember
from conversations.frame_bounds import bounded_at
from conversations.models import Question, QuestionQuerySet
from conversations.questions import NOT_YOURS

SHOWN = 200  # of those that are open, the oldest first


def _open(actor: Actor) -> QuestionQuerySet:
    found: QuestionQuerySet = Question.objects.visible_to(actor).filter(
        state=Question.State.OPEN, expires_at__gt=timezone.now()
    )
    return found


def count(actor: Actor) -> int:
    """How many questions the actor can answer now; 0 for who cannot answer any."""
    return _open(actor).count() if policy.allows(actor, policy.Action.ANSWER) else 0


def listing(actor: Actor) -> list[dict[str, Any]]:
    """The open questions that the actor can answer, and the actor's own that wait for others; three queries."""
    policy.require(actor, policy.Action.ANSWER)
    mine = Question.objects.as_system().filter(
        organization_id=actor.organization_id,
        asked_of_id=actor.user_id,
        state=Question.State.OPEN,
        expires_at__gt=timezone.now(),
    )
    either = Question.objects.as_system().filter(Q(pk__in=mine.values("pk")) | Q(pk__in=_open(actor).values("pk")))
    return [_question_json(actor, question) for question in _loaded(either).order_by("created_at")[:SHOWN]]


def one(actor: Actor, question_id: UUID) -> dict[str, Any]:
    """One question that the actor may answer, or might have, with its arguments unshortened. Raises `NotFoundError`."""
    policy.require(actor, policy.Action.ANSWER)
    question = _loaded(Question.objects.visible_to(actor).filter(pk=question_id)).first()
    if question is None:
        raise NotFoundError(public_message=NOT_YOURS)
    return _question_json(actor, question, whole=True)


def _loaded(questions: QuestionQuerySet) -> QuestionQuerySet:
    named = Prefetch("approvers", User.objects.only("pk"))
    return questions.select_related("call", "asked_of", "turn__agent", "turn__conversation").prefetch_related(named)


def _question_json(actor: Actor, question: Question, *, whole: bool = False) -> dict[str, Any]:
    """`conversation` is there for its owner alone: who approves learns what is to be done, not what was said."""
    call, turn, details = question.call, question.turn, question.details
    mine = question.asked_of_id == actor.user_id
    can_decide = (mine and question.by_owner) or any(user.pk == actor.user_id for user in question.approvers.all())
    body: dict[str, Any] = {
        "id": str(question.pk),
        "kind": question.kind,
        "state": question.state,
        "server": call.server_slug if call else "",
        "server_title": call.server_title if call else "",
        "mine": mine,
        "asked_by": {"username": question.asked_of.username, "name": question.asked_of.get_full_name()},
        "agent": {"slug": turn.agent.slug, "name": turn.agent.name} if turn.agent else None,
        "conversation": {"id": str(turn.conversation_id), "title": turn.conversation.title} if mine else None,
        "created_at": question.created_at.isoformat(),
        "expires_at": question.expires_at.isoformat(),
        "can_decide": can_decide,
    }
    if question.kind != Question.Kind.APPROVAL or call is None:
        return body
    arguments = call.arguments if call.arguments is not None else call.arguments_text
    return body | {
        "call_id": str(call.pk),
        "tool": call.tool or call.name,
        "title": call.title or call.tool or call.name,
        "account": details.get("account"),
        "arguments": arguments if whole else bounded_at(arguments, f"/api/v1/approvals/{question.pk}"),
        "claims": details.get("claims") or {},
        "reason": details.get("reason") or "",
        "can_edit": bool(details.get("can_edit")) and can_decide,
        "can_remember": can_remember(actor, question) and can_decide,
        "approvers": details.get("approvers") or [],
    }
