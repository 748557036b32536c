"""What a local server writes to its standard error: kept in a small file for diagnosis, its end in memory."""

from __future__ import annotations

import logging
import os
from collections import deque
from pathlib import Path
from uuid import UUID

from django.conf import settings

logger = logging.getLogger(__name__)
FILE_LIMIT = 512 * 1024  # bytes; the file before it is kept too
TAIL_LIMIT = 8 * 1024


def path_of(server_id: UUID) -> Path:
    """Where the log of a server lies; it may not exist yet."""
    return Path(settings.VAR_DIR) / "mcp-logs" / f"{server_id}.log"


class ServerLog:
    """Appends to the log file of one server. Several connections may write to it; a full disk costs only the log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tail: deque[bytes] = deque()
        self._kept = 0

    def write(self, data: bytes) -> None:
        self._tail.append(data[-TAIL_LIMIT:])
        self._kept += len(self._tail[-1])
        while self._kept - len(self._tail[0]) >= TAIL_LIMIT:
            self._kept -= len(self._tail.popleft())
        try:
            self._append(data[-FILE_LIMIT:])
        except OSError as error:
            logger.warning("The log %s cannot be written: %s", self.path, error)

    def _append(self, data: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Whatever a server prints may hold secrets: for the operator's eyes only.
        with os.fdopen(os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as file:
            file.write(data)
            size = file.tell()
        if size > FILE_LIMIT:
            self.path.replace(self.path.with_suffix(".log.1"))

    def tail(self, characters: int = 2000) -> str:
        """The last that this connection's process wrote, at most `characters`."""
        return b"".join(self._tail).decode(errors="replace").strip()[-characters:]
