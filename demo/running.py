"""Makes what the demo needs, once, and serves it: keys, database, organization, model, and the server itself."""

from __future__ import annotations

import errno
import json
import logging
import os
import secrets
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demo.endpoint import OLLAMA, Choice, choose
from demo.model import NAME, DemoModel

if TYPE_CHECKING:
    from demo.notes.server import NotesServer

HOST = "127.0.0.1"
HERE = Path(__file__).resolve().parent
KEYS = "demo.env"
MEMORY = "demo.json"  # which addresses the demo set last, so that what a person set is left alone
NOTES = "notes.json"  # what the notes server keeps


class DemoError(Exception):
    """The demo cannot start; the text is one line that says why and what to do."""


def run(port: int, var: Path) -> None:
    """Serve until Ctrl-C. Raises `DemoError`."""
    if not sys.platform.startswith(("linux", "darwin")):
        raise DemoError("The demo runs on Linux and macOS; on Windows use WSL.")
    require_free(port)
    prepare_folder(var)
    with socket.create_server((HOST, 0)) as listening, notes_socket(var) as door:
        model, notes = DemoModel(listening), DemoNotes(door, var)
        prepare_environment(var, port, model.base_url, notes.url)
        import django

        django.setup()
        from chatui import embedded

        embedded.claim_or_exit()
        remember_address(var, port)
        model.start()
        try:
            choice = prepare_data(var, model, notes.url)
            serve(port, lambda: begin(port, choice, notes))
        finally:
            notes.stop()
            model.stop()


class DemoNotes:
    """The notes server (`demo.notes`) on a socket that listens already; what it needs is imported at `start`."""

    def __init__(self, sock: socket.socket, var: Path) -> None:
        self._sock, self._file = sock, var / NOTES
        self._server: NotesServer | None = None
        self.url = f"http://{HOST}:{sock.getsockname()[1]}/mcp"

    def start(self) -> None:
        """After our own port is open, which a person waits for: whoever asks here earlier waits a moment."""
        from demo.notes.server import NotesServer

        self._server = NotesServer(self._sock, self._file)
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()


def notes_socket(var: Path) -> socket.socket:
    """Where the notes server listened last time, so that linked accounts stay, if nobody else does now."""
    last = _remembered(var).get("notes_url", "")
    try:
        return socket.create_server((HOST, int(last.rpartition(":")[2].partition("/")[0] or 0)))
    except (OSError, ValueError):
        return socket.create_server((HOST, 0))


# --- Before Django ----------------------------------------------------------------------------------------------------


def require_free(port: int) -> None:
    """Raise `DemoError` if nobody may listen on `port`."""
    if not 1 <= port <= 65535:
        raise DemoError(f"There is no port {port}: choose one from 1024 to 65535.")
    try:
        with socket.create_server((HOST, port)):
            pass
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            other = port + 1
            raise DemoError(f"Port {port} is in use. Choose another one: make demo PORT={other}") from None
        raise DemoError(f"Port {port} cannot be used: {error.strerror}. Choose another one with --port.") from None


def prepare_folder(var: Path) -> None:
    """Make `var` and, once, the keys in it, which only their owner may read. Raises `DemoError`."""
    _write_keys(var, {})


def remember_address(var: Path, port: int) -> None:
    """Where links of `manage.py` lead. Only once the data is claimed: a demo that runs from here has its own port."""
    _write_keys(var, {"BASE_URL": f"http://{HOST}:{port}"})


def _write_keys(var: Path, more: dict[str, str]) -> None:
    keys = var / KEYS
    try:
        var.mkdir(parents=True, exist_ok=True)
        stored = _read_keys(keys) or {
            "SECRET_KEY": secrets.token_urlsafe(48),
            "ENCRYPTION_KEYS": secrets.token_urlsafe(32),
        }
        lines = "".join(f"{name}={value}\n" for name, value in (stored | more).items())
        new = keys.with_suffix(".new")
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(file, "w") as text:
            text.write(f"# Made by the demo. Without these keys its stored secrets cannot be read.\n{lines}")
        os.replace(new, keys)
    except OSError as error:
        raise DemoError(f"{var} cannot be written to ({error.strerror}): set VAR_DIR to another folder.") from None


def _read_keys(keys: Path) -> dict[str, str]:
    if not keys.exists():
        return {}
    pairs = (line.split("=", 1) for line in keys.read_text().splitlines() if "=" in line and not line.startswith("#"))
    return {name: value for name, value in pairs}  # noqa: C416  # typed as pairs only so


def prepare_environment(var: Path, port: int, *urls: str) -> None:
    """What the settings will read: this folder's database, no Redis, and the addresses that the demo may reach."""
    import environ

    environ.Env.read_env(HERE.parent / ".env")
    allowed = [os.environ.get("MCP_ALLOW_PRIVATE", ""), *(url.split("/")[2] for url in (*urls, OLLAMA))]
    database = os.environ.get("DATABASE_URL", "")
    os.environ.update(
        DJANGO_SETTINGS_MODULE="chatui.settings",
        VAR_DIR=str(var),
        # Never the operator's own database: the demo writes a superuser into it.
        DATABASE_URL=database if database.startswith("sqlite:") else f"sqlite:///{var / 'chatui.sqlite3'}",
        REDIS_URL="",
        BASE_URL=f"http://{HOST}:{port}",
        ALLOWED_HOSTS="127.0.0.1,localhost",
        MCP_ALLOW_PRIVATE=",".join(filter(None, allowed)),
    )
    os.environ.setdefault("LOG_LEVEL", "WARNING")


# --- Data -------------------------------------------------------------------------------------------------------------


def prepare_data(var: Path, model: DemoModel, notes_url: str) -> Choice:
    """Migrate, make the demo organization once, and point it at the model and the notes that are there today."""
    from django.core.management import call_command

    from accounts.models import Organization
    from conversations.configuration.applying import apply_configuration

    call_command("migrate", verbosity=0, interactive=False)
    choice = choose(os.environ, Choice("Scripted demo model", model.base_url, NAME))
    if Organization.objects.filter(slug="demo").exists():
        last = _remembered(var)
        point_endpoint(choice, last)
        point_notes(notes_url, last)
    else:
        environment = choice.environment() | {"DEMO_NOTES_URL": notes_url}
        apply_configuration((HERE / "chatui.yaml").read_text(), environment=environment)
    (var / MEMORY).write_text(json.dumps({"base_url": choice.base_url, "notes_url": notes_url}))
    return choice


def _remembered(var: Path) -> dict[str, Any]:
    memory = var / MEMORY
    stored = json.loads(memory.read_text()) if memory.exists() else {}
    return stored if isinstance(stored, dict) else {}


def point_endpoint(choice: Choice, last: dict[str, Any]) -> None:
    """Give the demo's endpoint today's address, unless a person has given it one in the administration."""
    from agents.models import ModelEndpoint, ModelProfile

    endpoint = ModelEndpoint.objects.as_system().filter(organization__slug="demo", slug="main").first()
    if endpoint is None or endpoint.base_url != last.get("base_url"):
        return
    endpoint.name, endpoint.base_url = choice.name, choice.base_url
    endpoint.api_key, endpoint.dialect = choice.api_key, choice.dialect
    endpoint.save()
    ModelProfile.objects.as_system().filter(endpoint=endpoint, slug="main").update(
        name=choice.model, title=choice.model
    )


def point_notes(url: str, last: dict[str, Any]) -> None:
    """Give the demo's notes server today's address, unless a person has given it one in the administration."""
    from mcpservers.models import MCPServer

    server = MCPServer.objects.as_system().filter(organization__slug="demo", slug="notes").first()
    if server is not None and server.url == last.get("notes_url") != url:
        server.url = url
        server.save()


# --- The server -------------------------------------------------------------------------------------------------------


def begin(port: int, choice: Choice, notes: DemoNotes) -> None:
    """What is done when the server listens."""
    announce(port, choice)
    notes.start()


def announce(port: int, choice: Choice) -> None:
    """Print where to go, when the server listens."""
    from django.db import connections
    from django.urls import reverse

    from accounts.models import SigninLink, User

    address = f"http://{HOST}:{port}"
    person = User.objects.filter(username="demo", is_active=True).first()
    link = address + reverse("signin_link", args=[SigninLink.issue(person)]) if person else ""
    connections.close_all()
    print(f"\n  chatui runs at {address}/  (administration: {address}/admin/)\n")
    if link:
        print(f"  Sign in with this link, once, within ten minutes:\n  {link}\n")
    print(f"  {choice.note or 'No key is set: the scripted demo model answers.'}  Ctrl-C stops.\n", flush=True)


def serve(port: int, ready: Callable[[], None]) -> None:
    """Run the ASGI application under Daphne until a signal; it closes everything itself (`chatui.lifecycle`)."""
    from daphne.server import Server  # installs the reactor, which the application then hooks into
    from django.conf import settings

    from chatui.asgi import application

    logging.getLogger("daphne").setLevel(logging.ERROR)
    Server(
        application,
        endpoints=[f"tcp:port={port}:interface={HOST}"],
        ready_callable=_in_thread(ready),
        application_close_timeout=5,
        # Daphne's own limit is lower than what the socket is said to take.
        websocket_max_message_size=settings.SOCKET["MAX_MESSAGE"],
        websocket_max_frame_size=settings.SOCKET["MAX_MESSAGE"],
        verbosity=0,
    ).run()


def _in_thread(work: Callable[[], None]) -> Callable[[], None]:
    """Rows are not touched on the event loop: `work` runs beside it."""

    def start() -> None:
        from twisted.internet import reactor

        reactor.callInThread(work)

    return start
