"""Who is quoted in a log cannot write a record of their own, or steer the terminal that shows it."""

from __future__ import annotations

import logging
import sys

from django.conf import settings

from chatui.log_lines import LineFormatter
from tests.fakes.hostile_mcp import LOGGED, attack

FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


def written(message: str, *values: object, error: BaseException | None = None) -> str:
    info = (type(error), error, error.__traceback__) if error is not None else None
    return LineFormatter(FORMAT).format(logging.LogRecord("here", logging.ERROR, "", 0, message, values, info))


def test_a_message_is_one_line_without_controls_and_nothing_of_it_is_lost() -> None:
    line = written("It said: %s", attack("log") + LOGGED)
    assert "\n" not in line
    assert "\x1b" not in line
    assert "\u202e" not in line
    assert "\\r\\nERROR forged" in line
    assert "\\u202e" in line


def test_a_plain_message_stays_as_it_is() -> None:
    assert written("Ünïcode “and” \t tabs: %d", 5).endswith("ERROR here Ünïcode “and” \t tabs: 5")


def test_a_traceback_is_indented_whatever_the_error_says() -> None:
    try:
        raise ValueError("bad\n2026-01-01 ERROR forged\x1b[2J\u2028also")
    except ValueError as error:
        lines = written("Failed", error=error).split("\n")
    assert len(lines) > 3
    assert all(line.startswith("  ") for line in lines[1:])
    assert not any("\x1b" in line or "\u2028" in line for line in lines)
    assert sys.exc_info() == (None, None, None)


def test_the_product_logs_so() -> None:
    assert settings.LOGGING["formatters"]["line"]["()"] == "chatui.log_lines.LineFormatter"
