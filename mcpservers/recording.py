"""What connections teach us of a server, kept with its row."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from chatui.text import clean, clean_json
from mcpservers.models import MCPServer
from mcpservers.scope import Scope
from mcpservers.transports import ConnectionTarget


def record_connect(target: ConnectionTarget, era: dict[str, Any] | None, error: str) -> None:
    """Store what a connect taught us. One user's failure is not the server's, so it is not written there."""
    row = MCPServer.objects.as_system().filter(pk=target.server_id)
    if era is not None:
        row.update(era=clean_json(era), last_error="", last_connected_at=timezone.now())
    elif target.scope is Scope.APP:
        row.update(last_error=clean(error)[:2000])


def record_asking(target: ConnectionTarget) -> None:
    """Remember that a session of the server has asked a person: its calls go one at a time, until it is elsewhere."""
    rows = MCPServer.objects.as_system().filter(pk=target.server_id)
    server = rows.first()
    if server is not None and server.definition_hash() == target.definition_hash:
        rows.filter(revision=server.revision).update(asked_at=server.place())
