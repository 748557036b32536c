"""Which model writes an answer: the agent's, or another of those that it may be asked for instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db.models import Prefetch, prefetch_related_objects

from agents.models import Agent, ModelProfile
from chatui.errors import NotFoundError
from conversations.chosen_accounts import NotOfferedError


def name_of(profile: ModelProfile) -> str:
    """`endpoint/model`, as a client asks for it. Needs the endpoint loaded."""
    return f"{profile.endpoint.slug}/{profile.slug}"


def with_other_models(agents: Sequence[Agent]) -> Sequence[Agent]:
    """The same, with what `other_models` needs of all of them. One query, or two."""
    usable = ModelProfile.objects.as_system().select_related("endpoint").filter(endpoint__enabled=True)
    prefetch_related_objects(agents, Prefetch("other_models", usable))
    return agents


def other_models(agent: Agent) -> list[ModelProfile]:
    """Those besides the agent's own whose endpoints are switched on, of `with_other_models`."""
    return [row for row in agent.other_models.all() if row.pk != agent.model_id]


def choose(agent: Agent, wanted: str | None, before: UUID | None = None) -> ModelProfile:
    """The model that `wanted` names: as `endpoint/model`, by its slug, or as its endpoint calls it.

    Without one it is that of `before`, the model of the answer that is continued, else the agent's own. No query for
    the agent's own. Raises `NotOfferedError`.
    """
    if (not wanted and before is None) or wanted in _names(agent.model):
        return agent.model
    for profile in other_models(*with_other_models([agent])):
        if wanted in _names(profile) if wanted else profile.pk == before:
            return profile
    if not wanted:
        return agent.model
    raise NotOfferedError(public_message=f"This agent does not offer the model “{wanted[:80]}”.")


def option_of(agent: Agent, profile: ModelProfile) -> dict[str, str]:
    """What a turn's options remember of the choice: nothing of the agent's own model."""
    return {} if profile.pk == agent.model_id else {"model": str(profile.pk)}


def chosen(agent: Agent, options: Mapping[str, Any]) -> ModelProfile:
    """The model of a turn with these options, from fresh rows. Raises `NotFoundError` if it is not offered any more."""
    if (id := options.get("model")) is None or id == str(agent.model_id):  # or it became the agent's own meanwhile
        return agent.model
    others = other_models(*with_other_models([agent]))
    found = next((profile for profile in others if str(profile.pk) == id), None)
    if found is None:
        raise NotFoundError(public_message="The model that was chosen for this answer is not offered any more.")
    return found


def _names(profile: ModelProfile) -> tuple[str, str, str]:
    return name_of(profile), profile.slug, profile.name
