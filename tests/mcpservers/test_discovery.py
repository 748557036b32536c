"""Listing tools: paged, within budgets, item by item; what a server does wrong costs as little as possible."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mcpservers.discovery import Discovery, discover
from mcpservers.errors import RequestFailedError
from tests.fakes.mcp_server import Exchange, FakeMCPServer, Handler, body, once, status
from tests.fakes.mcp_targets import managed, stdio, target

Page = tuple[list[Any], str | None]


def tool(name: Any, **fields: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **fields}


def pages(*listed: Page) -> Handler:
    """Answers `tools/list` with these pages; the cursor of each says which comes next (`c1` is the second)."""

    async def answer(exchange: Exchange) -> None:
        cursor = exchange.params.get("cursor")
        items, following = listed[0 if cursor is None else int(str(cursor)[1:])]
        await exchange.result({"tools": items} | ({} if following is None else {"nextCursor": following}))

    return answer


async def listed(server: FakeMCPServer, *handlers: Handler) -> Discovery:
    for handler in handlers:
        server.on("tools/list", handler)
    async with managed() as manager, manager.borrow(target(server.url)) as connection:
        return await discover(connection)


def names(found: Discovery) -> list[str]:
    return [tool["name"] for tool in found.tools]


def warned(found: Discovery) -> str:
    return "\n".join(f"{item['tool']}: {item['message']}" for item in found.warnings)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_list_comes_whole_with_the_servers_instructions(era: str) -> None:
    async with FakeMCPServer(era=era) as server:
        found = await listed(server)
    assert (names(found), found.complete, found.warnings) == (["echo", "write"], True, [])
    assert found.instructions == "Be kind."


async def test_pages_are_followed() -> None:
    async with FakeMCPServer() as server:
        found = await listed(server, pages(([tool("a")], "c1"), ([tool("b")], "c2"), ([tool("c")], None)))
    assert (names(found), found.complete) == (["a", "b", "c"], True)


async def test_a_cursor_that_comes_again_ends_the_list() -> None:
    async with FakeMCPServer() as server:
        found = await listed(server, pages(([tool("a"), tool("b")], "c1"), ([tool("a"), tool("b")], "c1")))
        assert server.count("tools/list") <= 3
    assert names(found) == ["a", "b"]
    assert not found.complete
    assert "same cursor" in warned(found)


async def test_cursors_in_a_circle_end_the_list() -> None:
    async with FakeMCPServer() as server:
        circle = pages(([tool("a")], "c1"), ([tool("b")], "c2"), ([tool("c")], "c1"))
        found = await listed(server, circle)
        assert server.count("tools/list") == 3
    assert (names(found), found.complete) == (["a", "b", "c"], False)


async def test_pages_without_end_are_capped(settings: Any) -> None:
    settings.MCP = {**settings.MCP, "LIST_MAX_PAGES": 5}

    async def endless(exchange: Exchange) -> None:
        number = int(exchange.params.get("cursor", "0"))
        await exchange.result({"tools": [tool(f"t{number}")], "nextCursor": str(number + 1)})

    async with FakeMCPServer() as server:
        found = await listed(server, endless)
    assert (len(found.tools), found.complete) == (5, True)
    assert "5 pages" in warned(found)


async def test_more_tools_than_the_cap_are_cut_with_a_warning(settings: Any) -> None:
    settings.MCP = {**settings.MCP, "LIST_MAX_TOOLS": 3}
    async with FakeMCPServer(tools=[tool(f"t{number}") for number in range(5)]) as server:
        found = await listed(server)
    assert (names(found), found.complete) == (["t0", "t1", "t2"], True)
    assert "3 tools" in warned(found)


async def test_a_list_beyond_the_byte_budget_keeps_what_came_before(settings: Any) -> None:
    settings.MCP = {**settings.MCP, "LIST_MAX_BYTES": 2**20}
    big = [tool(f"t{number}", description="d" * 300_000) for number in range(9)]
    async with FakeMCPServer(tools=big) as server:
        found = await listed(server)
    assert (names(found), found.complete) == (["t0", "t1", "t2"], True)
    assert "1 MiB" in warned(found)


async def test_a_page_that_takes_too_long_leaves_an_incomplete_list(
    settings: Any, ahead: Callable[[float], None]
) -> None:
    async def slow(exchange: Exchange) -> None:
        if "cursor" in exchange.params:
            ahead(settings.MCP["LIST_SECONDS"])
            await exchange.server.closed.wait()
        await exchange.result({"tools": [tool("a")], "nextCursor": "c1"})

    async with FakeMCPServer() as server:
        found = await listed(server, slow)
        await server.stop()
    assert (names(found), found.complete) == (["a"], False)


@pytest.mark.parametrize("answer", [status(500), status(404), None])
async def test_a_later_page_that_fails_leaves_an_incomplete_list(answer: Handler | None) -> None:
    async def fail(exchange: Exchange) -> None:
        if "cursor" not in exchange.params:
            await exchange.result({"tools": [tool("a")], "nextCursor": "c1"})
        elif answer is None:
            await exchange.error(-32603, "no more")
        else:
            await answer(exchange)

    async with FakeMCPServer() as server:
        found = await listed(server, fail)
    assert (names(found), found.complete) == (["a"], False)
    assert "Page 2" in warned(found)


async def test_a_first_page_that_fails_is_the_callers_to_handle() -> None:
    async def fail(exchange: Exchange) -> None:
        await exchange.error(-32603, "the database is down")

    async with FakeMCPServer() as server:
        with pytest.raises(RequestFailedError, match="the database is down"):
            await listed(server, fail)


@pytest.mark.parametrize("page", ["null", '{"a": 1}', '"none"', "7"])
async def test_a_page_that_is_no_list_makes_the_list_incomplete(page: str) -> None:
    broken = body('{"jsonrpc":"2.0","id":{id},"result":{"tools":PAGE,"nextCursor":"c1"}}'.replace("PAGE", page))
    async with FakeMCPServer() as server:
        found = await listed(server, once(broken, pages(([], None), ([tool("a")], None))))
    assert (names(found), found.complete) == (["a"], False)
    assert "Page 1" in warned(found)


async def test_a_server_without_tools_has_none() -> None:
    async def unknown(exchange: Exchange) -> None:
        await exchange.error(-32601, "Method not found")

    async with FakeMCPServer() as server:
        found = await listed(server, unknown)
    assert (found.tools, found.complete) == ([], True)


DEEP: Any = {}
for _ in range(120):
    DEEP = {"items": DEEP}
MALFORMED = [
    None, 7, "tool", [], {}, {"name": None}, {"name": 7}, {"name": ""}, {"name": " \u200b"},
    {"description": "no name"},
]  # fmt: skip


async def test_malformed_items_cost_nobody_else_anything() -> None:
    items = [*MALFORMED, {"name": "bare"}, tool("odd", description=7, title=[], annotations="x"), tool("good")]
    async with FakeMCPServer(tools=items) as server:
        found = await listed(server)
    assert (names(found), found.complete) == (["bare", "odd", "good"], True)
    assert len(found.warnings) == len(MALFORMED)


async def test_a_tool_that_no_database_could_hold_is_left_out() -> None:
    items = [tool("nan", inputSchema={"maximum": float("nan")}), tool("deep", inputSchema=DEEP), tool("good")]
    async with FakeMCPServer(tools=items) as server:
        found = await listed(server)
    assert names(found) == ["deep", "good"]
    assert "nan: " in warned(found)


async def test_a_name_that_comes_twice_counts_once() -> None:
    async with FakeMCPServer(tools=[tool("a", title="first"), tool("a", title="second")]) as server:
        found = await listed(server)
    assert [item["title"] for item in found.tools] == ["first"]
    assert "twice" in warned(found)


async def test_hidden_characters_are_warned_of() -> None:
    hidden = tool("re\u200bad", description="Reads.\U000e0049\U000e0067 \u202eevil\u202c \x1b[31mx")
    async with FakeMCPServer(tools=[hidden, tool("good", description="Plain\r\nwords 👩‍👧")]) as server:
        found = await listed(server)
    assert names(found) == ["re\u200bad", "good"], "the server is called by its own names"
    assert [item["tool"] for item in found.warnings] == ["re\u200bad"]


async def test_nul_is_replaced() -> None:
    async with FakeMCPServer(tools=[tool("a\x00b", description="x\x00y")]) as server:
        found = await listed(server)
    assert names(found) == ["a\ufffdb"]
    assert found.tools[0]["description"] == "x\ufffdy"


@pytest.mark.parametrize(("era", "kept"), [("modern", ["good"]), ("legacy", ["bad", "good"])])
async def test_a_tool_with_forbidden_headers_is_left_out_where_headers_are_sent(era: str, kept: list[str]) -> None:
    bad = {"type": "object", "properties": {"x": {"type": "array", "x-mcp-header": "X"}}}
    good = {"type": "object", "properties": {"x": {"type": "string", "x-mcp-header": "X"}}}
    items = [tool("bad", inputSchema=bad), tool("good", inputSchema=good)]
    async with FakeMCPServer(era=era, tools=items) as server:
        found = await listed(server)
    assert names(found) == kept


async def test_a_local_process_is_listed_alike() -> None:
    async with managed() as manager, manager.borrow(stdio()) as connection:
        found = await discover(connection)
    assert found.complete
    assert found.tools


async def test_a_listing_can_be_cancelled() -> None:
    async def never(exchange: Exchange) -> None:
        await exchange.server.closed.wait()

    async with FakeMCPServer() as server:
        listing = asyncio.create_task(listed(server, never))
        await server.heard("tools/list")
        listing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listing
