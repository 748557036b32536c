"""HTTP for OAuth: every document bounded in size and time, every address checked, every failure in plain words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

import httpx2

from chatui.errors import ChatUIError
from chatui.netguard import AddressRefusedError, Extra, RedirectRefusedError
from chatui.text import clean_json
from mcpservers.errors import LinkError
from mcpservers.oauth.proving import ProvingTransport, sign

MAX_BYTES = 2**20
SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. The body may hold tokens and is not shown; `url` is where it came from, without a query."""

    status: int
    headers: Mapping[str, str]
    url: str
    body: bytes = field(repr=False)

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def json(self) -> dict[str, Any] | None:
        """The JSON object that the body is, its strings storable; None if it is none."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        try:
            return clean_json(value) if isinstance(value, dict) else None
        except RecursionError:
            return None

    def fields(self) -> dict[str, Any] | None:
        """As `json`; a form-encoded body too, which some token endpoints answer with."""
        if self.content_type != "application/x-www-form-urlencoded":
            return self.json()
        try:
            pairs = parse_qsl(self.body.decode("ascii"), max_num_fields=100)
        except ValueError:
            return None
        return clean_json(dict(pairs)) if pairs else None


class Web:
    """One client for the requests of one flow: `async with Web() as web`. `extra` are allowances of the guard's.

    Raises `LinkError` (`unreachable`, `timeout`, `too_large`, `address_refused`, `redirected`) and nothing of httpx2's.
    """

    def __init__(self, *, extra: Extra = (), seconds: float = SECONDS) -> None:
        self._transport = ProvingTransport(extra=extra, max_bytes=MAX_BYTES, connections=10)
        self._client = httpx2.AsyncClient(
            transport=self._transport,
            headers={"user-agent": "chatui", "accept": "application/json"},
            timeout=httpx2.Timeout(seconds),
            trust_env=False,
        )
        self._seconds = seconds

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def get(self, url: str, *, token: str = "") -> Answer:
        """`token`: an access token to show."""
        return await self._send("GET", url, token=token)

    async def head_of_get(self, url: str, headers: Mapping[str, str]) -> Answer:
        """Read no more than status and headers."""
        return await self._send("GET", url, read=False, headers=headers)

    async def head_of_post(self, url: str, message: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
        """Post JSON and read no more than status and headers."""
        return await self._send("POST", url, read=False, json=message, headers=headers)

    async def post_form(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> Answer:
        """Post a form, which may hold secrets: a redirect is not followed, for it would take them along."""
        return await self._send("POST", url, data=dict(form), headers=headers, extensions=_STAY)

    async def post_json(self, url: str, value: Mapping[str, Any]) -> Answer:
        return await self._send("POST", url, json=value, extensions=_STAY)

    async def _send(self, method: str, url: str, *, read: bool = True, token: str = "", **options: Any) -> Answer:
        host = urlsplit(url).hostname or url
        try:
            async with asyncio.timeout(self._seconds):
                request = self._client.build_request(method, url, **options)
                if token:
                    sign(request, token)
                response = await self._client.send(request, stream=True)
                try:
                    body = await _bounded(response) if read else b""
                finally:
                    await response.aclose()
        except (TimeoutError, httpx2.TimeoutException):
            raise _failure("timeout", f"“{host}” did not answer within {self._seconds:g} s.") from None
        except AddressRefusedError as error:
            raise _failure("address_refused", error.public_message) from None
        except RedirectRefusedError as error:
            raise _failure("redirected", f"“{host}”: {error.public_message}") from None
        except (httpx2.StreamError, _TooLargeError):
            raise _failure("too_large", f"The answer of “{host}” is larger than {MAX_BYTES} bytes.") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, ChatUIError, OSError, ValueError) as error:
            words = str(error) or type(error).__name__
            raise _failure("unreachable", f"“{host}” cannot be reached: {words}") from None
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status_code, headers, place(str(response.request.url)), body)


_STAY = {"follow_redirects": False}


class _TooLargeError(Exception):
    pass


async def _bounded(response: httpx2.Response) -> bytes:
    # The guard does not count event streams, and whoever answers with one here means no good.
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > MAX_BYTES:
            raise _TooLargeError
    return bytes(body)


def _failure(reason: str, detail: str) -> LinkError:
    return LinkError(reason, f"{detail.rstrip('.')}. Try again later, or tell an administrator.", for_admin=detail)


def place(url: str) -> str:
    """`url` without query and fragment, which may hold secrets, for messages."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
