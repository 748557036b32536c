"""What a turn's task loads before it starts: as much however long the conversation is."""

from __future__ import annotations

from collections.abc import Callable

from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import Organization, User
from agents.models import Agent
from conversations import plans
from tests.conversations.api.conftest import add_attachment, add_call, make_conversation, make_exchange


def test_a_turn_is_planned_in_as_many_queries_however_long_its_conversation_is(
    alice: User, organization: Organization, make_agent: Callable[..., Agent]
) -> None:
    conversation, answer, counts = make_conversation(alice, make_agent(organization)), None, []
    for more in (1, 60):
        for number in range(more):
            asked, answer, turn = make_exchange(conversation, f"Question {number}", "An answer.", parent=answer)
            file = add_attachment(alice, organization, conversation=conversation)
            asked.parts.append({"type": "attachment", "id": str(file.pk)})
            asked.save()
            add_attachment(alice, organization, call=add_call(turn, answer), name="a.png", content_type="image/png")
        with CaptureQueriesContext(connection) as queries:
            plan = plans.load(turn.pk)
        counts.append(len(queries))
    assert len(plan.path) == 2 * 61
    assert len(plan.calls) == 61
    assert counts[0] == counts[1]
