"""Django's registration of this app."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from django.apps import AppConfig


class AgentsConfig(AppConfig):
    name = "agents"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from accounts import budget_subjects

        budget_subjects.known["agent"] = _names


def _names(organization_id: UUID) -> Iterable[tuple[UUID, str]]:
    """The agents that a budget can name."""
    from agents.models import Agent

    return Agent.objects.as_system().filter(organization=organization_id).values_list("pk", "slug")
