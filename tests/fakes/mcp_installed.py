"""Other people's MCP servers, installed once into `.cache/` of the checkout and used by every later run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "mcp-servers"
NPM = ("@modelcontextprotocol/server-everything", "@modelcontextprotocol/server-filesystem")
PYPI = ("mcp-server-time", "mcp-server-git")


def _installed(name: str, command: list[str], directory_option: str) -> Path:
    """The directory that `command` filled. Two runs may install at once: the first to finish wins."""
    ready = CACHE / name
    if ready.exists():
        return ready
    CACHE.mkdir(parents=True, exist_ok=True)
    fresh = CACHE / f"{name}.{os.getpid()}"
    done = subprocess.run([*command, directory_option, str(fresh)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(fresh, ignore_errors=True)
        message = f"{' '.join(command)} failed:\n{done.stderr[-1000:]}"
        # CI has the registries; elsewhere a machine without a network can still run the rest.
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    try:
        fresh.rename(ready)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
    return ready


def npm_server(package: str) -> list[str]:
    """The command of an npm server. Skips, with the way to get it, without Node.js."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("needs Node.js 20 or newer: https://nodejs.org, or your system's package `nodejs`")
    where = _installed("npm", [npm, "install", "--no-audit", "--no-fund", *NPM], "--prefix")
    return [node, str(where / "node_modules" / package / "dist" / "index.js")]


def pypi_server(module: str) -> tuple[list[str], dict[str, str]]:
    """The command of a server from PyPI and its environment: it runs apart from our own packages."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PYPI]
    where = _installed(f"python{sys.version_info.major}.{sys.version_info.minor}", pip, "--target")
    return [sys.executable, "-m", module], {"PYTHONPATH": str(where)}
