"""How a tool call ended, as a value of this app."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["ok", "error", "denied", "cancelled", "timeout", "unavailable", "interrupted"]


@dataclass(frozen=True, slots=True)
class ArtifactData:
    """A file that a result brought, not yet stored."""

    data: bytes
    media_type: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """`text` is for the model (never empty, never base64); `content` is for people, JSON parts.

    `missing`: the server has no such tool any more.
    """

    status: Status
    text: str
    content: tuple[dict[str, Any], ...] = ()
    artifacts: tuple[ArtifactData, ...] = ()
    duration_ms: int = 0
    missing: bool = False
