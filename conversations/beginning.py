"""Beginning a turn from any door: its rows, its task in this process, and word to the owner's other sockets."""

from __future__ import annotations

import logging
from dataclasses import replace

from accounts.actors import Actor
from accounts.doors import Door
from chatui.rows import in_rows
from conversations import commands, hints, plans, supervisor, turns
from conversations.models import Conversation, Turn
from conversations.plans import TurnPlan
from conversations.turns import Begun, NewTurn

logger = logging.getLogger(__name__)


async def begin(door: Door, new: NewTurn, *, present: bool = True) -> Begun:
    """Begin `new` for the door's actor and start its task; a repeated `request_id` only tells what it began.

    With `present` False nobody can be asked, whatever the door says. Raises `DrainingError` and what
    `turns.begin_turn` raises. Hidden conversations are announced to nobody.
    """
    house = supervisor.current()
    house.require_open()
    begun, plan = await in_rows(door.run, _begun, replace(new, process=house.process), present)
    if begun.repeated:
        return begun
    house.start(begun.turn_id, started=commands.started_frame(begun), plan=plan)
    conversation = begun.conversation
    if conversation.kind != Conversation.Kind.API:
        await hints.tell_owner(conversation, commands.conversation_updated(conversation))
        changed = hints.turn_changed(begun.turn_id, conversation.pk, Turn.Status.RUNNING)
        await hints.tell_owner(conversation, changed)
    return begun


def _begun(actor: Actor, new: NewTurn, present: bool) -> tuple[Begun, TurnPlan | None]:
    """The turn, and its plan while its rows are at hand."""
    begun = turns.begin_turn(actor if present else replace(actor, present=False), new)
    plan = None
    if begun.turn is not None:
        try:
            plan = plans.of_new(begun.turn, actor)
        except Exception:  # the boundary: the turn has begun, and its task must run to say what is wrong
            logger.exception("Turn %s could not be planned yet", begun.turn_id)
    return begun, plan
