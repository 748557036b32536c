"""Other people's packages that tests run, installed once into `.cache/` of the checkout and used by every later run."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

CACHE = Path(__file__).resolve().parents[2] / ".cache"


def installed(name: str, command: Sequence[str], directory_option: str) -> Path:
    """The directory `name` in the cache, which `command` fills. Two may install at once: the first to finish wins."""
    ready = CACHE / name
    if ready.exists():
        return ready
    ready.parent.mkdir(parents=True, exist_ok=True)
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


def from_npm(name: str, *packages: str) -> Path:
    """The `node_modules` that npm filled with `packages`. Skips, with the way to get it, without Node.js."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("needs Node.js 20 or newer: https://nodejs.org, or your system's package `nodejs`")
    return installed(name, [npm, "install", "--no-audit", "--no-fund", *packages], "--prefix") / "node_modules"
