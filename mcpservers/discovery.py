"""A server's tool list as the server sends it: paged, within budgets, item by item."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from chatui.errors import ChatUIError
from chatui.text import clean, clean_json
from mcpservers.connection import Connection
from mcpservers.errors import RequestFailedError
from mcpservers.models import Transport
from mcpservers.visible import is_visible, visible

METHOD_NOT_FOUND = -32601


@dataclass(slots=True)
class Discovery:
    """`tools` are JSON objects with a name each, unique; `warnings` are `{tool, message}`.

    `complete` is False for a list that was cut by time, an error or a repeated cursor: it serves once and replaces
    nothing. A list cut by a cap is complete, with a warning.
    """

    tools: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[dict[str, str]] = field(default_factory=list)
    complete: bool = True
    instructions: str = ""

    def warn(self, message: str, tool: str = "") -> None:
        self.warnings.append({"tool": tool, "message": message})


async def discover(connection: Connection) -> Discovery:
    """List the tools over an open connection.

    Raises what `Connection.request_raw` raises, but only for the first page: what came before a later fault is kept.
    """
    listing = _Listing(connection)
    cursor: str | None = None
    for number in range(1, settings.MCP["LIST_MAX_PAGES"] + 1):
        try:
            page = await listing.page(cursor)
        except ChatUIError as error:
            if number > 1:
                return listing.incomplete(f"Page {number} of the list failed: {error.public_message}")
            if isinstance(error, RequestFailedError) and error.rpc_code == METHOD_NOT_FOUND:
                return listing.found  # a server without tools
            raise
        items = page.get("tools")
        if not isinstance(items, list):
            listing.incomplete(f"Page {number} of the list holds no list of tools.")
        elif not listing.take(items):
            return listing.found
        following = page.get("nextCursor")
        if not isinstance(following, str) or not following:
            return listing.found
        cursor = following
        if cursor in listing.cursors:
            return listing.incomplete("The server repeats a page for ever (the same cursor came twice).")
        listing.cursors.add(cursor)
        if time.monotonic() >= listing.deadline:
            return listing.incomplete(f"The list took longer than {settings.MCP['LIST_SECONDS']:g} seconds.")
    listing.found.warn(f"The list was cut at {settings.MCP['LIST_MAX_PAGES']} pages.")
    return listing.found


class _Listing:
    """One listing under way: what is found, and what of the budgets is left."""

    def __init__(self, connection: Connection) -> None:
        self.found = Discovery(instructions=str(clean_json(connection.instructions or "")))
        self.deadline = time.monotonic() + settings.MCP["LIST_SECONDS"]
        self.cursors: set[str] = set()
        self._connection = connection
        self._names: set[str] = set()
        self._bytes_left: int = settings.MCP["LIST_MAX_BYTES"]
        # Headers that repeat arguments are of the stateless era over HTTP alone.
        self._headers = connection.era["mode"] == "modern" and connection.transport is not Transport.STDIO

    async def page(self, cursor: str | None) -> dict[str, Any]:
        params = {} if cursor is None else {"cursor": cursor}
        return await self._connection.request_raw("tools/list", params, max(0.1, self.deadline - time.monotonic()))

    def incomplete(self, why: str) -> Discovery:
        self.found.complete = False
        self.found.warn(why)
        return self.found

    def take(self, items: Sequence[Any]) -> bool:
        """Take a page's tools; False when a cap is reached, which a warning then says."""
        for item in items:
            if len(self.found.tools) >= settings.MCP["LIST_MAX_TOOLS"]:
                self.found.warn(f"The list was cut at {settings.MCP['LIST_MAX_TOOLS']} tools.")
                return False
            if not self._take(item):
                self.found.warn(f"The list was cut at {settings.MCP['LIST_MAX_BYTES'] / 2**20:g} MiB.")
                return False
        return True

    def _take(self, item: Any) -> bool:
        """Take one tool, if it is one: a malformed one never costs a server its list. False when bytes run out."""
        name = item.get("name") if isinstance(item, Mapping) else None
        if not isinstance(name, str) or not visible(name).strip():
            self.found.warn("An item of the list is not a tool: it has no name.")
            return True
        name = clean(name)
        try:
            tool = clean_json(dict(item))
            self._bytes_left -= len(json.dumps(tool, allow_nan=False))
        except (ValueError, RecursionError):
            self.found.warn("It is nested too deeply, or holds a number that JSON does not have.", name)
            return True
        if self._bytes_left < 0:
            return False
        if name in self._names:
            self.found.warn("It is listed twice; the first one counts.", name)
            return True
        self._names.add(name)
        invalid = self._invalid_header(tool)
        if invalid:
            self.found.warn(f"Its schema asks for headers in a way that the protocol forbids: {invalid}", name)
            return True
        texts = [name, tool.get("title"), tool.get("description")]
        if not all(is_visible(text) for text in texts if isinstance(text, str)):
            self.found.warn("Its name or description holds invisible characters, which were removed.", name)
        self.found.tools.append(tool)
        return True

    def _invalid_header(self, tool: Mapping[str, Any]) -> str:
        """Why a client must refuse the tool's `x-mcp-header` annotations (MCP 2026-07-28, streamable HTTP), or ""."""
        if not self._headers or "x-mcp-header" not in json.dumps(tool.get("inputSchema")):
            return ""
        from mcp.shared.inbound import find_invalid_x_mcp_header

        return find_invalid_x_mcp_header(tool.get("inputSchema")) or ""
