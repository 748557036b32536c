"""Questions that nobody can answer any more: closed, with whom is to be told of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from uuid import UUID

from conversations.models import Question, QuestionQuerySet


@dataclass(frozen=True, slots=True)
class Settled:
    """A question that has just been closed as `state`; `audience` are all who might have answered it."""

    question_id: UUID
    organization_id: UUID
    turn_id: UUID
    kind: str
    state: str
    audience: tuple[UUID, ...]


def close(questions: QuestionQuerySet, state: Question.State) -> tuple[Settled, ...]:
    """Close those of `questions` that are open. One query without any, three with; inside the caller's transaction."""
    fields = ("pk", "organization_id", "turn_id", "kind", "asked_of_id")
    rows = list(questions.filter(state=Question.State.OPEN).values_list(*fields))
    if not rows:
        return ()
    ids = [pk for pk, *_ in rows]
    Question.objects.as_system().filter(pk__in=ids, state=Question.State.OPEN).update(state=state)
    others: dict[UUID, list[UUID]] = defaultdict(list)
    for question_id, user_id in Question.approvers.through.objects.filter(question_id__in=ids).values_list(
        "question_id", "user_id"
    ):
        others[question_id].append(user_id)
    return tuple(
        Settled(pk, organization_id, turn_id, kind, state.value, (owner, *others[pk]))
        for pk, organization_id, turn_id, kind, owner in rows
    )
