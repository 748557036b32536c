"""Where the next page of a list begins: the sort key of a page's last row, as text that clients hand back."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, TypeVar

from chatui.errors import InvalidRequestError

T = TypeVar("T")


def encode(key: Iterable[Any]) -> str:
    """A sort key of JSON values, times and ids."""
    values = [value.isoformat() if isinstance(value, datetime) else value for value in key]
    return base64.urlsafe_b64encode(json.dumps(values, default=str).encode()).decode().rstrip("=")


def decode(text: str, read: Callable[..., T]) -> T:
    """What `read` makes of the values of a key. Raises `InvalidRequestError` for what no list of ours gave out."""
    try:
        values = json.loads(base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)))
        return read(*values)
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise InvalidRequestError(public_message="cursor: not one that this list gave out.") from None


def moment(text: str) -> datetime:
    """A time of a key. Raises `ValueError` for one without its zone, too."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("a time without its zone")
    return time
