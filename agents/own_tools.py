"""`TurnToolbox`: what a turn offers, the tools of MCP servers and our own, as one toolbox.

Our own tools have names without `__`, which no server's tool has. They are always allowed; their calls
are rows, frames and history like any other.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Protocol

from agents.image_references import Placed, place, without_images
from agents.mcp_toolbox import MCPToolbox, unknown_tool
from agents.own_results import unrun
from agents.parts import (
    Decision,
    ImageContent,
    JSONObject,
    PersonNeeded,
    PreparedCall,
    ToolRequest,
    ToolResult,
    ToolSpec,
    error_result,
)
from agents.tool_search import Deferral
from agents.toolbox import AskCallback, ProgressCallback
from agents.understanding import understand
from mcpservers.catalogue import ServerProblem
from mcpservers.schemas import Quarantined, RepairedSchema, repair

ALLOWED = "a tool of our own: always allowed"


class OwnTool(Protocol):
    """A tool that we bring. `parameters` is a JSON Schema of an object; `run` gets arguments that keep to it."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str:
        """For people."""
        ...

    @property
    def description(self) -> str:
        """For the model, 1,024 characters at most."""
        ...

    @property
    def parameters(self) -> JSONObject: ...

    @property
    def is_offered(self) -> bool:
        """Whether there is anything to use it for now."""
        ...

    async def run(self, arguments: JSONObject) -> ToolResult:
        """Never raises for what the model did: that is an error result."""
        ...

    def heard(self, result: ToolResult) -> None:
        """The model was told `result` of a server's tool."""
        ...


class TurnToolbox:
    """`mcp` and our `own` tools behind the `Toolbox` protocol; with a `deferral` not all of `mcp` is offered at once.

    A deferred tool may be called all the same, by a model that knows its name; from then on it is offered.
    """

    def __init__(self, mcp: MCPToolbox, own: Sequence[OwnTool] = (), deferral: Deferral | None = None) -> None:
        self._mcp, self._deferral = mcp, deferral
        self._own = {tool.name: tool for tool in own}
        self.images: Mapping[str, ImageContent] = {}  # the user's, by the names that arguments may use
        self._schemas = {tool.name: _repaired(tool, mcp.dialect) for tool in own}

    @property
    def problems(self) -> Sequence[ServerProblem]:
        return self._mcp.problems

    @property
    def instructions(self) -> Sequence[tuple[str, str]]:
        """(server title, the server's own instructions), where an admin wants the model to have them."""
        return self._mcp.instructions

    @property
    def offered(self) -> dict[str, list[str]]:
        """Exposed name → [server id, tool] of what servers offer, to be stored with the turn."""
        offered = self._mcp.offered
        if self._deferral is None:
            return offered
        return {name: offered[name] for name in self._deferral.offered if name in offered}

    def specs(self) -> Sequence[ToolSpec]:
        return [*self._mcp.specs(self._deferral.offered if self._deferral else None), *self._own_specs()]

    def _own_specs(self) -> list[ToolSpec]:
        return [
            ToolSpec(name, tool.description, self._schemas[name].parameters)
            for name, tool in self._own.items()
            if tool.is_offered
        ]

    async def prepare(self, request: ToolRequest) -> PreparedCall:
        tool = self._own.get(request.name)
        if tool is not None and tool.is_offered:
            return self._prepare_own(request, tool)
        prepared = await self._mcp.prepare(request)
        if prepared.server_id is None:
            deferred = self._deferral.deferred if self._deferral else ()
            return replace(prepared, result=unknown_tool(request.name, [spec.name for spec in self.specs()], deferred))
        if self._deferral is not None:
            self._deferral.reveal([request.name])
        placed = self._placed(prepared)
        if placed.problem and prepared.result is None:
            return unrun(prepared, "bad arguments", error_result(placed.problem))
        return prepared

    def _placed(self, call: PreparedCall) -> Placed:
        return place(call.arguments or {}, self._mcp.input_schema(call.request.name), self.images)

    def _prepare_own(self, request: ToolRequest, tool: OwnTool) -> PreparedCall:
        schema = self._schemas[tool.name]
        arguments, problem = understand(request.arguments, tool.parameters, schema.renames, schema.absent)
        decision, reason, result = Decision.ALLOW, ALLOWED, None
        if problem:
            decision, reason, result = Decision.DENY, "bad arguments", error_result(problem)
        return PreparedCall(
            request, decision, reason, arguments=arguments, tool=tool.name, title=tool.title, result=result
        )

    async def call(
        self, call: PreparedCall, progress: ProgressCallback, ask: AskCallback | None = None
    ) -> ToolResult | PersonNeeded:
        tool = self._own.get(call.request.name)
        if tool is not None:
            began = time.monotonic()
            own = await tool.run(call.arguments or {})
            return replace(own, duration_ms=round((time.monotonic() - began) * 1000))
        placed = self._placed(call)
        placed_call = replace(call, arguments=placed.arguments) if placed.encoded else call
        result = await self._mcp.call(placed_call, progress, ask)
        if isinstance(result, PersonNeeded):
            return result
        if self._deferral is not None and not self._mcp.offers(call.request.name):
            self._deferral.forget(call.request.name)
        result = without_images(result, placed.encoded)
        for tool in self._own.values():
            tool.heard(result)
        return result

    async def aclose(self) -> None:
        await self._mcp.aclose()


def _repaired(tool: OwnTool, dialect: str) -> RepairedSchema:
    """The parameters as the endpoint's dialect has them."""
    return _repaired_once(json.dumps(tool.parameters), dialect)


@lru_cache(maxsize=64)
def _repaired_once(parameters: str, dialect: str) -> RepairedSchema:
    repaired = repair(json.loads(parameters), dialect)
    assert not isinstance(repaired, Quarantined), repaired.reason  # our own schema
    return repaired
