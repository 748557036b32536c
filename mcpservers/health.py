"""What went wrong with each server of late in this process: a short memory for the admin, without any secret."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING
from uuid import UUID

from django.utils import timezone

from chatui.text import shorten
from mcpservers.visible import visible

if TYPE_CHECKING:
    from mcpservers.transports import ConnectionTarget

KEPT = 20  # troubles of a server
SERVERS = 1_000
LENGTH = 1_000  # characters


@dataclass(frozen=True, slots=True)
class Trouble:
    """One failure: `kind` is the error's code, `user_id` whose connection it was (None: the organization's)."""

    at: datetime
    kind: str
    message: str
    user_id: UUID | None


class Troubles:
    """The newest troubles by server; may be written and read from any thread."""

    def __init__(self) -> None:
        self._by_server: OrderedDict[UUID, deque[Trouble]] = OrderedDict()
        self._lock = Lock()

    def note(self, target: ConnectionTarget, kind: str, message: str) -> None:
        """Remember one, with the target's secrets masked."""
        trouble = Trouble(timezone.now(), kind, shorten(target.redact(visible(message)), LENGTH), target.user_id)
        with self._lock:
            self._by_server.setdefault(target.server_id, deque(maxlen=KEPT)).append(trouble)
            self._by_server.move_to_end(target.server_id)
            while len(self._by_server) > SERVERS:
                self._by_server.popitem(last=False)

    def of(self, server_id: UUID) -> list[Trouble]:
        """The newest first."""
        with self._lock:
            return list(reversed(self._by_server.get(server_id, ())))

    def all(self) -> list[tuple[UUID, Trouble]]:
        """Of every server, its oldest first."""
        with self._lock:
            return [(server_id, trouble) for server_id, kept in self._by_server.items() for trouble in kept]

    def forget(self, server_id: UUID) -> None:
        with self._lock:
            self._by_server.pop(server_id, None)


troubles = Troubles()
