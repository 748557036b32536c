"""Beginning a turn from any door: its rows, its task in this process, and word to the owner's other sockets."""

from __future__ import annotations

from dataclasses import replace

from accounts.actors import Actor
from accounts.doors import Door
from chatui.rows import in_rows
from conversations import commands, hints, supervisor, turns
from conversations.models import Conversation, Turn
from conversations.turns import Begun, NewTurn


async def begin(door: Door, new: NewTurn, *, present: bool = True) -> Begun:
    """Begin `new` for the door's actor and start its task; a repeated `request_id` only tells what it began.

    With `present` False nobody can be asked, whatever the door says. Raises `DrainingError` and what
    `turns.begin_turn` raises. Hidden conversations are announced to nobody.
    """
    supervisor.current().require_open()
    begun = await in_rows(door.run, turns.begin_turn if present else _begin_unattended, new)
    if begun.repeated:
        return begun
    supervisor.current().start(begun.turn_id, started=commands.started_frame(begun))
    conversation = begun.conversation
    if conversation.kind != Conversation.Kind.API:
        await hints.tell_user(conversation.owner_id, commands.conversation_updated(conversation))
        changed = hints.turn_changed(begun.turn_id, conversation.pk, Turn.Status.RUNNING)
        await hints.tell_user(conversation.owner_id, changed)
    return begun


def _begin_unattended(actor: Actor, new: NewTurn) -> Begun:
    return turns.begin_turn(replace(actor, present=False), new)
