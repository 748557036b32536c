"""Other people's MCP servers."""

from __future__ import annotations

import shutil
import sys

from tests.fakes.installed import from_npm, installed

NPM = ("@modelcontextprotocol/server-everything", "@modelcontextprotocol/server-filesystem")
PYPI = ("mcp-server-time", "mcp-server-git")


def npm_server(package: str) -> list[str]:
    """The command of an npm server. Skips, with the way to get it, without Node.js."""
    where = from_npm("mcp-servers/npm", *NPM)
    return [shutil.which("node") or "node", str(where / package / "dist" / "index.js")]


def pypi_server(module: str) -> tuple[list[str], dict[str, str]]:
    """The command of a server from PyPI and its environment: it runs apart from our own packages."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PYPI]
    where = installed(f"mcp-servers/python{sys.version_info.major}.{sys.version_info.minor}", pip, "--target")
    return [sys.executable, "-m", module], {"PYTHONPATH": str(where)}
