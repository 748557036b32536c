"""In CI nothing is left out silently: a test whose part is missing fails there."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from tests.conftest import MAY_SKIP, pytest_runtest_makereport


def reported(request: pytest.FixtureRequest, why: str, outcome: Any = "skipped") -> pytest.TestReport:
    """The report of a test that ended so, as the hook leaves it."""
    where = ("test_x.py", 1, f"Skipped: {why}") if outcome == "skipped" else None
    report = pytest.TestReport("test_x.py::test_x", ("test_x.py", 1, "test_x"), {}, outcome, where, "setup")
    hook = pytest_runtest_makereport(request.node, None)
    next(hook)
    with pytest.raises(StopIteration) as returned:
        hook.send(report)
    result: pytest.TestReport = returned.value.value
    return result


@pytest.mark.parametrize(("ci", "outcome"), [("1", "failed"), ("", "skipped")])
def test_a_test_whose_part_is_missing_fails_in_ci_and_is_skipped_elsewhere(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, ci: str, outcome: str
) -> None:
    monkeypatch.setenv("CI", ci)
    report = reported(request, "needs Chromium")
    assert report.outcome == outcome
    assert "needs Chromium" in str(report.longrepr)


def test_only_what_another_command_runs_or_nobody_can_is_left_out(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "1")
    assert {reported(request, why).outcome for why in MAY_SKIP} == {"skipped"}
    assert reported(request, "", "passed").outcome == "passed"
    of_sqlite = reported(request, "SQLite serves one process").outcome
    assert of_sqlite == ("skipped" if connection.vendor == "sqlite" else "failed")
