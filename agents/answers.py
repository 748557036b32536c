"""What comes into a round from outside: what people answer, and calls as they were stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from agents.limits import CallKey
from agents.parts import JSONObject, PersonAnswer, PersonNeeded, Resumed, Seal, ToolRequest, ToolResult


@dataclass(frozen=True, slots=True)
class Decided:
    """A person's answer to a question. `arguments`, where set, replace the model's; `note` is for the model.

    `answer` is set where the question was not an approval; then `allowed` says whether it was accepted. `by` is who
    answered, `seal` what was asked about: an answer is for nothing else.
    """

    call_id: UUID
    allowed: bool
    note: str = ""
    arguments: JSONObject | None = None
    answer: PersonAnswer | None = None
    by: UUID | None = None
    seal: Seal | None = None


@dataclass(frozen=True, slots=True)
class CallCancelled:
    """A person ends one call; its siblings go on."""

    call_id: UUID


Answer = Decided | CallCancelled


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A stored call of a round that is not over.

    `pending`: allowed by a rule, not yet run · `waiting`: its question is open · `allowed`, `denied`: a person has
    answered (`note`, edited `arguments`) · `expired`: nobody has · `running`: it ran in a task that is gone ·
    `finished`: `result` is stored. `approved`: a person allowed it, whatever was asked later. `needed` is what a
    waiting one waits for, unless it is an approval; `resumed` what a pending or allowed one is made again with.
    `seal` is what the approval is for (None: it was never asked), `by` who gave it, `again` that
    an earlier approval became void.
    """

    call_id: UUID
    request: ToolRequest
    state: Literal["pending", "waiting", "allowed", "denied", "expired", "running", "finished"]
    note: str = ""
    result: ToolResult | None = None
    arguments: JSONObject | None = None
    approved: bool = False
    needed: PersonNeeded | None = None
    resumed: Resumed | None = None
    seal: Seal | None = None
    by: UUID | None = None
    again: bool = False


@dataclass(frozen=True, slots=True)
class OpenRound:
    """A stored round whose calls are not all finished; `failures` are the counts of the rounds before it."""

    text: str = ""
    reasoning: str = ""
    trailing_text: str = ""
    calls: Sequence[OpenCall] = ()
    number: int = 1
    failures: dict[CallKey, int] = field(default_factory=dict)
