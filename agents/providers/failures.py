"""How a failed request to an endpoint is told: which error, and which of the endpoint's words may be shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from agents.providers.assembler import StreamError
from agents.providers.chat_model import (
    EndpointAuthenticationError,
    EndpointError,
    EndpointRateLimitedError,
    EndpointRequestError,
    EndpointTimeoutError,
    EndpointUnavailableError,
)
from chatui.text import clean, shorten

MAX_DETAIL = 300  # characters
MASK = "•••"
MAX_WAIT = 365 * 86400.0  # seconds; a longer `Retry-After` is a mistake, or a joke
_SECRETS = re.compile(
    r"\b(?:sk|pk|rk|gsk|key|xai|hf|api)[-_][A-Za-z0-9*._-]{6,}"
    r"|\bAIza[A-Za-z0-9_-]{10,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_.-]+"
    r"|(?i:\bbearer\s+)[^\s\"',;]{4,}"
    r"|(?i:\bauthorization\b[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic|token)\s+)?)[^\s\"',;]{4,}"
    r"|(?i:\b(?:token|secret|password|api[-_ ]?key)\b[\"']?\s*[:=]\s*[\"']?)[^\s\"',;]{4,}"
)
_ADDRESSES = re.compile(
    r"(?<![\d.])(?:(?:10|127)\.\d{1,3}|192\.168|169\.254|172\.(?:1[6-9]|2\d|3[01]))\.\d{1,3}\.\d{1,3}(?::\d+)?"
    r"|\blocalhost(?::\d+)?\b|\[::1\](?::\d+)?"
)


def mask(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` without the given secrets and without what looks like a key, a bearer token or an internal address."""
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, MASK)
    return _ADDRESSES.sub(MASK, _SECRETS.sub(MASK, text))


def detail_of(message: str, secrets: Iterable[str] = ()) -> str:
    """An endpoint's words, to be shown: masked, one line, at most `MAX_DETAIL` characters."""
    return shorten(mask(clean(message), secrets), MAX_DETAIL)


def status_error(status: int, headers: Mapping[str, str], body: Any, secrets: Iterable[str]) -> EndpointError:
    """The error of an answer with an HTTP status that is not a success. The words of 401 and 403 are never used."""
    message = _message(body)
    if status in (401, 403):
        return EndpointAuthenticationError(f"HTTP {status}", http_status=status)
    detail = detail_of(message, secrets)
    log = f"HTTP {status}: {detail}"
    wait = retry_after(headers)
    if status == 429:
        return EndpointRateLimitedError(log, detail=detail, http_status=status, retry_after=wait)
    if status == 408:
        return EndpointTimeoutError(log, detail=detail, http_status=status, retry_after=wait)
    if 300 <= status < 400:
        return redirect_error(status)
    if status >= 500 or status == 409:
        return EndpointUnavailableError(log, detail=detail, http_status=status, retry_after=wait)
    return EndpointRequestError(log, detail=detail, http_status=status)


def redirect_error(status: int) -> EndpointError:
    """Redirects are not followed: they would carry the request, and the key, to where nobody configured it."""
    detail = f"It redirects to another address (HTTP {status}), which is not followed. Check its base URL."
    return EndpointRequestError(f"HTTP {status}", detail=detail, http_status=status)


def stream_error(error: StreamError, secrets: Iterable[str]) -> EndpointError:
    """The error of an error object inside an answer that began with status 200."""
    if error.code in (401, 403, 429):
        return status_error(error.code, {}, error.message, secrets)
    detail = detail_of(error.message, secrets)
    return EndpointUnavailableError(f"error in the stream: {detail}", detail=detail, http_status=error.code or None)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait as `Retry-After` (RFC 9110, 10.2.3: seconds or a date) or `retry-after-ms` say, if they do."""
    milliseconds, value = headers.get("retry-after-ms", ""), headers.get("retry-after", "").strip()
    try:
        if milliseconds.isdigit():
            wait = float(milliseconds) / 1000
        elif not value:
            return None
        elif value.replace(".", "", 1).isdigit():
            wait = float(value)
        else:
            wait = max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
        return min(wait, MAX_WAIT)
    except (ValueError, TypeError):
        return None


def _message(body: Any) -> str:
    """The message in an error body, in any of the usual shapes."""
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, dict):
        return _plain(body) if isinstance(body, str) else ""
    for key in ("error", "message", "detail"):
        value = body.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, dict | list) and value:
            return _message(value)
    return str(body["msg"]) if isinstance(body.get("msg"), str) else ""


def _plain(text: str) -> str:
    """A body of text; a web page says nothing that helps."""
    return "" if text.lstrip()[:1] == "<" else text
