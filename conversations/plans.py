"""What a turn's task needs to know before it starts, loaded in one unit of row work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.db import connection

from accounts.actors import Actor, find_actor
from agents.models import Agent
from agents.providers.settings import ModelSettings, settings_of
from chatui.errors import NotFoundError
from conversations.attached import attached_files
from conversations.chosen_model import chosen
from conversations.history import AttachedFile
from conversations.models import Message, ToolCall, Turn
from conversations.representations import calls_for
from conversations.turns import usable_agent

PATH_LIMIT = 400  # messages from the leaf upwards; older ones would not fit any context


@dataclass(frozen=True, slots=True)
class TurnPlan:
    """A running turn with everything that was loaded for it. `path` ends with the answer that is being written."""

    turn: Turn
    actor: Actor
    agent: Agent
    model: ModelSettings
    path: Sequence[Message]
    calls: Mapping[UUID, Sequence[ToolCall]]
    attachments: Mapping[str, AttachedFile]


def of_new(turn: Turn, actor: Actor) -> TurnPlan | None:
    """The plan of a turn that `actor` has begun in this very unit of work, from the rows that it holds already.

    None where more is needed than messages, or something is wrong: the turn's task then loads it, and says so.
    """
    agent = turn.agent
    if agent is None or turn.kind == Turn.Kind.CONTINUE or "model" in turn.options:
        return None
    if not agent.model.endpoint.enabled:
        return None
    first = turn.user_message.parent_id is None
    path = [turn.user_message, turn.message] if first else path_to(turn.message_id)
    if any(part["type"] == "attachment" for message in path for part in message.parts):
        return None
    return TurnPlan(
        turn=turn,
        actor=replace(actor, present=turn.present, scopes=None),
        agent=agent,
        model=_with_parameters(settings_of(agent.model, agent), turn.options.get("parameters") or {}),
        path=path,
        calls=calls_for(path),
        attachments={},
    )


def load(turn_id: UUID) -> TurnPlan:
    """The plan of a turn, from fresh rows; a constant number of queries. Raises `NotFoundError` in plain words."""
    turn = (
        Turn.objects.select_related("conversation", "message", "user_message", "agent__model__endpoint")
        .filter(pk=turn_id)
        .first()
    )
    if turn is None:
        raise NotFoundError
    actor = find_actor(turn.started_by_id, turn.conversation.organization_id)
    if actor is None:
        raise NotFoundError(public_message="You are no longer a member of this organization.")
    agent = turn.agent
    if agent is None:
        raise NotFoundError(public_message="The agent of this conversation no longer exists. Start a new chat.")
    usable_agent(actor, agent)
    profile = chosen(agent, turn.options)
    if not profile.endpoint.enabled:
        raise NotFoundError(public_message="The model endpoint of this agent is switched off.")
    path = path_to(turn.message_id)
    assistants = [message for message in path if message.role == Message.Role.ASSISTANT]
    calls = calls_for(assistants)
    return TurnPlan(
        turn=turn,
        actor=replace(actor, present=turn.present, key_id=UUID(key) if (key := turn.options.get("key")) else None),
        agent=agent,
        model=_with_parameters(settings_of(profile, agent), turn.options.get("parameters") or {}),
        path=path,
        calls=calls,
        attachments=attached_files(path, calls),
    )


def _with_parameters(model: ModelSettings, parameters: Mapping[str, Any]) -> ModelSettings:
    """`model` with what an OpenAI-compatible request asked for; only what it may ask for arrives here."""
    return replace(model, **parameters) if parameters else model


def path_to(leaf: UUID) -> list[Message]:
    """The messages from the root (or the oldest within `PATH_LIMIT`) to `leaf`, in one query."""
    table = connection.ops.quote_name(Message._meta.db_table)
    ids = f"""
        WITH RECURSIVE path(id, parent_id, depth) AS (
            SELECT id, parent_id, 1 FROM {table} WHERE id = %s
            UNION ALL
            SELECT m.id, m.parent_id, path.depth + 1 FROM {table} m JOIN path ON m.id = path.parent_id
            WHERE path.depth < %s
        )
        SELECT m.*, path.depth AS depth FROM {table} m JOIN path ON path.id = m.id ORDER BY path.depth DESC
    """
    key = Message._meta.pk.get_db_prep_value(leaf, connection)
    return list(Message.objects.raw(ids, [key, PATH_LIMIT]))
