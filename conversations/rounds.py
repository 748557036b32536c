"""The rows of a round: tool calls from the moment the round is complete, their questions, results and artifacts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.files.base import ContentFile
from django.utils import timezone

from agents.parts import Decision, PersonNeeded, PreparedCall, ToolResult
from chatui.rows import writing
from chatui.text import clean, clean_json
from conversations import auditing, settling
from conversations.frame_bounds import shortened_content
from conversations.models import Attachment, Message, Question, ToolCall, Turn
from conversations.representations import attachment_json
from conversations.settling import Settled
from conversations.transitions import Progress
from mcpservers.models import MCPServer


@dataclass(frozen=True, slots=True)
class StoredQuestion:
    """A question that was made for a call, for its card."""

    id: UUID
    expires_at: str
    kind: str = "approval"
    approvers: tuple[UUID, ...] = ()  # who may answer besides whose call it is
    names: tuple[str, ...] = ()  # of all who may, where a rule names them
    by_owner: bool = True


def store_round(
    turn: Turn,
    round: int,
    calls: Sequence[tuple[UUID, PreparedCall]],
    progress: Progress,
    offered: Mapping[str, Sequence[str]] | None = None,
) -> dict[UUID, StoredQuestion]:
    """Store a whole round, one transaction: calls as rows, questions for those that ask, and the checkpoint.

    `offered` (exposed name → [server id, tool]), where given, is stored with the turn.
    Calls that run at once are stored as running: if the process dies now, it is not known whether they took effect.
    """
    now = timezone.now()
    at_once = settings.TURN["MAX_PARALLEL_CALLS"]
    rows = []
    gone = _gone(calls)
    asking: dict[UUID, tuple[Question, PreparedCall]] = {}
    for position, (call_id, call) in enumerate(calls):
        status = ToolCall.Status.PENDING
        if call.result is None and call.decision is Decision.ASK:
            status = ToolCall.Status.WAITING
        elif call.result is None and call.decision is Decision.ALLOW and at_once > 0:
            status, at_once = ToolCall.Status.RUNNING, at_once - 1
        row = ToolCall(
            pk=call_id,
            turn=turn,
            message_id=turn.message_id,
            round=round,
            position=position,
            provider_id=call.request.id[:200],
            name=clean(call.request.name)[:200],
            server_id=None if call.server_id in gone else call.server_id,
            server_slug=call.server,
            server_title=call.server_title[:120],
            tool=call.tool[:200],
            title=call.title[:200],
            arguments_text=clean(call.request.arguments),
            arguments=clean_json(call.arguments) if call.arguments is not None else None,
            extra=clean_json(call.request.extra),
            status=status,
            verdict=call.decision.value,
            reason=call.reason,
            started_at=now if status is ToolCall.Status.RUNNING else None,
        )
        rows.append(row)
        if status is ToolCall.Status.WAITING:
            asking[call_id] = (_question(turn, row, call, None), call)
    questions = [question for question, _ in asking.values()]
    with writing():
        ToolCall.objects.bulk_create(rows)
        Question.objects.as_system().bulk_create(questions)
        stored = {call_id: _named(question, call) for call_id, (question, call) in asking.items()}
        Turn.objects.filter(pk=turn.pk, status=Turn.Status.RUNNING).update(
            rounds=round,
            calls_made=turn.calls_made + len(rows),
            last_seq=progress.seq,
            usage=dict(progress.usage),
            running_seconds=progress.running_seconds,
            **({} if offered is None else {"offered": dict(offered)}),
        )
        Message.objects.filter(pk=turn.message_id).update(parts=list(progress.parts), seq=progress.seq)
    turn.calls_made += len(rows)
    return stored


def _gone(calls: Sequence[tuple[UUID, PreparedCall]]) -> set[UUID]:
    """The servers of calls that are refused which were deleted meanwhile, perhaps therefore. One query, or none."""
    refused = {call.server_id for _, call in calls if call.result is not None and call.server_id is not None}
    if not refused:
        return set()
    return refused - set(MCPServer.objects.as_system().filter(pk__in=refused).values_list("pk", flat=True))


def _named(question: Question, call: PreparedCall) -> StoredQuestion:
    """The question, just stored, with the people whom a rule names as those who may answer it."""
    others = tuple((call.approvers or {}).keys() - {question.asked_of_id})
    if others:
        through = Question.approvers.through
        through.objects.bulk_create([through(question_id=question.pk, user_id=user_id) for user_id in others])
    return StoredQuestion(
        question.pk,
        question.expires_at.isoformat(),
        question.kind,
        others,
        tuple(question.details.get("approvers", ())),
        question.by_owner,
    )


def _question(
    turn: Turn, row: ToolCall, call: PreparedCall, needed: PersonNeeded | None, seconds: float | None = None
) -> Question:
    owner_id = turn.conversation.owner_id
    kept: Any
    by_owner = needed is not None or call.approvers is None or owner_id in call.approvers
    if needed is not None:
        kept, details = dict(needed.kept), dict(needed.card)
    else:
        kept = {"schema": call.input_schema} if call.can_edit else None
        details = _card(call) | {"can_decide": by_owner}
    return Question(
        organization_id=turn.conversation.organization_id,
        turn=turn,
        call=row,
        kind=Question.Kind.APPROVAL if needed is None else Question.Kind(needed.kind),
        asked_of_id=owner_id,
        by_owner=by_owner,
        definition=call.definition,
        arguments=call.seal.arguments,
        details=clean_json(details),
        kept=kept,
        expires_at=timezone.now() + timedelta(seconds=seconds or settings.TURN["QUESTION_SECONDS"]),
    )


def _card(call: PreparedCall) -> dict[str, Any]:
    """What people are shown of an approval besides the call itself; `approvers` where not whose call it is decides."""
    return {
        "reason": call.reason,
        "claims": dict(call.claims),
        "account": call.account,
        "can_edit": call.can_edit,
        "can_remember": call.can_remember,
        "approvers": sorted((call.approvers or {}).values()),
    }


def ask(
    turn: Turn, call_id: UUID, call: PreparedCall, needed: PersonNeeded | None = None, *, live: bool = False
) -> StoredQuestion:
    """The open question of a stored call, made now if it has none (a pending call that must be asked after all).

    `live`: the call goes on running while it is asked, and asks for `LIVE_QUESTION_SECONDS` at most.
    """
    kind = Question.Kind.APPROVAL if needed is None else Question.Kind(needed.kind)
    with writing():
        row = ToolCall.objects.select_for_update().get(pk=call_id)
        question = row.questions.filter(state=Question.State.OPEN, kind=kind).first()
        if question is None:
            seconds = settings.TURN["LIVE_QUESTION_SECONDS"] if live else None
            question = _question(turn, row, call, needed, seconds)
            question.save()
            stored = _named(question, call)
        else:
            stored = StoredQuestion(question.pk, question.expires_at.isoformat(), question.kind)
        if not live:
            row.status = ToolCall.Status.WAITING
            row.reason = call.reason if needed is None else row.reason
            row.save(update_fields=["status", "reason"])
    return stored


def start_call(call_id: UUID, arguments: dict[str, Any] | None) -> None:
    """PENDING or WAITING → RUNNING, before the request leaves."""
    fields: dict[str, Any] = {"status": ToolCall.Status.RUNNING, "started_at": timezone.now()}
    if arguments is not None:
        fields["arguments"] = clean_json(arguments)
    ToolCall.objects.filter(pk=call_id, status__in=(ToolCall.Status.PENDING, ToolCall.Status.WAITING)).update(**fields)


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A result as people are shown it: `content` shortened, `artifacts` as attachments."""

    content: list[Any]
    artifacts: list[dict[str, Any]]
    decided_by: auditing.Decider | None
    settled: tuple[Settled, ...] = ()  # a question of it that was open still


def finish_call(turn: Turn, call_id: UUID, result: ToolResult, *, asked: bool = False) -> StoredResult:
    """Store how a call ended, its artifacts as files; a call that has ended already stays as it is.

    `asked`: people were asked about it; what they have not answered, they cannot any more.
    """
    attachments = [
        Attachment(
            organization_id=turn.conversation.organization_id,
            owner_id=turn.conversation.owner_id,
            conversation=turn.conversation,
            call_id=call_id,
            name=clean(artifact.name)[:150] or "file",
            content_type=artifact.media_type[:100],
            size=len(artifact.data),
        )
        for artifact in result.artifacts
    ]
    # Files first: a row never names a file that is not there.
    for attachment, artifact in zip(attachments, result.artifacts, strict=True):
        attachment.file.save(str(attachment.pk), ContentFile(artifact.data), save=False)
    content = [_content_part(clean_json(dict(part)), attachments) for part in result.content]
    text = clean(result.text)
    settled: tuple[Settled, ...] = ()
    with writing():
        if asked:
            settled = settling.close(Question.objects.as_system().filter(call=call_id), Question.State.VOID)
        updated = ToolCall.objects.filter(pk=call_id, status__in=ToolCall.OPEN).update(
            status=ToolCall.Status(result.status.value),
            result_text=text,
            result_content=content,
            duration_ms=result.duration_ms,
            account_id=result.account_id,
            **({"verdict": Decision.DENY.value, "reason": clean(result.refusal)} if result.refusal else {}),
        )
        decided_by = auditing.record_end(call_id, text) if updated else None
        if updated:
            Attachment.objects.as_system().bulk_create(attachments)
    if not updated:
        for attachment in attachments:
            attachment.file.delete(save=False)
        attachments, content = [], []
    return StoredResult(
        shortened_content(content, call_id),
        [attachment_json(attachment) for attachment in attachments],
        decided_by,
        settled,
    )


def _content_part(part: dict[str, Any], attachments: Sequence[Attachment]) -> dict[str, Any]:
    if part.get("type") == "artifact" and "index" in part:
        attachment = attachments[part["index"]]
        return {"type": "artifact", "id": str(attachment.pk), "name": attachment.name}
    return part
