"""Our own tools beside those of servers: offered where there is use for them, always allowed, arguments checked."""

from __future__ import annotations

from typing import Any

import pytest

from agents.mcp_toolbox import MCPToolbox
from agents.own_tools import TurnToolbox
from agents.parts import Decision, ToolRequest, ToolResult, ToolStatus
from agents.toolbox import Toolbox
from mcpservers.catalogue import Offer
from mcpservers.naming import is_own
from tests.fakes.mcp_targets import actor

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "note": {"type": "string"}},
    "required": ["n"],
}


class Double:
    """A tool of our own that doubles a number."""

    name, title, description, parameters = "double", "Double it", "Twice as much.", SCHEMA
    is_offered = True

    def __init__(self) -> None:
        self.ran: list[Any] = []
        self.told: list[str] = []

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        self.ran.append(arguments)
        return ToolResult(ToolStatus.OK, str(2 * arguments["n"]))

    def heard(self, result: ToolResult) -> None:
        self.told.append(result.text)


async def progress(*_: object) -> None: ...


def opened(tool: Double, dialect: str = "openai", **options: Any) -> TurnToolbox:
    return TurnToolbox(MCPToolbox(actor(), Offer(), dialect=dialect, **options), [tool])


def test_it_is_offered_while_there_is_use_for_it() -> None:
    tool = Double()
    toolbox: Toolbox = opened(tool)
    assert [(spec.name, spec.description) for spec in toolbox.specs()] == [("double", "Twice as much.")]
    tool.is_offered = False
    assert toolbox.specs() == []


async def test_it_is_allowed_always_also_where_nobody_can_be_asked() -> None:
    tool = Double()
    toolbox = opened(tool, present=False)
    prepared = await toolbox.prepare(ToolRequest("c", "double", '{"n": 4}'))
    assert (prepared.decision, prepared.result, prepared.server_id) == (Decision.ALLOW, None, None)
    assert (prepared.tool, prepared.title, prepared.arguments) == ("double", "Double it", {"n": 4})
    assert "always allowed" in prepared.reason
    assert (await toolbox.call(prepared, progress)).text == "8"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [('{"n": "x"}', "n: 'x' is not of type"), ('{"n"', "not valid JSON"), ("", "'n' is a required")],
)
async def test_arguments_are_checked_and_nothing_is_run(arguments: str, words: str) -> None:
    tool = Double()
    prepared = await opened(tool).prepare(ToolRequest("c", "double", arguments))
    assert prepared.decision is Decision.DENY
    assert prepared.result is not None
    assert prepared.result.status is ToolStatus.ERROR
    assert words in prepared.result.text
    assert not tool.ran


async def test_a_strict_dialects_nulls_are_left_out() -> None:
    tool = Double()
    toolbox = opened(tool, "openai-strict")
    assert toolbox.specs()[0].parameters["required"] == ["n", "note"]
    prepared = await toolbox.prepare(ToolRequest("c", "double", '{"n": 1, "note": null}'))
    await toolbox.call(prepared, progress)
    assert tool.ran == [{"n": 1}]


async def test_a_name_that_there_is_not_is_answered_with_those_that_there_are() -> None:
    tool = Double()
    prepared = await opened(tool).prepare(ToolRequest("c", "dubble", "{}"))
    assert prepared.result is not None
    assert "double" in prepared.result.text
    tool.is_offered = False
    for name in ("dubble", "double"):
        prepared = await opened(tool).prepare(ToolRequest("c", name, '{"n": 1}'))
        assert prepared.result is not None
        assert "There are no tools" in prepared.result.text


async def test_how_long_it_took_is_told() -> None:
    toolbox = opened(Double())
    prepared = await toolbox.prepare(ToolRequest("c", "double", '{"n": 4}'))
    assert (await toolbox.call(prepared, progress)).duration_ms >= 0


@pytest.mark.parametrize("name", ["read_result", "search_tools"])
def test_no_servers_tool_can_have_the_name_of_one_of_ours(name: str) -> None:
    assert is_own(name)
