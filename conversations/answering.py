"""What follows an answer, through whichever door it came: its turn goes on, and who might have answered is told."""

from __future__ import annotations

from conversations import hints, processes, supervisor
from conversations.questions import Answered


async def carry(answer: Answered) -> None:
    """Start the turn here if it was parked (any process may), tell its task if it runs here; others hear of it soon."""
    house = supervisor.current()
    house.answered(answer)
    if not house.runs(answer.turn_id):
        await processes.look_at(answer.turn_id)
    changed = hints.question_changed(answer.question_id, answer.kind, "answered", answer.turn_id)
    await hints.tell_people(answer.audience, answer.organization_id, changed)
