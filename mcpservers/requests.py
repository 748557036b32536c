"""`RequestContext`: the turn that `{{request.*}}` stands for, and the run of it that owns its connections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID, uuid4


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One turn while it runs. A turn that waited for a person goes on as another `run`, with connections of its own."""

    turn_id: UUID
    conversation_id: UUID
    message_id: UUID  # of the answer that is being written
    run: UUID = field(default_factory=uuid4)

    @classmethod
    def of_trial(cls) -> RequestContext:
        """A turn that there never was: for an admin's test of a connection."""
        return cls(uuid4(), uuid4(), uuid4())

    def values(self) -> Mapping[str, str]:
        """What each of its placeholders stands for."""
        return {
            "request.turn_id": str(self.turn_id),
            "request.conversation_id": str(self.conversation_id),
            "request.message_id": str(self.message_id),
        }
