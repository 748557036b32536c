"""`Stopwatch`: how long a turn has been running, without the time that it only waited for a person. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable


class Stopwatch:
    """Runs from the beginning, `before` seconds on it. Pauses nest: it goes on when the last one ends."""

    def __init__(self, before: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._before, self._began, self._pauses = clock, before, clock(), 0

    def pause(self) -> None:
        if not self._pauses:
            self._before = self.seconds()
        self._pauses += 1

    def resume(self) -> None:
        """End one pause. Without one nothing happens."""
        if self._pauses == 1:
            self._began = self._clock()
        self._pauses = max(0, self._pauses - 1)

    def seconds(self) -> float:
        return self._before if self._pauses else self._before + self._clock() - self._began
