"""One call of a round while it is under way, and what can happen to it. Pure."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from agents.answers import CallCancelled, Decided
from agents.events import CallProgressed
from agents.limits import CallKey
from agents.parts import (
    JSONObject,
    PersonAnswer,
    PersonNeeded,
    PreparedCall,
    Resumed,
    Seal,
    ToolRequest,
    ToolResult,
)


class Call:
    """One call of the round and how far it is."""

    __slots__ = (
        "again",
        "allowed",
        "answering",
        "by",
        "edited",
        "id",
        "needed",
        "prepared",
        "progress",
        "request",
        "result",
        "resumed",
        "seal",
        "state",
        "task",
    )

    def __init__(self, id: UUID, request: ToolRequest, prepared: PreparedCall | None = None) -> None:
        self.id, self.request, self.prepared = id, request, prepared
        self.state: Literal["preparing", "waiting", "ready", "running", "finished"] = "preparing"
        self.allowed = False  # by a person
        self.by: UUID | None = None  # which
        self.seal: Seal | None = None  # what was asked, and is allowed then
        self.again = False  # it was allowed before, and that is void
        self.edited: JSONObject | None = None
        self.result: ToolResult | None = None  # set when it is finished
        self.task: asyncio.Task[None] | None = None
        self.progress: CallProgressed | None = None  # the latest that is not yet told
        self.needed: PersonNeeded | None = None  # what it waits for, unless that is an approval
        self.answering: asyncio.Future[PersonAnswer] | None = None  # what a running call waits for
        self.resumed: Resumed | None = None

    def may_run(self, prepared: PreparedCall) -> bool:
        """Whether a person allowed just this, and still might: no other definition, nor arguments that nobody saw."""
        if not self.allowed or self.seal is None:
            return self.allowed
        if prepared.approvers is not None and self.by not in prepared.approvers:
            return False
        is_same = self.edited is not None or prepared.seal.arguments == self.seal.arguments
        return is_same and prepared.seal.definition == self.seal.definition

    @property
    def key(self) -> CallKey:
        return self.prepared.key if self.prepared else (self.request.name, self.request.arguments)

    @property
    def arguments(self) -> JSONObject | None:
        return self.prepared.arguments if self.prepared else None


@dataclass(frozen=True, slots=True)
class Prepared:
    """The toolbox has looked at it."""

    call: Call
    prepared: PreparedCall


@dataclass(frozen=True, slots=True)
class Progressed:
    """Its server told how far it is."""

    call: Call


@dataclass(frozen=True, slots=True)
class Returned:
    """It has a result, or needs a person first."""

    call: Call
    result: ToolResult | PersonNeeded


@dataclass(frozen=True, slots=True)
class Asks:
    """It waits for a person, and goes on running."""

    call: Call
    needed: PersonNeeded
    answering: asyncio.Future[PersonAnswer]


@dataclass(frozen=True, slots=True)
class GivenUp:
    """It waits for that answer no longer."""

    call: Call
    answering: asyncio.Future[PersonAnswer]


class TimeIsUp:
    """The turn has no time left."""


Happening = Prepared | Progressed | Returned | Asks | GivenUp | TimeIsUp | Decided | CallCancelled
