"""`read_result`: pages of whole texts, offered only where there is something to read on in."""

from __future__ import annotations

from typing import Any

import pytest

from agents.arguments import check_arguments
from agents.context import OLD_OUTPUT_CHARACTERS, shortened
from agents.parts import ToolResult, ToolStatus
from agents.read_result import ReadResult
from mcpservers.cuts import read_cut, whole_name
from mcpservers.results import normalise
from mcpservers.schemas import DIALECTS, RepairedSchema, repair

WHOLE = "".join(f"line {n} 北京\n" for n in range(20_000)).strip()
NAME = whole_name(WHOLE)


class Texts:
    async def find(self, name: str) -> str | None:
        return WHOLE if name == NAME else None


def tool(context: int = 128_000, earlier: Any = ()) -> ReadResult:
    return ReadResult(Texts(), context, earlier)


async def read(**arguments: Any) -> ToolResult:
    reader = tool()
    assert check_arguments(arguments, reader.parameters) is None
    return await reader.run(arguments)


def told(text: str) -> ToolResult:
    outcome = normalise({"content": [{"type": "text", "text": text}]}, images=False, output_schema=None, limit=50_000)
    return ToolResult(ToolStatus(outcome.status), outcome.text)


def page(result: ToolResult) -> str:
    """What of the whole a page holds."""
    return result.text.split(":\n", 1)[1].rsplit("\n[", 1)[0]


# --- When it is offered -------------------------------------------------------------------------------------------


def test_it_is_offered_once_a_cut_result_was_told() -> None:
    reader = tool()
    reader.heard(told("short"))
    assert not reader.is_offered
    reader.heard(told(WHOLE))
    assert reader.is_offered
    assert tool(earlier=["short", told(WHOLE).text]).is_offered, "also in a later turn"
    assert not tool(earlier=["short", "x" * 40_000]).is_offered


def test_it_is_offered_where_long_results_may_no_longer_fit() -> None:
    assert not tool(context=100_000, earlier=["x" * 40_000] * 4).is_offered
    assert tool(context=100_000, earlier=["x" * 40_000] * 6).is_offered
    assert not tool(context=100_000, earlier=["x" * OLD_OUTPUT_CHARACTERS] * 60).is_offered, "none of them is ever cut"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_accepts_its_parameters(dialect: str) -> None:
    repaired = repair(tool().parameters, dialect)
    assert isinstance(repaired, RepairedSchema)
    assert set(repaired.parameters["properties"]) == {"result", "offset", "limit"}
    assert not repaired.renames


# --- What it answers ----------------------------------------------------------------------------------------------


async def test_the_pages_put_together_are_the_whole() -> None:
    text, offset = "", 0
    while offset < len(WHOLE):
        result = await read(result=NAME, offset=offset, limit=40_000)
        assert result.status is ToolStatus.OK
        text += page(result)
        offset = len(text)
        assert (f"go on with offset {offset}." in result.text) is (offset < len(WHOLE))
    assert text == WHOLE
    assert result.text.endswith("[This is the end.]")


async def test_reading_goes_on_from_where_the_note_says() -> None:
    cut = told(WHOLE).text
    kept = cut[: cut.index("\n[The result was cut")]
    note = cut[len(kept) :]
    offset = int(note.split("offset ")[1].split(" ")[0])
    assert page(await read(result=note.split("“")[2].split("”")[0], offset=offset)).startswith(WHOLE[len(kept) :][:100])


async def test_a_page_is_never_so_long_that_it_would_be_cut_later() -> None:
    result = await read(result=NAME, offset=100_000)
    assert shortened(result.text) == result.text
    assert read_cut((await read(result=NAME, limit=10**9)).text) is None


async def test_a_page_fits_a_small_context() -> None:
    reader = tool(context=4_000)
    assert len((await reader.run({"result": NAME, "limit": 10**6})).text) <= 4_000


@pytest.mark.parametrize("name", ["", "result.txt", "result-0000000000.txt", "../../etc/passwd"])
async def test_a_name_that_there_is_not_is_an_error(name: str) -> None:
    result = await read(result=name)
    assert result.status is ToolStatus.ERROR
    assert "no result" in result.text


async def test_an_offset_behind_the_end_is_told_with_the_length() -> None:
    result = await read(result=NAME, offset=len(WHOLE))
    assert result.status is ToolStatus.ERROR
    assert str(len(WHOLE)) in result.text


@pytest.mark.parametrize("arguments", [{}, {"result": 5}, {"result": "x", "offset": -1}, {"result": "x", "limit": 0}])
def test_other_arguments_are_refused_before_it_runs(arguments: Any) -> None:
    assert check_arguments(arguments, tool().parameters)


async def test_people_are_told_the_place_alone_since_they_have_the_file() -> None:
    result = await read(result=NAME, offset=10, limit=20)
    assert list(result.content) == [{"type": "text", "text": f"Characters 10 to 30 of {len(WHOLE)} of {NAME}."}]
