"""Log records as lines: one record begins one line, whatever is in the words of servers and people that it repeats."""

from __future__ import annotations

import logging
import re

# Controls, line ends of Unicode, and signs that turn the direction of text in a terminal.
_UNSAFE = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


class LineFormatter(logging.Formatter):
    """Writes control characters of a message as escapes, and indents what is below it (tracebacks).

    So nobody whose words are logged can begin a line that looks like a record, or steer a terminal.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = _UNSAFE.sub(lambda sign: sign[0].encode("unicode_escape").decode(), record.message)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:
        return _indented(super().formatException(ei))  # type: ignore[arg-type]  # typeshed's alias is private

    def formatStack(self, stack_info: str) -> str:
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    lines = re.split(r"\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]", text)
    return "\n".join("  " + _UNSAFE.sub(lambda sign: sign[0].encode("unicode_escape").decode(), line) for line in lines)
