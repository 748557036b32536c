"""How much one turn may do, what it has done, and which of its limits it has reached (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

CallKey = tuple[str, str]  # the tool's exposed name, its arguments as canonical JSON


@dataclass(frozen=True, slots=True)
class Limits:
    """What one turn may do. Seconds are those in which the turn runs; waiting for a person does not count."""

    max_rounds: int = 10
    max_calls: int = 128
    max_seconds: float = 1800
    max_parallel_calls: int = 8
    max_repeated_failures: int = 3


@dataclass(frozen=True, slots=True)
class Spent:
    """What a turn has done so far: `rounds` are completions with tool calls, `calls` are all calls in them."""

    rounds: int = 0
    calls: int = 0
    seconds: float = 0


NOTHING_SPENT = Spent()
DEFAULT_LIMITS = Limits()


class LimitReached(StrEnum):
    """Which limit ended a turn as EXHAUSTED; the code of its `LoopEnded`."""

    ROUNDS = "max_rounds"
    CALLS = "max_calls"
    TIME = "max_seconds"
    REPEATED_FAILURE = "repeated_failure"

    def sentence(self, limits: Limits) -> str:
        """The limit in plain words, for a person."""
        match self:
            case LimitReached.ROUNDS:
                # Without the number: a continued turn counts on from the rounds before it.
                return "The limit of rounds of tool calls for one turn was reached."
            case LimitReached.CALLS:
                return f"The limit of {limits.max_calls} tool calls was reached."
            case LimitReached.TIME:
                return f"The time limit of {limits.max_seconds:g} seconds was reached."
            case LimitReached.REPEATED_FAILURE:
                return f"The same tool call failed {limits.max_repeated_failures} times in a row."


class FailureCount:
    """How often the same call with the same arguments has failed in a row.

    A call counts once a round. Its own success, or a round without it in which another call succeeded, starts the
    count anew: the model made progress in between.
    """

    def __init__(self, counts: Mapping[CallKey, int] | None = None) -> None:
        self.counts: dict[CallKey, int] = dict(counts or {})

    def record(self, calls: Iterable[tuple[CallKey, bool]]) -> None:
        """Take in one round: each call's key and whether it succeeded."""
        succeeded: set[CallKey] = set()
        failed: set[CallKey] = set()
        for key, ok in calls:
            (succeeded if ok else failed).add(key)
        failed -= succeeded
        kept = {} if succeeded else self.counts
        self.counts = {**kept, **{key: self.counts.get(key, 0) + 1 for key in failed}}

    @property
    def highest(self) -> int:
        return max(self.counts.values(), default=0)
