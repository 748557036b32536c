"""`Breaker`: a server that keeps failing is left alone for a while, for the one credential that it fails with.

Failures count and nothing else, so that a connection opened anew in every turn is never throttled. One breaker
serves one event loop; `refusal` and `reset` may be called from any thread.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from mcpservers.errors import ThrottledError

MAX_CIRCUITS = 10_000


@dataclass(frozen=True, slots=True)
class Circuit:
    """What fails together: a server of an organization, reached with one user's (or nobody's) credential.

    `credential` is a digest that changes with the definition and with the user's values, so that an edit of either
    is tried at once.
    """

    organization_id: UUID
    server_id: UUID
    user_id: UUID | None
    credential: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Until when the server is left alone, and what failed last, in words for a person."""

    retry_at: datetime
    cause: str

    @property
    def message(self) -> str:
        return f"{self.cause} It is not tried again before {self.retry_at:%H:%M:%S} UTC."


@dataclass(slots=True)
class _Record:
    failures: deque[float] = field(default_factory=deque)
    pause: float = 0.0  # the last one; doubled by a further failure
    until: float = -1e9
    cause: str = ""

    def count(self, now: float) -> None:
        limits = settings.MCP
        window, many = limits["BREAKER_WINDOW_SECONDS"], limits["BREAKER_FAILURES"]
        if now - self.until > window:
            self.pause = 0.0
        self.failures.append(now)
        while self.failures[0] < now - window or len(self.failures) > many:
            self.failures.popleft()
        if self.pause:
            self.pause = min(2 * self.pause, limits["BREAKER_MAX_PAUSE_SECONDS"])
        elif len(self.failures) >= many:
            self.pause = limits["BREAKER_PAUSE_SECONDS"]
        self.until = now + self.pause


class Breaker:
    """Three failures within two minutes make a pause of 30 s; each further one doubles it, up to 300 s (settings)."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._records: dict[Circuit, _Record] = {}

    def refusal(self, circuit: Circuit) -> Refusal | None:
        """Why the server is not to be tried now; None if it may be."""
        record = self._records.get(circuit)
        seconds = record.until - self._clock() if record is not None else 0.0
        if record is None or seconds <= 0:
            return None
        return Refusal(timezone.now() + timedelta(seconds=seconds), record.cause)

    def check(self, circuit: Circuit) -> None:
        """Raise `ThrottledError` while the server is left alone."""
        refusal = self.refusal(circuit)
        if refusal is not None:
            raise ThrottledError(refusal.message, retry_at=refusal.retry_at)

    def failed(self, circuit: Circuit, cause: str) -> None:
        """The server could not be connected to, or broke off before it answered anything."""
        now = self._clock()
        record = self._records.setdefault(circuit, _Record())
        record.cause = cause
        if now >= record.until:  # else it is of an attempt that began before the pause
            record.count(now)
        while len(self._records) > MAX_CIRCUITS:
            self._records.pop(next(iter(self._records)), None)

    def succeeded(self, circuit: Circuit) -> None:
        """The server answered: whatever it did before is forgiven."""
        self._records.pop(circuit, None)

    def reset(self, server_id: UUID, *, user_id: UUID | None = None) -> None:
        """Let the server be tried at once, by everybody or by one user."""
        for circuit in list(self._records):
            if circuit.server_id == server_id and user_id in (None, circuit.user_id):
                self._records.pop(circuit, None)

    def all_refusals(self) -> list[tuple[Circuit, Refusal]]:
        """Every circuit that is open now, for the admin."""
        found = ((circuit, self.refusal(circuit)) for circuit in list(self._records))
        return [(circuit, refusal) for circuit, refusal in found if refusal is not None]
