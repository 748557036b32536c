"""The transitions of a turn while it runs, waits and ends; each is guarded by the status that it leaves."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import F, Q
from django.utils import timezone

from chatui.prepared import PreparedQuery
from chatui.rows import writing
from conversations import auditing, settling, usage
from conversations.models import Conversation, Message, Question, ToolCall, Turn
from conversations.representations import answer_json, has_calls
from conversations.settling import Settled

Part = dict[str, Any]
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Progress:
    """What a checkpoint stores: the parts so far and the number of the last frame that they include."""

    parts: Sequence[Part]
    seq: int
    usage: Mapping[str, Any]
    running_seconds: float
    model: str = ""


def claim(turn_id: UUID, process: str) -> bool:
    """Make `process` the owner of a running turn; False if it is not running (any more)."""
    return bool(
        Turn.objects.filter(pk=turn_id, status=Turn.Status.RUNNING).update(process=process, heartbeat_at=timezone.now())
    )


def checkpoint(process: str, progress: Mapping[UUID, Progress]) -> set[UUID]:
    """Store what turns have shown so far; those that were this process's to write. Their number costs little.

    Plain SQL, since writing these statements would take Django longer than all the rest.
    """
    turns, messages = Turn._meta, Message._meta
    quote = connection.ops.quote_name
    owned = f"{quote('id')} = %s AND {quote('status')} = %s AND {quote('process')} = %s"
    update_turn = (
        f"UPDATE {quote(turns.db_table)} SET last_seq = %s, {quote('usage')} = %s, running_seconds = %s WHERE {owned}"
    )
    message = f"SELECT message_id FROM {quote(turns.db_table)} WHERE {quote('id')} = %s"
    update_message = (
        f"UPDATE {quote(messages.db_table)} SET {quote('parts')} = %s, seq = %s,"
        f" {quote('model')} = COALESCE(NULLIF(%s, ''), {quote('model')}) WHERE {quote('id')} = ({message})"
    )
    stored = set()
    with writing(), connection.cursor() as cursor:
        for turn_id, shown in progress.items():
            id = turns.pk.get_db_prep_value(turn_id, connection)
            usage = turns.get_field("usage").get_db_prep_save(dict(shown.usage), connection)
            status = str(Turn.Status.RUNNING)
            cursor.execute(update_turn, [shown.seq, usage, shown.running_seconds, id, status, process])
            if cursor.rowcount:
                stored.add(turn_id)
                parts = messages.get_field("parts").get_db_prep_save(list(shown.parts), connection)
                cursor.execute(update_message, [parts, shown.seq, shown.model[:200], id])
    return stored


def _store_message(turn_id: UUID, progress: Progress, **more: Any) -> None:
    fields: dict[str, Any] = {"parts": list(progress.parts), "seq": progress.seq, **more}
    if progress.model:
        fields["model"] = progress.model[:200]
    Message.objects.filter(turns=turn_id).update(**fields)


def park(turn_id: UUID, process: str, progress: Progress) -> list[UUID] | None:
    """RUNNING → WAITING; the calls whose questions are open.

    None when an answer came meanwhile or nothing is asked any more (go on instead), when it is to be stopped, or when
    it is not ours any more.
    """
    with writing():
        turn = Turn.objects.select_for_update().filter(pk=turn_id, status=Turn.Status.RUNNING, process=process).first()
        if turn is None or turn.stop_requested_at is not None:
            return None
        calls = ToolCall.objects.filter(turn=turn, status__in=(ToolCall.Status.PENDING, ToolCall.Status.WAITING))
        open_calls = list(calls.order_by("round", "position").values_list("pk", "status"))
        if not open_calls or any(status == ToolCall.Status.PENDING for _, status in open_calls):
            return None
        turn.status, turn.process, turn.last_seq = Turn.Status.WAITING, "", progress.seq
        turn.usage, turn.running_seconds = dict(progress.usage), progress.running_seconds
        turn.save(update_fields=["status", "process", "last_seq", "usage", "running_seconds"])
        _store_message(turn_id, progress, status=Message.Status.WAITING)
        return [call_id for call_id, _ in open_calls]


def last_seq(turn_id: UUID) -> int:
    """The number of the last frame that the database knows of."""
    return Turn.objects.filter(pk=turn_id).values_list("last_seq", flat=True).first() or 0


def stop_was_requested(turn_id: UUID) -> bool:
    return Turn.objects.filter(pk=turn_id, stop_requested_at__isnull=False).exists()


def resume(turn_id: UUID) -> bool:
    """WAITING → RUNNING; whoever gets True starts the task."""
    updated = Turn.objects.filter(pk=turn_id, status=Turn.Status.WAITING).update(
        status=Turn.Status.RUNNING, heartbeat_at=timezone.now()
    )
    if updated:
        Message.objects.filter(turns=turn_id).update(status=Message.Status.RUNNING)
    return bool(updated)


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a turn, for the frame that announces it."""

    outcome: str
    message: dict[str, Any]
    error: dict[str, Any] | None
    settled: tuple[Settled, ...] = ()  # its questions that were open


_open_calls = PreparedQuery(
    lambda turn: ToolCall.objects.filter(turn=turn, status__in=ToolCall.OPEN).values_list("pk"), UUID
)
_open_questions = PreparedQuery(
    lambda turn: Question.objects.as_system().filter(turn=turn, state=Question.State.OPEN).values_list("pk"), UUID
)


def end(
    turn_id: UUID,
    outcome: Message.Status,
    progress: Progress | None,
    *,
    error: Mapping[str, Any] | None = None,
    leaving: Message.Status = Message.Status.RUNNING,
    process: str | None = None,
    turn: Turn | None = None,
) -> Ended | None:
    """Leave `leaving` for `outcome`, once: None if another hand was first. Open calls and questions are closed.

    Without `progress` (a stopper, the reaper) what was checkpointed stays, and what it cost is counted. `turn` is the
    row with its message, where the caller has loaded it and nobody else writes the message.
    """
    with writing():
        owned = Q(pk=turn_id, status=leaving) & (Q(process=process) if process is not None else Q())
        fields: dict[str, Any] = {"status": outcome, "ended_at": timezone.now()}
        if progress is not None:
            fields |= {
                "last_seq": progress.seq,
                "usage": dict(progress.usage),
                "running_seconds": progress.running_seconds,
            }
        else:
            fields["last_seq"] = F("last_seq") + 1
        if not Turn.objects.filter(owned).update(**fields):
            return None
        if turn is None:
            turn = Turn.objects.select_related("message", "conversation").get(pk=turn_id)
        message = turn.message
        settled: tuple[Settled, ...] = ()
        message.status, message.error = outcome, dict(error) if error else None
        used = dict(turn.usage if progress is None else progress.usage)
        if used or progress is not None:
            message.usage = used or None
        if progress is not None:
            message.parts, message.seq = list(progress.parts), progress.seq
            message.model = progress.model[:200] or message.model
        if progress is None or (has_calls(message) and (_open_calls(turn_id) or _open_questions(turn_id))):
            settled = _close_calls(turn_id, outcome)
        if used:
            usage.record(turn, used)
        message.search_text = "\n".join(
            part["text"] for part in message.parts if part["type"] == "text" and part.get("kind") != "trailing"
        )
        message.save(update_fields=["status", "error", "parts", "seq", "usage", "model", "search_text"])
        Conversation.objects.as_system().filter(pk=message.conversation_id).update(active_at=timezone.now())
        return Ended(outcome.value, answer_json(turn), dict(error) if error else None, settled)


def _close_calls(turn_id: UUID, outcome: Message.Status) -> tuple[Settled, ...]:
    calls = ToolCall.objects.select_for_update(of=("self",)).filter(turn=turn_id, status__in=ToolCall.OPEN)
    status, began, waited = _CLOSED[outcome is Message.Status.STOPPED]
    closed = dict(calls.values_list("pk", "status"))
    for running, text in ((True, began), (False, waited)):
        ids = [id for id, before in closed.items() if (before == ToolCall.Status.RUNNING) is running]
        if ids:
            ToolCall.objects.filter(pk__in=ids).update(status=status, result_text=text)
    auditing.record_ends(closed)
    return settling.close(Question.objects.as_system().filter(turn=turn_id), Question.State.VOID)


# Whether the turn was stopped: what its open calls become, and what is told of one that ran and of one that did not.
_CLOSED = {
    True: (
        ToolCall.Status.CANCELLED,
        "Cancelled by the user. It may have taken effect.",
        "Cancelled by the user before it ran.",
    ),
    False: (ToolCall.Status.INTERRUPTED, "Interrupted: it may have taken effect.", "Interrupted before it ran."),
}


# --- Heartbeat and reaper -----------------------------------------------------------------------------------------


def stale_before() -> datetime:
    """Heartbeats older than this are of dead processes."""
    return timezone.now() - timedelta(seconds=settings.TURN["STALE_SECONDS"])


def heartbeat(process: str, turn_ids: Iterable[UUID]) -> set[UUID]:
    """Say that this process still runs these turns; returns those that were asked to stop."""
    ids = list(turn_ids)
    if not ids:
        return set()
    mine = Turn.objects.filter(pk__in=ids, process=process, status=Turn.Status.RUNNING)
    mine.update(heartbeat_at=timezone.now())
    return set(mine.filter(stop_requested_at__isnull=False).values_list("pk", flat=True))


def reap(*, everything: bool = False, keep: Iterable[UUID] = ()) -> list[tuple[UUID, Conversation, Ended]]:
    """End RUNNING turns whose owner is gone; what was checkpointed stays and *Continue* is offered.

    `everything` is for the start of the only process there is. Returns (turn, conversation, end) of each.
    """
    running = Turn.objects.filter(status=Turn.Status.RUNNING).exclude(pk__in=list(keep))
    if not everything:
        running = running.filter(heartbeat_at__lt=stale_before())
    reaped = []
    for turn in running.select_related("conversation"):
        outcome = Message.Status.STOPPED if turn.stop_requested_at else Message.Status.INTERRUPTED
        error = {"code": "interrupted", "message": "The server was restarted while this answer was being written."}
        try:
            ended = end(turn.pk, outcome, None, error=None if turn.stop_requested_at else error)
        except Exception:  # whatever is wrong with one turn must not keep the others from their end
            logger.exception("Turn %s of a dead process could not be ended", turn.pk)
            continue
        if ended is not None:
            reaped.append((turn.pk, turn.conversation, ended))
    return reaped
