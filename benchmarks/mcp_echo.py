"""An MCP server over streamable HTTP with an `echo` tool, and as many others as are asked for.

python -m benchmarks.mcp_echo PORT [TOOLS]
"""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from typing import Annotated, Literal

import uvicorn
from mcp.server import MCPServer
from pydantic import BaseModel, Field

PATH = "/mcp"


class Order(StrEnum):
    NEWEST = "newest"
    OLDEST = "oldest"


class Filters(BaseModel):
    """A nested object, so that the schemas hold references as those of real servers do."""

    labels: list[str] = Field(default_factory=list, description="Only items with all of these labels.", max_length=20)
    author: str | None = Field(default=None, description="Only items of this person.")
    state: Literal["open", "closed", "any"] = "any"


def search(
    query: Annotated[str, Field(description="Words to look for, in any order.", max_length=500)],
    filters: Filters | None = None,
    order: Order = Order.NEWEST,
    limit: Annotated[int, Field(ge=1, le=100, description="How many items at most.")] = 20,
) -> str:
    """Search one collection of the archive and return the items that match, with their titles and addresses."""
    return f"{query}: nothing of {limit} in {order}"


def echo(text: str) -> str:
    """Return the text unchanged."""
    return text


def server(tools: int = 1) -> MCPServer:
    """`echo`, then `search_1`, `search_2` … up to `tools` tools."""
    made = MCPServer("echo", version="1.0")
    made.add_tool(echo)
    for number in range(1, tools):
        made.add_tool(search, name=f"search_{number}", title=f"Search collection {number}")
    return made


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    application = server(int(sys.argv[2]) if len(sys.argv) > 2 else 1).streamable_http_app(host="127.0.0.1")
    uvicorn.run(application, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
