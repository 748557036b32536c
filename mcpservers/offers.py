"""What the catalogue answers: tools that may be offered, those that may not, and what keeps a server from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from mcpservers.approvals import Do
from mcpservers.credentials import Account, SignIn
from mcpservers.entries import Definition
from mcpservers.pins import State


@dataclass(frozen=True, slots=True)
class WantedServer:
    """A server that an agent uses; `tools` are globs over its tools' names, empty for all."""

    server_id: UUID
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that may be offered, or (`withheld` says why) may not; `decision` is what the rules say of a call."""

    server_id: UUID
    server_slug: str
    server_title: str
    definition: Definition
    decision: Do
    reason: str
    globs: tuple[str, ...] = ()
    withheld: str = ""
    state: State = State.ACCEPTED  # of its pin
    account: Account | None = None  # that it acts with

    @property
    def exposed_name(self) -> str:
        return self.definition.exposed_name

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def title(self) -> str:
        return self.definition.title

    @property
    def description(self) -> str:
        return self.definition.description


@dataclass(frozen=True, slots=True)
class ServerProblem:
    """Why a wanted server offers nothing, or less; `message` is for a person and says what to do.

    With the code `needs_sign_in`, `sign_in` says where.
    """

    server_id: UUID
    slug: str
    title: str
    code: Literal["unavailable", "not_ready", "not_granted", "disabled", "incomplete", "needs_sign_in"]
    message: str
    sign_in: SignIn | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """What one actor may be offered now. `withheld` are known tools that the model must not be shown."""

    tools: tuple[OfferedTool, ...] = ()
    withheld: tuple[OfferedTool, ...] = ()
    problems: tuple[ServerProblem, ...] = ()
    instructions: tuple[tuple[str, str], ...] = ()  # (server title, the server's own words)


@dataclass(frozen=True, slots=True)
class KnownServer:
    """A wanted server as the rows have it: `tools` is None where its list is not known (yet), or lists for nobody."""

    server_id: UUID
    slug: str
    title: str
    problem: ServerProblem | None = None
    tools: tuple[OfferedTool, ...] | None = None
    of_each_turn: bool = False  # its tools are listed anew in every turn


@dataclass(frozen=True, slots=True)
class ServerState:
    """A server in the picker, without connecting to it. `tools` holds quarantined ones too (`withheld`)."""

    slug: str
    title: str
    state: Literal["ready", "needs_setup", "needs_sign_in", "error", "off", "unknown"]
    message: str = ""
    tools: tuple[OfferedTool, ...] = ()
    retry_at: datetime | None = None  # until then it is left alone, after several failures


@dataclass(frozen=True, slots=True)
class RefreshReport:
    """How a connection test went: for the admin."""

    tools: int = 0
    transport: str = ""
    era: str = ""
    protocol_version: str = ""
    duration_ms: int = 0
    warnings: tuple[str, ...] = ()
    error: str = ""
    server_info: dict[str, Any] = field(default_factory=dict)
