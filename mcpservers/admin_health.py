"""How a server fares in this process, for the admin: connections, recent troubles, who is left alone until when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from accounts.models import User
from mcpservers import connections
from mcpservers.admin_log import end_of_log
from mcpservers.connections import ConnectionInfo
from mcpservers.health import troubles
from mcpservers.models import MCPServer, Transport

TAIL = 4_000  # characters of a local process's log


@dataclass(frozen=True, slots=True)
class Pause:
    """A credential with which the server is left alone; `owner` is "" for the organization's own."""

    owner: str
    retry_at: datetime
    cause: str


@dataclass(frozen=True, slots=True)
class TroubleRow:
    at: datetime
    owner: str
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Health:
    """What this process knows of a server. `log` is the end of what a local process wrote, for who runs the machine."""

    live: tuple[tuple[ConnectionInfo, str], ...]  # with the owner's name
    pauses: tuple[Pause, ...]
    troubles: tuple[TroubleRow, ...]
    log: str


def health_of(server: MCPServer, *, with_log: bool) -> Health:
    """The health of `server`: one query, for names."""
    live = [info for info in connections.live_connections() if info.server_id == server.pk]
    refusals = connections.refusals(server.pk)
    noted = troubles.of(server.pk)
    names = _names([*(i.user_id for i in live), *(c.user_id for c, _ in refusals), *(t.user_id for t in noted)])
    return Health(
        live=tuple((info, names.get(info.user_id, "")) for info in live),
        pauses=tuple(Pause(names.get(c.user_id, ""), refusal.retry_at, refusal.cause) for c, refusal in refusals),
        troubles=tuple(TroubleRow(t.at, names.get(t.user_id, ""), t.kind, t.message) for t in noted),
        log=end_of_log(server)[-TAIL:] if with_log and server.transport == Transport.STDIO else "",
    )


def _names(user_ids: Sequence[UUID | None]) -> dict[UUID | None, str]:
    wanted = {user_id for user_id in user_ids if user_id is not None}
    return dict(User.objects.filter(pk__in=wanted).values_list("pk", "username")) if wanted else {}


def reconnect(server: MCPServer) -> None:
    """Forgive what it did and close its connections; the next use opens new ones. They are on their way on return."""
    connections.forgive(server.pk)
    for info in connections.live_connections():
        if info.server_id == server.pk:
            connections.close_connection(info.id)
