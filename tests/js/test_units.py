"""Runs the browser modules' own unit tests with node's test runner."""

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def node_version() -> int:
    node = shutil.which("node")
    if node is None:
        return 0
    return int(
        subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.lstrip("v").split(".")[0]
    )


@pytest.mark.node
@pytest.mark.skipif(node_version() < 20, reason="needs Node.js 20 or newer: https://nodejs.org")
def test_the_browser_modules_pass_their_unit_tests() -> None:
    files = [str(path) for path in sorted(HERE.glob("*.test.mjs"))]
    run = subprocess.run(
        ["node", "--import", str(HERE / "register.mjs"), "--test", *files], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stdout + run.stderr
