"""The product under measurement: a site of its own on SQLite, its server on one core, everything else on another."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks import mcp_echo, processes
from benchmarks.processes import OTHER_CORE, SERVER_CORE, Usage
from tests.whole.site import Site, free_port

ORGANIZATION = "bench"
PACED_TOKENS, PACED_RATE = 400, 50
MODELS = {
    "first": "tokens=10",
    "short": "tokens=20",
    "full": "tokens=2000",
    "fast": "tokens=20000",
    "paced": f"tokens={PACED_TOKENS},rate={PACED_RATE},stamped",
    "tool": "tool=echo,tokens=20",
}
TOOLS_OF_A_SERVER = 50
SERVER_ARGUMENTS = {
    "daphne": ["-m", "daphne", "-b", "127.0.0.1", "-p", "{port}"],
    "uvicorn": [
        *("-m", "uvicorn", "--host", "127.0.0.1", "--port", "{port}", "--log-level", "warning"),
        *("--ws-per-message-deflate", "false"),
    ],
}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What stands around the product while it is measured: ports of the endpoint and of two MCP servers."""

    endpoint: int
    echo: int
    many: int

    @property
    def echo_url(self) -> str:
        return f"http://127.0.0.1:{self.echo}{mcp_echo.PATH}"

    @property
    def many_url(self) -> str:
        return f"http://127.0.0.1:{self.many}{mcp_echo.PATH}"


@contextlib.contextmanager
def surroundings(directory: Path) -> Iterator[Surroundings]:
    """The endpoint and the MCP servers, running on the core that the product does not have."""
    ports = Surroundings(free_port(), free_port(), free_port())
    commands = [
        (ports.endpoint, ["benchmarks.endpoint", str(ports.endpoint)]),
        (ports.echo, ["benchmarks.mcp_echo", str(ports.echo)]),
        (ports.many, ["benchmarks.mcp_echo", str(ports.many), str(TOOLS_OF_A_SERVER)]),
    ]
    with contextlib.ExitStack() as stack:
        for port, (module, *arguments) in commands:
            log = directory / f"{module}-{port}.log"
            stack.enter_context(processes.running("-m", module, *arguments, port=port, core=OTHER_CORE, log=log))
        yield ports


def configuration(ports: Surroundings) -> str:
    """One organization with an agent for each of `MODELS`."""
    everybody = [{"organization": True}]
    models = {slug: {"name": name, "context": 1_000_000} for slug, name in MODELS.items()}
    agents: dict[str, Any] = {
        slug: {"name": slug, "model": f"mock/{slug}", "instructions": "You help.", "grants": everybody}
        for slug in MODELS
    }
    agents["tool"]["servers"] = ["echo"]
    echo = {
        "title": "Echo",
        "transport": "streamable-http",
        "url": ports.echo_url,
        "rules": [{"tool": "*", "do": "allow"}],
        "grants": everybody,
    }
    endpoint = {"base_url": f"http://127.0.0.1:{ports.endpoint}/v1", "api_key": "sk-benchmark", "models": models}
    organization = {"name": "Bench", "endpoints": {"mock": endpoint}, "servers": {"echo": echo}, "agents": agents}
    return yaml.safe_dump({"organizations": {ORGANIZATION: organization}}, sort_keys=False)


class Product(Site):
    """The site, with a server that is bound to its core."""

    def __init__(self, directory: Path, ports: Surroundings, server: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(directory, server=server, env={"LOG_LEVEL": "WARNING"})
        self.ports = ports

    def prepare(self, people: int) -> list[str]:
        """A migrated database with the configuration; the API keys of so many people."""
        self.manage("migrate", "--verbosity", "0")
        self.apply(configuration(self.ports))
        return list(self.inside("people", str(people)))

    def inside(self, *arguments: str, core: int | None = SERVER_CORE) -> Any:
        """What `benchmarks.inside` prints, run with this site's settings while the server is down."""
        command = processes.command(core, "-m", "benchmarks.inside", *arguments)
        env = {**self.env, "TURN_HEARTBEAT_SECONDS": "3600"}
        done = subprocess.run(command, cwd=processes.ROOT, env=env, capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise RuntimeError(f"benchmarks.inside {' '.join(arguments)} failed:\n{done.stderr}")
        return json.loads(done.stdout.splitlines()[-1])

    @contextlib.contextmanager
    def running(self) -> Iterator[float]:
        """The server, up; the seconds from the start of its process to the first answer of `/healthz`."""
        arguments = [part.format(port=self.port) for part in SERVER_ARGUMENTS[self.server]]
        began = time.monotonic()
        self.process = processes.started(SERVER_CORE, *arguments, "chatui.asgi:application", env=self.env, log=self.log)
        try:
            yield self._healthy_after(began)
        finally:
            processes.ended(self.process)

    def _healthy_after(self, began: float) -> float:
        assert self.process is not None
        while True:
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                with urllib.request.urlopen(f"{self.url}/healthz", timeout=10) as answer:
                    assert answer.status == 200
                return time.monotonic() - began
            if self.process.poll() is not None or time.monotonic() - began > 60:
                raise RuntimeError(f"the server does not start:\n{self.log.read_text()}")
            time.sleep(0.005)

    @property
    def usage(self) -> Usage:
        assert self.process is not None
        return Usage(self.process.pid)

    def errors(self) -> Sequence[str]:
        """Lines of the server's log that tell of an error."""
        words = ("Traceback", " ERROR ", " CRITICAL ")
        if not self.log.exists():  # nothing that was measured needed a server
            return []
        return [line for line in self.log.read_text().splitlines() if any(word in line for word in words)]


def versions() -> dict[str, str]:
    from importlib.metadata import version

    names = ("django", "channels", "daphne", "uvicorn", "uvloop", "openai", "mcp", "picows")
    return {"python": sys.version.split()[0], **{name: version(name) for name in names}}
