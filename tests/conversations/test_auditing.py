"""Every end of a call leaves one entry, in the transaction that stores the end; whatever else is told of the call."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts import audit
from accounts.models import AuditRecord, Organization, User
from agents.models import Agent
from agents.parts import ToolResult, ToolStatus
from conversations import auditing, questions, rounds, transitions
from conversations.models import Conversation, Message, Question, ToolCall, Turn
from conversations.transitions import Progress
from mcpservers.models import MCPServer
from tests.architecture.code import nodes, sources

pytestmark = pytest.mark.django_db
Status = ToolCall.Status


@pytest.fixture
def turn(organization: Organization, alice: User, make_agent: Callable[..., Agent]) -> Turn:
    conversation = Conversation.objects.create(
        organization=organization, owner=alice, agent=make_agent(organization), active_at=timezone.now()
    )
    question = Message.objects.create(conversation=conversation, role="user")
    answer = Message.objects.create(conversation=conversation, parent=question, role="assistant", status="running")
    return Turn.objects.create(
        conversation=conversation,
        started_by=alice,
        request_id=uuid4(),
        agent=conversation.agent,
        user_message=question,
        message=answer,
        heartbeat_at=timezone.now() - timedelta(hours=1),
        options={"via": "web"},
    )


@pytest.fixture
def server(organization: Organization) -> MCPServer:
    return MCPServer.objects.create(organization=organization, slug="files", title="Files", url="https://x.example")


@pytest.fixture
def make_call(turn: Turn, server: MCPServer) -> Callable[..., ToolCall]:
    def make(status: str = "running", **fields: Any) -> ToolCall:
        values: dict[str, Any] = {
            "name": "files__read",
            "tool": "read",
            "server": server,
            "server_slug": "files",
            "arguments": {"path": "/a", "deep": [1]},
            "verdict": "allow",
            "reason": "the server's rule “read” allows it",
        }
        position = ToolCall.objects.filter(turn=turn).count()
        return ToolCall.objects.create(
            turn=turn, message=turn.message, round=1, position=position, status=status, **values | fields
        )

    return make


def entries() -> list[AuditRecord]:
    return list(AuditRecord.objects.as_system().order_by("at", "id"))


def ask(turn: Turn, call: ToolCall, user: User, **fields: Any) -> Question:
    return Question.objects.create(
        organization_id=turn.conversation.organization_id,
        turn=turn,
        call=call,
        kind="approval",
        asked_of=user,
        expires_at=timezone.now() - timedelta(seconds=1),
        **fields,
    )


# --- The ends -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ToolStatus)
def test_a_result_of_every_kind_is_recorded(status: ToolStatus, turn: Turn, make_call: Any, alice: User) -> None:
    call, account = make_call(decided_by=alice), uuid4()
    rounds.finish_call(turn, call.pk, ToolResult(status, "what it said", duration_ms=17, account_id=account))
    (entry,) = entries()
    assert entry.action == "tool.call"
    assert (entry.organization_id, entry.actor_id, entry.via) == (turn.conversation.organization_id, alice.pk, "web")
    assert (entry.agent_id, entry.agent) == (turn.agent_id, "helper")
    assert (entry.server_id, entry.server, entry.tool) == (call.server_id, "files", "read")
    assert (entry.turn_id, entry.call_id, entry.account_id) == (turn.pk, call.pk, account)
    assert (entry.verdict, entry.reason) == ("allow", "the server's rule “read” allows it")
    assert (entry.approved_by_id, entry.status, entry.duration_ms) == (alice.pk, status.value, 17)
    assert entry.arguments_hash == audit.arguments_hash({"deep": [1], "path": "/a"})
    assert entry.body is None


@pytest.mark.parametrize("outcome", ["stopped", "interrupted", "failed"])
@pytest.mark.parametrize("with_progress", [True, False])
def test_calls_that_the_end_of_a_turn_closes_are_recorded(
    outcome: str, with_progress: bool, turn: Turn, make_call: Any
) -> None:
    made = [make_call(status) for status in ("running", "pending", "waiting", "ok")]
    parts = [{"type": "call", "id": str(call.pk), "round": 1} for call in made]
    progress = Progress(parts, 3, {}, 1.0) if with_progress else None
    assert transitions.end(turn.pk, Message.Status(outcome), progress) is not None
    expected = "cancelled" if outcome == "stopped" else "interrupted"
    assert {entry.call_id: entry.status for entry in entries()} == {call.pk: expected for call in made[:3]}


def test_calls_of_a_dead_process_are_recorded(turn: Turn, make_call: Any) -> None:
    call = make_call("running")
    assert len(transitions.reap()) == 1
    (entry,) = entries()
    assert (entry.call_id, entry.status) == (call.pk, "interrupted")


def test_a_call_that_nobody_decided_is_recorded_once(turn: Turn, make_call: Any, alice: User) -> None:
    call = make_call("waiting", verdict="ask")
    ask(turn, call, alice)
    questions.expire()
    questions.expire()
    transitions.end(turn.pk, Message.Status.COMPLETED, None)
    (entry,) = entries()
    assert (entry.status, entry.verdict, entry.approved_by_id) == ("expired", "ask", None)


def test_a_second_end_of_a_call_leaves_no_second_entry(turn: Turn, make_call: Any) -> None:
    call = make_call()
    for status in (ToolStatus.OK, ToolStatus.ERROR):
        rounds.finish_call(turn, call.pk, ToolResult(status, "x"))
    assert [entry.status for entry in entries()] == ["ok"]


def test_an_end_and_its_entry_are_kept_or_lost_alike(
    turn: Turn, make_call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = make_call()

    def fails(_: object) -> None:
        raise OSError("no entry today")

    monkeypatch.setattr(audit, "write", fails)
    with pytest.raises(OSError, match="today"):
        rounds.finish_call(turn, call.pk, ToolResult(ToolStatus.OK, "x"))
    call.refresh_from_db()
    assert call.status == "running"


def test_there_are_no_other_ends_than_these() -> None:
    """Who sets a call's status to one that is not open records it in the same function (or leads to who does)."""
    ends = {status.name for status in Status} - {status.name for status in ToolCall.OPEN}
    named = {
        path
        for path, node in nodes(ast.Attribute)
        if isinstance(node, ast.Attribute)
        and node.attr in ends
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "Status"
        and isinstance(node.value.value, ast.Name)
        and node.value.value.id == "ToolCall"
    }
    reading = {"conversations/cards.py"}
    assert named - reading <= {"conversations/history.py", "conversations/questions.py", "conversations/transitions.py"}
    writes = []
    for path, module in sources().items():
        for function in ast.walk(module):
            if isinstance(function, ast.FunctionDef) and path.startswith("conversations/"):
                text = ast.unparse(function)
                ending = any(f"ToolCall.Status.{end}" in text for end in ends) or "ToolCall.Status(result" in text
                if "ToolCall" in text and ".update(" in text and (ending or function.name == "_close_calls"):
                    writes.append(f"{path} {function.name}")
                    assert "auditing.record_end" in text, writes[-1]
    assert set(writes) >= {
        "conversations/questions.py expire",
        "conversations/rounds.py finish_call",
        "conversations/transitions.py _close_calls",
    }


# --- What it costs, what it tells ---------------------------------------------------------------------------------


def test_recording_is_one_statement_more_and_no_commit_of_its_own(turn: Turn, make_call: Any) -> None:
    finish = rounds.finish_call
    finish(turn, make_call().pk, ToolResult(ToolStatus.OK, "first"))
    call = make_call()
    with CaptureQueriesContext(connection) as queries:
        finish(turn, call.pk, ToolResult(ToolStatus.OK, "x"))
    statements = [query["sql"].split()[0] for query in queries if "SAVEPOINT" not in query["sql"]]
    # Without an entry: the update, the (empty) artifacts, and the query for who decided it, which the entry shares.
    assert statements == ["UPDATE", "SELECT", "INSERT"]


def test_what_a_model_called_that_there_is_not_is_recorded_as_it_was_called(turn: Turn, make_call: Any) -> None:
    call = make_call(server=None, server_slug="", tool="", arguments=None, arguments_text="{broken", verdict="deny")
    rounds.finish_call(turn, call.pk, ToolResult(ToolStatus.ERROR, "there is no such tool"))
    (entry,) = entries()
    assert (entry.tool, entry.server_id, entry.verdict) == ("files__read", None, "deny")
    assert entry.arguments_hash == audit.arguments_hash("{broken")


def test_contents_are_kept_where_the_organization_wants_that(
    turn: Turn, make_call: Any, organization: Organization
) -> None:
    organization.audit_bodies = True
    organization.save()
    rounds.finish_call(turn, make_call().pk, ToolResult(ToolStatus.OK, "the result"))
    assert entries()[0].body == {"arguments": {"path": "/a", "deep": [1]}, "result": "the result"}


def test_secrets_in_arguments_and_results_are_nowhere_in_an_entry(turn: Turn, make_call: Any) -> None:
    canary = "canary-7f3a"
    call = make_call(arguments={"token": canary, canary: 1}, arguments_text=canary, result_text=canary)
    rounds.finish_call(turn, call.pk, ToolResult(ToolStatus.OK, canary, ({"type": "text", "text": canary},)))
    assert canary not in json.dumps(list(AuditRecord.objects.as_system().values()), default=str)


@pytest.mark.parametrize("bodies", [False, True], ids=["without bodies", "with bodies"])
def test_a_result_is_not_read_back_to_be_recorded(turn: Turn, make_call: Any, bodies: bool) -> None:
    Organization.objects.filter(pk=turn.conversation.organization_id).update(audit_bodies=bodies)
    call = make_call()
    with CaptureQueriesContext(connection) as made:
        rounds.finish_call(turn, call.pk, ToolResult(ToolStatus.OK, "a\x00b"))
    assert not [query["sql"] for query in made if query["sql"].startswith("SELECT") and "result_text" in query["sql"]]
    (entry,) = entries()
    assert (entry.body or {}).get("result") == ("a\ufffdb" if bodies else None)


def test_the_entry_stays_when_the_chat_is_deleted(turn: Turn, make_call: Any) -> None:
    call = make_call()
    rounds.finish_call(turn, call.pk, ToolResult(ToolStatus.OK, "x"))
    turn.conversation.delete()
    assert [entry.call_id for entry in entries()] == [call.pk]


def test_nothing_is_recorded_of_a_call_that_there_is_not(db: None) -> None:
    assert auditing.record_end(UUID(int=0), "") is None
    auditing.record_ends([])
    assert not entries()


def test_a_call_that_is_denied_after_it_was_allowed_is_recorded_with_that_verdict(turn: Turn, make_call: Any) -> None:
    denied = ToolResult(ToolStatus.DENIED, "The call is denied.", refusal="the server was switched off")
    rounds.finish_call(turn, make_call().pk, denied)
    (entry,) = entries()
    assert (entry.verdict, entry.reason, entry.status) == ("deny", "the server was switched off", "denied")
