"""The official MCP conformance suite: installed once into `.cache/`, its client scenarios run one at a time."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PACKAGE = "@modelcontextprotocol/conformance"
VERSIONS = ("0.1.16", "0.2.0-alpha.12")
SECONDS = 30  # for one scenario
HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache" / "conformance"


@dataclass(frozen=True)
class Outcome:
    """What the suite saw. `failed` are the ids of the checks that did not pass, with the suite's words."""

    passed: int
    failed: dict[str, str]
    code: int  # 0: everything passed, and the client ended well
    output: str

    @property
    def ok(self) -> bool:
        return self.code == 0 and not self.failed


def installed(version: str) -> Path:
    """The suite's program. Skips, with the way to get it, without Node.js."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("needs Node.js 20 or newer: https://nodejs.org, or your system's package `nodejs`")
    where = CACHE / version
    program = where / "node_modules" / PACKAGE / "dist" / "index.js"
    if program.exists():
        return program
    fresh = CACHE / f"{version}.{os.getpid()}"
    fresh.mkdir(parents=True, exist_ok=True)
    install = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(fresh), f"{PACKAGE}@{version}"]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(fresh, ignore_errors=True)
        message = f"{' '.join(install)} failed:\n{done.stderr[-1000:]}"
        # CI has the registry; elsewhere a machine without a network can still run the rest.
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    try:
        fresh.rename(where)
    except OSError:  # another run was faster
        shutil.rmtree(fresh, ignore_errors=True)
    return program


def _node(version: str, *arguments: str) -> list[str]:
    return ["node", "--import", str(HERE / "preload.mjs"), str(installed(version)), *arguments]


def listed(version: str) -> set[str]:
    """The names of every client scenario of that version."""
    done = subprocess.run(_node(version, "list", "--client"), capture_output=True, text=True, check=True)
    return set(re.findall(r"^  - (\S+)", done.stdout, re.MULTILINE))


async def run(version: str, scenario: str, socket: Path, results: Path, revision: str = "") -> Outcome:
    """Run one scenario against whoever listens on `socket`; its files go into `results`."""
    command = shlex.join([sys.executable, "-S", "-E", str(HERE / "relay.py"), str(socket)])
    arguments = ["client", "--command", command, "--scenario", scenario, "-o", str(results)]
    arguments += ["--timeout", str(SECONDS * 1000), *(["--spec-version", revision] if revision else [])]
    process = await asyncio.create_subprocess_exec(
        *_node(version, *arguments), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        output, _ = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    return _outcome(results, process.returncode or 0, output.decode())


def _outcome(results: Path, code: int, output: str) -> Outcome:
    checks: list[dict[str, Any]] = []
    for file in results.rglob("checks.json"):
        checks += json.loads(file.read_text())
    failed = {
        check["id"]: check.get("errorMessage") or check.get("description") or ""
        for check in checks
        if check["status"] in ("FAILURE", "WARNING")
    }
    passed = sum(check["status"] == "SUCCESS" for check in checks)
    return Outcome(passed, failed, code, output)
