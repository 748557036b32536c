"""The end of a local server's log, without the secrets that we gave the process."""

from __future__ import annotations

from collections.abc import Iterator

from mcpservers.models import MCPServer, UserVariables
from mcpservers.serverlog import path_of
from mcpservers.visible import visible

SHOWN = 64 * 1024  # bytes
SHORTEST = 4  # characters: what is shorter is no secret, and would be found everywhere


def end_of_log(server: MCPServer) -> str:
    """The last that the processes of `server` wrote to standard error, oldest first; empty if nothing is kept."""
    path = path_of(server.pk)
    data = b"".join(file.read_bytes() for file in (path.with_suffix(".log.1"), path) if file.exists())
    text = visible(data[-SHOWN:].decode(errors="replace"))
    for secret in sorted(_secrets(server), key=len, reverse=True):
        text = text.replace(secret, "••••")
    return text


def _secrets(server: MCPServer) -> Iterator[str]:
    values = [*server.env.values(), *server.headers.values()]
    for variables in UserVariables.objects.filter(server=server):
        values += variables.values.values()
    yield from (value for value in values if len(value) >= SHORTEST)
