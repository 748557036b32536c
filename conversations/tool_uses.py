"""How often the tools of an agent were called of late: what is used is offered first."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django.core.cache import cache
from django.db.models import Count
from django.utils import timezone

from conversations.models import ToolCall

DAYS = 30
REMEMBER_SECONDS = 600


def tool_uses(agent_id: UUID) -> dict[str, int]:
    """Exposed name → calls that were run in the last 30 days, by anybody; counted anew every ten minutes."""
    key = f"tool-uses:{agent_id}"
    uses: dict[str, int] | None = cache.get(key)
    if uses is None:
        calls = ToolCall.objects.filter(turn__agent_id=agent_id, created_at__gte=timezone.now() - timedelta(days=DAYS))
        calls = calls.exclude(server=None).order_by()
        uses = dict(calls.values("name").annotate(calls=Count("pk")).values_list("name", "calls"))
        cache.set(key, uses, REMEMBER_SECONDS)
    return uses
