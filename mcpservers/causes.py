"""Why connecting failed, in words: for the person who asked, and, with more in it, for the admin."""

from __future__ import annotations

import errno
import re
from typing import TYPE_CHECKING

import httpx2

from chatui.errors import ChatUIError
from chatui.text import duration, shorten
from mcpservers.errors import ServerUnavailableError
from mcpservers.visible import visible

if TYPE_CHECKING:
    from mcpservers.clients import Attempts
    from mcpservers.transports import ConnectionTarget

_TOO_LARGE = re.compile(r"(?:larger than|exceeded the) (\d+)")
_STATUS = {
    401: "it wants a sign-in, or the credentials are wrong (HTTP 401)",
    403: "it refuses the credentials (HTTP 403)",
    404: "there is nothing at this address (HTTP 404)",
    429: "it is asked too often (HTTP 429)",
}


def leaf(error: BaseException) -> BaseException:
    """The first real error inside nested exception groups."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error


def unavailable(target: ConnectionTarget, error: BaseException, attempts: Attempts) -> ServerUnavailableError:
    """What to raise when connecting to `target` failed with `error`."""
    cause = shorten(visible(_cause(target, error, attempts)), 500).rstrip(".")
    tail = visible(attempts.stdio.log.tail()) if attempts.stdio is not None else ""
    detail = f"“{target.title}” cannot be reached: {cause}."
    if tail:
        detail = f"{detail}\nThe process wrote:\n{tail}"
    failure = ServerUnavailableError(
        target.redact(detail), public_message=target.redact(f"“{target.title}” cannot be reached: {cause}.")
    )
    failure.http_status, failure.challenge = attempts.note.status, attempts.note.challenge
    return failure


def _cause(target: ConnectionTarget, error: BaseException, attempts: Attempts) -> str:
    if attempts.stdio is not None:
        return _process_cause(target, error, attempts)
    if isinstance(error, ChatUIError):
        return error.public_message.rstrip(".")
    if isinstance(error, TimeoutError | httpx2.TimeoutException):
        return f"no answer within {target.connect_timeout:g} s"
    if isinstance(error, httpx2.TransportError):
        return str(error) or type(error).__name__
    status = attempts.note.status
    if status is not None and status >= 400:
        return _STATUS.get(status, f"it answers with HTTP {status}")
    return _answer_cause(error)


def _process_cause(target: ConnectionTarget, error: BaseException, attempts: Attempts) -> str:
    if isinstance(error, TimeoutError):
        return f"the process did not answer within {target.connect_timeout:g} s"
    if isinstance(error, FileNotFoundError):
        return f"there is no command “{target.command}”"
    if isinstance(error, OSError):
        return f"“{target.command}” cannot be started ({errno.errorcode.get(error.errno or 0, error)})"
    assert attempts.stdio is not None
    code = attempts.stdio.returncode
    if code is not None and attempts.stdio.lost.is_set():
        return f"the process ended (exit code {code}) before it answered"
    return _answer_cause(error)


def _answer_cause(error: BaseException) -> str:
    return in_words(str(error)) or type(error).__name__


def in_words(text: str) -> str:
    """What the SDK says of an answer that it cannot use, for people and the model: its parser's words help neither."""
    if "Unexpected content type" in text:
        kind = text.rpartition(":")[2].strip() or "no content type"
        return f"it does not answer as an MCP server ({kind}); check the address"
    if text.startswith(("Failed to parse", "SSE stream failed")):
        found = _TOO_LARGE.search(text)
        return f"the answer is larger than {found[1]} bytes" if found else "its answer is not valid JSON-RPC"
    return text


def status_words(status: int, retry_after: str = "") -> str:
    """What an HTTP status means for a request to a server that was connected to before."""
    words = _STATUS.get(status, f"it answers with HTTP {status}")
    if not retry_after:
        return words
    when = f"in {duration(min(float(retry_after), 1e9))}" if retry_after.isdecimal() else f"after {retry_after}"
    return f"{words}; it can be tried again {when}"
