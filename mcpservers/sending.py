"""One `tools/call` on a borrowed connection: once more where that does no harm, never of another tool than offered."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.conf import settings

from chatui.errors import PermissionDeniedError
from chatui.rows import in_rows
from mcpservers import connections, fetching, missing, pins
from mcpservers.connection import Connection
from mcpservers.credentials import TokenSource
from mcpservers.discovery import discover
from mcpservers.errors import ConnectionLostError, RequestFailedError
from mcpservers.live_questions import Person
from mcpservers.models import Transport
from mcpservers.pins import owner_of, pin_hash
from mcpservers.transports import ConnectionTarget

Progress = Callable[[float, float | None, str | None], Awaitable[None]]


STALE_SECONDS = 5.0  # rows that were read longer ago say nothing any more of a call that is about to be sent


@dataclass(slots=True)
class Permission:
    """That a call may be made, as rows say that were read at `read_at` (monotonic).

    Until it is sent a call may wait for long: for a connection, for the calls before it, for a list of tools.
    """

    refusal: Callable[[], str] | None = None  # why it may not be made any more, "" if it may; row work
    read_at: float = field(default_factory=lambda: time.monotonic())

    async def require(self, tool: str) -> None:
        """Raise `PermissionDeniedError` if rows that were read just now, or again, refuse the call."""
        if self.refusal is None or time.monotonic() - self.read_at < STALE_SECONDS:
            return
        began = time.monotonic()
        reason = await in_rows(self.refusal)
        if reason:
            raise _denied(tool, reason)
        self.read_at = began


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call. `input_schema`, `output_schema` and `annotations` are the tool's, as its server listed them."""

    tool: str
    arguments: Mapping[str, Any]
    input_schema: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)
    images: bool = False
    pin: str = ""  # the version that was offered
    person: Person | None = None
    permission: Permission = field(default_factory=Permission)
    also: Mapping[str, Any] = field(default_factory=dict, repr=False)  # what goes with it: answers, the server's state


async def known_result(
    target: ConnectionTarget, call: ToolCall, repeatable: bool, progress: Progress
) -> dict[str, Any]:
    """The raw result of a tool that the server knows, else `ToolMissingError`.

    Raises `PermissionDeniedError` where the server turns out to have another version of the tool by now, which nobody
    accepted; else what `Connection.request` raises.
    """
    missing.check(target, call.tool)
    try:
        raw = await _result(target, call, repeatable, progress)
    except RequestFailedError as error:
        if not missing.is_unknown(str(error), call.tool):
            raise
        await missing.look_for(target, call.tool)
        await _require_accepted(target, call, call.pin)
        return await _result(target, call, repeatable, progress)  # the server refused it: it did not run
    if missing.says_unknown(raw, call.tool):
        await missing.look_for(target, call.tool)
    return raw


async def _result(target: ConnectionTarget, call: ToolCall, repeatable: bool, progress: Progress) -> dict[str, Any]:
    """The raw result, from a second connection if the first was lost and a second try cannot do harm."""
    try:
        return await _on_connection(target, call, progress)
    except ConnectionLostError as lost:
        if lost.sent and not repeatable:
            raise
    return await _on_connection(target, call, progress)


async def _on_connection(target: ConnectionTarget, call: ToolCall, progress: Progress) -> dict[str, Any]:
    from mcp.types import HEADER_MISMATCH

    async with (
        connections.manager().borrow(target) as connection,
        connection.questions.turn(has_asked=target.asks_people),
    ):
        await call.permission.require(call.tool)
        try:
            return await _request(connection, call, call.input_schema, progress, target.source)
        except RequestFailedError as error:
            if error.rpc_code != HEADER_MISMATCH:
                raise
        # The server wants arguments repeated in headers as its present schema says; it did not run the tool.
        listed = await _listed(connection, call.tool)
        if listed is not None and call.pin:
            await _require_accepted(target, call, pin_hash(listed))
        schema = listed["inputSchema"] if listed is not None else None
        return await _request(connection, call, schema, progress, target.source)


async def _request(
    connection: Connection,
    call: ToolCall,
    schema: Mapping[str, Any] | None,
    progress: Progress,
    source: TokenSource | None,
) -> dict[str, Any]:
    raw = await connection.request(
        "tools/call",
        {"name": call.tool, "arguments": dict(call.arguments), **call.also},
        timeout=connection.target.timeout,
        limit=max(settings.MCP["CALL_MAX_SECONDS"], connection.target.timeout),
        on_progress=progress,
        headers=_parameter_headers(connection, call, schema),
        person=call.person,
        source=source,
    )
    return _redacted(raw, connection.target) if raw.get("isError") else raw


def _redacted(value: Any, target: ConnectionTarget) -> Any:
    """`value` with our own secrets masked: servers repeat what they refuse."""
    match value:
        case str():
            return target.redact(value)
        case dict():
            return {key: _redacted(item, target) for key, item in value.items()}
        case list():
            return [_redacted(item, target) for item in value]
        case _:
            return value


def _parameter_headers(connection: Connection, call: ToolCall, schema: Mapping[str, Any] | None) -> dict[str, str]:
    """`Mcp-Param-*` for arguments that the schema marks with `x-mcp-header` (MCP 2026-07-28, streamable HTTP)."""
    from mcp.shared.inbound import find_invalid_x_mcp_header, mcp_param_headers, x_mcp_header_map

    stateless_http = connection.era["mode"] == "modern" and connection.transport is not Transport.STDIO
    if not stateless_http or not schema or find_invalid_x_mcp_header(dict(schema)) is not None:
        return {}
    return mcp_param_headers(x_mcp_header_map(dict(schema)), call.arguments)


async def _listed(connection: Connection, tool: str) -> dict[str, Any] | None:
    """The tool as the server lists it now; None if it does not, or without a schema."""
    found = next((item for item in (await discover(connection)).tools if item["name"] == tool), None)
    return found if found is not None and isinstance(found.get("inputSchema"), dict) else None


async def _require_accepted(target: ConnectionTarget, call: ToolCall, pin: str) -> None:
    """Raise `PermissionDeniedError` unless version `pin` may be called, with what the server lists now known."""
    known = await in_rows(pins.of_call, target.server_id, call.tool, target.user_id or UUID(int=0), own=target.is_own)
    reason = known.refusal(owner_of(target), pin)
    if reason:
        fetching.fetches().changed(target)  # so that the admin sees it too
        raise _denied(call.tool, reason)


def _denied(tool: str, reason: str) -> PermissionDeniedError:
    message = f"The call of “{tool}” is denied. {reason}"
    return PermissionDeniedError(message, public_message=message)
