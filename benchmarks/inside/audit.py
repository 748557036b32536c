"""What an audit entry adds to storing the end of a call: the same ends with and without one, in turn."""

from __future__ import annotations

import time
from uuid import UUID, uuid4

from django.utils import timezone

from accounts.models import AuditRecord
from agents.models import Agent
from agents.parts import ToolResult, ToolStatus
from benchmarks.figures import median
from benchmarks.inside.rows import Queries, somebody
from chatui.prepared import PreparedQuery
from conversations import auditing, rounds
from conversations.models import Conversation, Message, ToolCall, Turn

CALLS = 400
_decided_by = PreparedQuery(
    lambda call: ToolCall.objects.filter(pk=call).values_list("decided_by__username", flat=True), UUID
)


def _unrecorded(call_id: UUID, _: str) -> str | None:
    name: str | None = _decided_by.first(call_id)
    return name


def _turn() -> Turn:
    actor, _ = somebody()
    agent = Agent.objects.as_system().get(slug="first")
    conversation = Conversation.objects.create(
        organization_id=actor.organization_id, owner_id=actor.user_id, agent=agent, active_at=timezone.now()
    )
    question = Message.objects.create(conversation=conversation, role=Message.Role.USER)
    answer = Message.objects.create(conversation=conversation, parent=question, role=Message.Role.ASSISTANT)
    return Turn.objects.create(
        conversation=conversation,
        started_by_id=actor.user_id,
        request_id=uuid4(),
        agent=agent,
        user_message=question,
        message=answer,
        options={"via": "web"},
    )


def measure() -> dict[str, float]:
    """Milliseconds of an end `with` and `without` an entry (medians), and the statements of each."""
    queries = Queries()
    turn = _turn()
    arguments = {"path": "/var/log/messages", "lines": 200, "filter": {"level": "error", "since": "2026-01-01"}}
    calls = [
        ToolCall(
            turn=turn,
            message=turn.message,
            round=1,
            position=number,
            name="files__read",
            server_slug="files",
            tool="read",
            arguments=arguments,
            verdict="allow",
            reason="the server's rule “read” allows it",
            status=ToolCall.Status.RUNNING,
        )
        for number in range(CALLS)
    ]
    ToolCall.objects.bulk_create(calls)
    result = ToolResult(ToolStatus.OK, "a result of some length " * 40, ({"type": "text", "text": "x" * 900},))
    record, took, made = auditing.record_end, {True: [0.0], False: [0.0]}, {True: 0, False: 0}
    for number, call in enumerate(calls):
        recorded = bool(number % 2)
        auditing.record_end = record if recorded else _unrecorded  # for the comparison
        with queries.taken() as noted:
            began = time.perf_counter()
            rounds.finish_call(turn, call.pk, result)
            took[recorded].append((time.perf_counter() - began) * 1000)
        made[recorded] = len(noted)
    assert AuditRecord.objects.as_system().filter(turn_id=turn.pk).count() == CALLS // 2
    return {
        "with": median(took[True][10:]),
        "without": median(took[False][10:]),
        "statements_with": made[True],
        "statements_without": made[False],
    }
