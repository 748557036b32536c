"""What the suite found, as a table at the end of the run."""

from __future__ import annotations

from typing import Any

import pytest


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
    terminalreporter.write_line("auth/*: not played yet; they need the sign-in of linked accounts.")
