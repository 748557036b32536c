"""The protocol behind which every kind of tool stands: MCP servers now, others later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from agents.parts import PersonAnswer, PersonNeeded, PreparedCall, ToolRequest, ToolResult, ToolSpec

ProgressCallback = Callable[[float, float | None, str | None], Awaitable[None]]
AskCallback = Callable[[PersonNeeded], Awaitable[PersonAnswer]]


class Toolbox(Protocol):
    """What one actor may use in one turn. `prepare` and `call` re-read every permission."""

    def specs(self) -> Sequence[ToolSpec]:
        """What the model is offered, in a stable order."""
        ...

    async def prepare(self, request: ToolRequest) -> PreparedCall:
        """Resolve, check arguments, decide. Never raises for what the model did: that is a `result` of the call."""
        ...

    async def call(
        self, call: PreparedCall, progress: ProgressCallback, ask: AskCallback | None = None
    ) -> ToolResult | PersonNeeded:
        """Run a call that was allowed (by rule or by a person), checking permission once more with fresh rows.

        A `PersonNeeded` instead of a result parks the call; it is made again, `resumed`, once a person has answered.
        `ask` keeps the call open while a person is asked, for servers whose question is part of a running request;
        None where nobody can be asked. Never raises for what the server did. Cancelling it cancels the request at the
        server.
        """
        ...

    async def aclose(self) -> None:
        """Give back what the turn held (leases, request-scoped connections)."""
        ...
