"""Stopping a turn from any door: its mark, its task if it runs here, its end where nobody else ends it."""

from __future__ import annotations

from uuid import UUID

from accounts.doors import Door
from chatui.rows import in_rows
from conversations import hints, processes, supervisor, turns, wire


async def stop(door: Door, turn_id: UUID) -> None:
    """Stop a turn of the door's actor; what was produced is kept, and an ended turn stays as it is.

    Raises what `turns.request_stop` raises.
    """
    stop = await in_rows(door.run, turns.request_stop, turn_id)
    if supervisor.current().stop(turn_id):
        return
    if stop.ended is None:
        await processes.look_at(turn_id)
        return
    frame = wire.TurnFinished(outcome=stop.ended.outcome, message=stop.ended.message, error=stop.ended.error)
    supervisor.announce_end(turn_id, frame)
    changed = hints.turn_changed(turn_id, stop.conversation.pk, stop.ended.outcome)
    await hints.tell_owner(stop.conversation, changed)
    await hints.tell_settled(stop.ended.settled)
