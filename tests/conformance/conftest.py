"""How scenarios of the suite are run, and what it found, as a table at the end of the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accounts.actors import Actor
from accounts.models import User
from chatui.rows import in_rows
from mcpservers import entries
from tests.conformance import suite
from tests.conformance.driver import Play, drive, driving

Run = Callable[..., Any]


@pytest.fixture
async def run(bob: User, actor_of: Callable[[User], Actor], tmp_path: Path) -> Run:
    """Run a scenario of the suite."""
    actor = await in_rows(actor_of, bob)

    async def run(version: str, name: str, revision: str = "", play: Play = drive) -> suite.Outcome:
        entries.memory.clear()
        async with driving(actor, play) as socket:
            return await suite.run(version, name, socket, tmp_path, revision)

    return run


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind)]
    rows = sorted(
        (value, report.outcome)
        for report in reports
        if isinstance(report, pytest.TestReport)
        for key, value in report.user_properties
        if key == "conformance"
    )
    if not rows:
        return
    terminalreporter.section("MCP conformance, client scenarios")
    for (version, name, revision, passed, failed, not_yet), outcome in rows:
        verdict = "not yet" if not_yet and outcome == "passed" else outcome if passed or failed else "no checks"
        scenario = f"{name} ({revision})" if revision else name
        terminalreporter.write_line(f"{version:15} {scenario:52} {passed:3} of {passed + failed:3}  {verdict}")
