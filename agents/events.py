"""What the tool loop yields: a closed union of frozen values. Pure: no Django, no mcp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from agents.limits import NOTHING_SPENT, Spent
from agents.parts import ModelMessage, PersonAnswer, PersonNeeded, PreparedCall, TokenUsage, ToolRequest, ToolResult


class Outcome(StrEnum):
    """How a turn ends; `PARKED` is not an end: questions are open and nothing runs."""

    COMPLETED = "completed"
    TRUNCATED = "truncated"
    STOPPED = "stopped"
    FAILED = "failed"
    EXHAUSTED = "exhausted"
    INTERRUPTED = "interrupted"
    PARKED = "parked"


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """For the line under the answer: `code` is `thinking`, `connecting`, `calling`, `writing_call`, …"""

    code: str
    label: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True, slots=True)
class RoundCompleted:
    """A completion with tool calls is whole. The consumer stores it, calls as rows, before it asks for the next event.

    `calls` are in the order in which the model made them; each gets the id that later events name.
    """

    round: int
    calls: Sequence[tuple[UUID, PreparedCall]]
    trailing_text: str = ""


@dataclass(frozen=True, slots=True)
class CallStarted:
    """The call is about to run: it begins when the consumer asks for the next event.

    A call that is finished before it began (denied, bad arguments) has a `CallFinished` only.
    """

    call_id: UUID
    call: PreparedCall


@dataclass(frozen=True, slots=True)
class CallAsked:
    """The call needs a person; the consumer has made the question when it asks for the next event.

    Without `needed` it is an approval. `live`: the call goes on running and waits for the answer itself. `again`: an
    approval was given, and is void, since the tool, the arguments or who may allow it changed.
    """

    call_id: UUID
    call: PreparedCall
    needed: PersonNeeded | None = None
    live: bool = False
    again: bool = False


@dataclass(frozen=True, slots=True)
class CallAnswered:
    """A person has answered what the call `needed`; an approval is told by what happens to the call.

    `given_up`: nobody has; the question ended with its time, or was taken back.
    """

    call_id: UUID
    call: PreparedCall | None
    needed: PersonNeeded
    answer: PersonAnswer
    live: bool = False
    given_up: bool = False


@dataclass(frozen=True, slots=True)
class CallProgressed:
    call_id: UUID
    progress: float
    total: float | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class CallFinished:
    call_id: UUID
    result: ToolResult


@dataclass(frozen=True, slots=True)
class Noticed:
    """Something that a person should know and that is kept with the message; `detail` may be empty."""

    code: str
    message: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class RoundBegun:
    """The model is asked to answer `messages`, with tools of `tools_tokens`: once it has them, a cut has its cost."""

    messages: Sequence[ModelMessage]
    tools_tokens: int


@dataclass(frozen=True, slots=True)
class UsageReported:
    """The tokens of one round (not the sum)."""

    usage: TokenUsage


@dataclass(frozen=True, slots=True)
class ModelNamed:
    """Which model writes the answer, for people."""

    model: str


@dataclass(frozen=True, slots=True)
class LoopEnded:
    """The last event, always: `code` and `message` say why for FAILED (and for EXHAUSTED which limit).

    `refusal`: the text of the last round is the model's refusal. `spent` is what the turn has used, for a later start.
    """

    outcome: Outcome
    code: str = ""
    message: str = ""
    refusal: bool = False
    spent: Spent = NOTHING_SPENT


LoopEvent = (
    StatusChanged
    | TextDelta
    | ReasoningDelta
    | RoundCompleted
    | CallStarted
    | CallAsked
    | CallAnswered
    | CallProgressed
    | CallFinished
    | Noticed
    | RoundBegun
    | UsageReported
    | ModelNamed
    | LoopEnded
)

__all__ = [
    "CallAnswered",
    "CallAsked",
    "CallFinished",
    "CallProgressed",
    "CallStarted",
    "LoopEnded",
    "LoopEvent",
    "ModelNamed",
    "Noticed",
    "Outcome",
    "ReasoningDelta",
    "RoundBegun",
    "RoundCompleted",
    "StatusChanged",
    "TextDelta",
    "ToolRequest",
    "UsageReported",
]
