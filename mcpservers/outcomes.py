"""How a tool call ended, as a value of this app."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from mcpservers.errors import SignInRequiredError

Status = Literal["ok", "error", "denied", "cancelled", "timeout", "unavailable", "interrupted"]


@dataclass(frozen=True, slots=True)
class ArtifactData:
    """A file that a result brought, not yet stored."""

    data: bytes
    media_type: str
    name: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that stopped to ask a person: `card` is for people, `kept` comes back with the answer, seen by nobody."""

    card: Mapping[str, Any]
    kept: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """`text` is for the model (never empty, never base64); `content` is for people, JSON parts.

    `missing`: the server has no such tool any more. With `asked` the call is to be made again once that is answered.
    `sign_in`: an account is needed first, and the tool did not run. `refusal` is why a denied call was denied;
    `account_id` is the linked account that acted.
    """

    status: Status
    text: str
    content: tuple[dict[str, Any], ...] = ()
    artifacts: tuple[ArtifactData, ...] = ()
    duration_ms: int = 0
    missing: bool = False
    asked: Asked | None = None
    sign_in: SignInRequiredError | None = None
    refusal: str = ""
    account_id: UUID | None = None
