"""A server's tool list as the server sends it: paged, within budgets, item by item (SPEC C2)."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from chatui.errors import ChatUIError
from chatui.text import clean_json
from mcpservers.connection import Connection
from mcpservers.errors import RequestFailedError
from mcpservers.visible import is_visible

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
    budgets = settings.MCP
    deadline = time.monotonic() + budgets["LIST_SECONDS"]
    found = Discovery(instructions=str(clean_json(connection.instructions or "")))
    names: set[str] = set()
    cursors: set[str] = set()
    cursor: str | None = None
    size = page_number = 0
    while True:
        page_number += 1
        try:
            params: dict[str, str] = {} if cursor is None else {"cursor": cursor}
            page = await connection.request_raw("tools/list", params, max(0.1, deadline - time.monotonic()))
        except RequestFailedError as error:
            if page_number == 1 and error.rpc_code == METHOD_NOT_FOUND:
                return found  # a server without tools
            if page_number == 1:
                raise
            return _incomplete(found, f"Page {page_number} of the list failed: {error.public_message}")
        except ChatUIError as error:
            if page_number == 1:
                raise
            return _incomplete(found, f"Page {page_number} of the list failed: {error.public_message}")
        items = page.get("tools")
        size += len(json.dumps(items, default=str))
        if size > budgets["LIST_MAX_BYTES"]:
            found.warn(f"The list was cut at {budgets['LIST_MAX_BYTES'] // 2**20} MiB.")
            return found
        for item in items if isinstance(items, list) else ():
            _take(found, item, names)
            if len(found.tools) >= budgets["LIST_MAX_TOOLS"]:
                found.warn(f"The list was cut at {budgets['LIST_MAX_TOOLS']} tools.")
                return found
        following = page.get("nextCursor")
        if not isinstance(following, str) or not following:
            return found
        cursor = following
        if cursor in cursors:
            return _incomplete(found, "The server repeats a page for ever (the same cursor came twice).")
        cursors.add(cursor)
        if page_number >= budgets["LIST_MAX_PAGES"]:
            found.warn(f"The list was cut at {budgets['LIST_MAX_PAGES']} pages.")
            return found
        if time.monotonic() >= deadline:
            return _incomplete(found, f"The list took longer than {budgets['LIST_SECONDS']:g} seconds.")


def _incomplete(found: Discovery, why: str) -> Discovery:
    found.complete = False
    found.warn(why)
    return found


def _take(found: Discovery, item: Any, names: set[str]) -> None:
    """One malformed tool never costs a server its list."""
    if not isinstance(item, Mapping) or not isinstance(item.get("name"), str) or not item["name"].strip():
        found.warn("An item of the list is not a tool: it has no name.")
        return
    tool = clean_json(dict(item))
    name = tool["name"]
    if name in names:
        found.warn("It is listed twice; the first one counts.", name)
        return
    names.add(name)
    texts = [name, tool.get("title"), tool.get("description")]
    if not all(is_visible(text) for text in texts if isinstance(text, str)):
        found.warn("Its name or description holds invisible characters, which were removed.", name)
    found.tools.append(tool)
