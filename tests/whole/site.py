"""`Site`: the product as a process of its own, driven only from outside: commands, HTTP, the websocket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import aiohttp
import orjson

ROOT = Path(__file__).resolve().parent.parent.parent
START_SECONDS = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Site:
    """One server on loopback with its own directory and SQLite database (or `database_url`).

    `server` is `daphne` or `uvicorn`. `kill()` is SIGKILL, `stop()` is SIGTERM; `start()` again keeps the data.
    """

    def __init__(
        self, directory: Path, *, server: str = "daphne", database_url: str = "", env: Mapping[str, str] | None = None
    ) -> None:
        self.directory, self.server = directory, server
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        self.keys: dict[tuple[str, ...], str] = {}  # of acme that exist already, by (user, *scopes)
        inherited = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TMPDIR")}
        self.env = {
            **inherited,
            "DJANGO_SETTINGS_MODULE": "chatui.settings",
            "VAR_DIR": str(directory),
            "DATABASE_URL": database_url or f"sqlite:///{directory / 'chatui.sqlite3'}",
            "SECRET_KEY": "site-" + "x" * 50,
            "ENCRYPTION_KEYS": "key-of-the-site",
            "BASE_URL": self.url,
            "MCP_ALLOW_PRIVATE": "127.0.0.1,localhost",
            "PYTHONUNBUFFERED": "1",
            **(env or {}),
        }
        self.log = directory / "server.log"

    # --- Commands ---

    def manage(self, *arguments: str, check: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
        """Run `manage.py` with this site's settings."""
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env={**self.env, **env},
            check=check,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def apply(self, configuration: str, **env: str) -> str:
        """Apply a configuration file, given as text."""
        path = self.directory / "site.yaml"
        path.write_text(configuration)
        done = self.manage("apply_config", str(path), check=False, **env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def key(self, user: str, organization: str, *scopes: str) -> str:
        """An API key: one that the database was prepared with, or a fresh one."""
        if organization == "acme" and (user, *scopes) in self.keys:
            return self.keys[user, *scopes]
        options = ["--scope", ",".join(scopes)] if scopes else []
        return self.manage("createapikey", user, "--org", organization, "--name", "tests", *options).stdout.split()[-1]

    def until_stored(self, text: str) -> None:
        """Wait until an answer that contains `text` is in this site's SQLite database."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with contextlib.closing(sqlite3.connect(self.directory / "chatui.sqlite3", timeout=20)) as database:
                if database.execute(
                    "SELECT 1 FROM conversations_message WHERE role = 'assistant' AND parts LIKE ?", (f"%{text}%",)
                ).fetchone():
                    return
        raise AssertionError(f"{text!r} was not stored")

    # --- The server ---

    def start(self) -> Self:
        """Start the server and wait until it answers."""
        host, port = "127.0.0.1", str(self.port)
        command = {
            "daphne": ["-m", "daphne", "-b", host, "-p", port, "chatui.asgi:application"],
            "uvicorn": [
                "-m",
                "uvicorn",
                "--host",
                host,
                "--port",
                port,
                "--log-level",
                "warning",
                "chatui.asgi:application",
            ],
        }[self.server]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command], cwd=ROOT, env=self.env, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return self

    def kill(self) -> None:
        """As a crash: nothing is told, nothing is closed."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """As a deployment does it."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(timeout=60)
            self.process = None

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(timeout=10)
        self.process = None

    # --- The websocket ---

    @contextlib.asynccontextmanager
    async def socket(self, organization: str, key: str) -> Any:
        """A socket opened with an API key."""
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(
                f"{self.url}/ws/o/{organization}/",
                headers={"Authorization": f"Bearer {key}"},
                max_msg_size=2**24,
            ) as ws,
        ):
            yield SiteSocket(ws)


class SiteSocket:
    """A websocket of a site; `seen` holds every frame."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        self.ws = ws
        self.seen: list[dict[str, Any]] = []

    async def send(self, type: str, **fields: Any) -> None:
        await self.ws.send_str(orjson.dumps({"type": type, **fields}).decode())

    async def until(self, *types: str, seconds: float = 30.0) -> dict[str, Any]:
        """The first further frame of one of these types. Raises `ConnectionError` when the server closes."""
        async with asyncio.timeout(seconds):
            while True:
                message = await self.ws.receive()
                if message.type is not aiohttp.WSMsgType.TEXT:
                    raise ConnectionError(f"closed with {self.ws.close_code}")
                frame: dict[str, Any] = orjson.loads(message.data)
                self.seen.append(frame)
                if frame["type"] in types:
                    return frame
