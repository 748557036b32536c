"""Every tool of a dozen servers that other people wrote, repaired for each dialect: `make real-servers`.

It installs what takes minutes, so it is not part of `make test`; docs/reference/real-servers.md tells what it found.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mcpservers.discovery import discover
from mcpservers.schemas import DIALECTS, Quarantined, repair
from tests.fakes.installed import CACHE
from tests.fakes.mcp_targets import managed, target
from tests.mcpservers.accepting import assert_accepted

pytestmark = [
    pytest.mark.node,
    pytest.mark.deadline(600),  # programs of other people are installed and started
    pytest.mark.skipif("REAL_SERVERS" not in os.environ, reason="installs a dozen servers: make real-servers"),
]


@dataclass(frozen=True)
class Server:
    """A package at a version; `run` is its program (npm: a file of the package; PyPI: a command), `env` its secrets."""

    package: str
    version: str
    run: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    npm: bool = True


SERVERS = (
    Server("@modelcontextprotocol/server-everything", "2026.8.31", "dist/index.js"),
    Server("@modelcontextprotocol/server-filesystem", "2026.8.31", "dist/index.js", ("/tmp",)),
    Server("@modelcontextprotocol/server-memory", "2026.8.31", "dist/index.js"),
    Server("@modelcontextprotocol/server-sequential-thinking", "2026.8.31", "dist/index.js"),
    Server("@modelcontextprotocol/server-github", "2025.4.8", "dist/index.js"),
    Server("@playwright/mcp", "0.0.83", "cli.js", ("--headless",)),
    Server("@upstash/context7-mcp", "4.1.1", "dist/index.js"),
    Server("@notionhq/notion-mcp-server", "2.5.2", "bin/cli.mjs", env={"NOTION_TOKEN": "ntn_none"}),
    Server("chrome-devtools-mcp", "1.11.0", "build/src/bin/chrome-devtools-mcp.js"),
    Server("tavily-mcp", "0.2.22", "build/index.js", env={"TAVILY_API_KEY": "tvly-none"}),
    Server("firecrawl-mcp", "3.26.0", "dist/index.js", env={"FIRECRAWL_API_KEY": "fc-none"}),
    Server("mcp-server-time", "2026.10.19", "mcp-server-time", npm=False),
    Server("mcp-server-git", "2026.10.19", "mcp-server-git", npm=False),
    Server("mcp-server-fetch", "2026.10.24", "mcp-server-fetch", npm=False),
    Server("excel-mcp-server", "2.2.2", "excel-mcp-server", ("stdio",), npm=False),
    Server("duckduckgo-mcp-server", "0.7.0", "duckduckgo-mcp-server", npm=False),
    Server("wikipedia-mcp", "2.0.1", "wikipedia-mcp", npm=False),
)


def command_of(server: Server) -> list[str]:
    """Its command, installed alone into the cache: what one needs is not what another needs."""
    where = CACHE / "mcp-servers" / "many" / f"{server.package.replace('/', '+')}@{server.version}"
    if not where.exists():
        fresh = where.with_name(f"{where.name}.{os.getpid()}")
        _install(server, fresh)
        fresh.rename(where)
    if server.npm:
        return [shutil.which("node") or "node", str(where / "node_modules" / server.package / server.run)]
    script = f"import sys; from importlib.metadata import entry_points as e; sys.argv[0] = {server.run!r}; "
    return [sys.executable, "-c", script + f"next(iter(e(group='console_scripts', name={server.run!r}))).load()()"]


def _install(server: Server, where: Path) -> None:
    where.mkdir(parents=True)
    if server.npm:
        npm = [shutil.which("npm") or "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]
        subprocess.run([*npm, str(where), f"{server.package}@{server.version}"], check=True, capture_output=True)
    else:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"]
        subprocess.run([*pip, str(where), f"{server.package}=={server.version}"], check=True, capture_output=True)


@pytest.fixture(scope="module")
def found() -> Any:
    rows: list[dict[str, Any]] = []
    yield rows
    if rows:
        (CACHE / "mcp-servers" / "real-servers.json").write_text(json.dumps(rows, indent=1))
        print("\n" + table(rows))


def table(rows: list[dict[str, Any]]) -> str:
    """As the reference has it: tools, those whose schema was changed for each dialect, those that no model is shown."""
    keys = ("tools", *DIALECTS, "quarantined")
    return "\n".join(
        f"| `{row['package']}` {row['version']} | {' | '.join(str(row[key]) for key in keys)} | {row['ms']:.1f} |"
        for row in rows
    )


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.package)
async def test_every_tool_of_a_real_server_is_accepted_by_every_dialect(
    server: Server, found: list[dict[str, Any]], settings: Any, tmp_path: Path
) -> None:
    settings.VAR_DIR = tmp_path
    program, *args = command_of(server)
    where = CACHE / "mcp-servers" / "many" / f"{server.package.replace('/', '+')}@{server.version}"
    env = {**server.env, **({} if server.npm else {"PYTHONPATH": str(where)})}
    local = target(
        transport="stdio", command=program, args=[*args, *server.args], env=env, timeout=60, connect_timeout=120
    )
    async with managed() as manager, manager.borrow(local) as connection:
        listed = await discover(connection)
    assert listed.complete
    assert listed.tools
    row: dict[str, Any] = {
        "package": server.package,
        "version": server.version,
        "tools": len(listed.tools),
        "quarantined": 0,
    }
    row |= dict.fromkeys(DIALECTS, 0) | {"ms": 0.0}
    found.append(row)
    for dialect in DIALECTS:
        for tool in listed.tools:
            began = time.perf_counter()
            repaired = repair(tool.get("inputSchema"), dialect)
            row["ms"] += (time.perf_counter() - began) * 1000
            if isinstance(repaired, Quarantined):
                row["quarantined"] += 1
                continue
            row[dialect] += repaired.parameters != tool.get("inputSchema")
            assert_accepted(repaired.parameters, dialect)
            again = repair(repaired.parameters, dialect)
            assert not isinstance(again, Quarantined)
            assert again.parameters == repaired.parameters
