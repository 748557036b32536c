"""How a server fares in every process, for the admin: connections, recent troubles, who is left alone until when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from accounts.models import User
from mcpservers import peers
from mcpservers.admin_log import end_of_log
from mcpservers.connections import ConnectionInfo
from mcpservers.health import KEPT
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
    """What is known of a server. `log` is the end of what a local process wrote, for who runs the machine.

    `complete` is False where other processes could not be asked.
    """

    live: tuple[tuple[ConnectionInfo, str], ...]  # with the owner's name
    pauses: tuple[Pause, ...]
    troubles: tuple[TroubleRow, ...]
    log: str
    complete: bool = True


def health_of(server: MCPServer, *, with_log: bool) -> Health:
    """The health of `server`: one query, for names."""
    told = peers.everywhere()
    live = [info for info in told.connections if info.server_id == server.pk]
    pauses = [pause for pause in told.pauses if pause.server_id == server.pk]
    noted = [trouble for server_id, trouble in told.troubles if server_id == server.pk]
    noted = sorted(noted, key=lambda trouble: trouble.at, reverse=True)[:KEPT]
    names = _names([*(i.user_id for i in live), *(p.user_id for p in pauses), *(t.user_id for t in noted)])
    return Health(
        live=tuple((info, names.get(info.user_id, "")) for info in live),
        pauses=tuple(Pause(names.get(p.user_id, ""), p.retry_at, p.cause) for p in pauses),
        troubles=tuple(TroubleRow(t.at, names.get(t.user_id, ""), t.kind, t.message) for t in noted),
        log=end_of_log(server)[-TAIL:] if with_log and server.transport == Transport.STDIO else "",
        complete=told.complete,
    )


def _names(user_ids: Sequence[UUID | None]) -> dict[UUID | None, str]:
    wanted = {user_id for user_id in user_ids if user_id is not None}
    return dict(User.objects.filter(pk__in=wanted).values_list("pk", "username")) if wanted else {}
