"""The HTTP client under one MCP connection: httpx2's, without what a single server that is signed for needs none of.

The SDK builds a request and sends it, nothing more. Redirects are our transport's affair, signing is too, and there
are no hooks; so a request is put together from what is ready, and goes straight to the transport. Cookies are kept
as ever.
"""

from __future__ import annotations

import json as standard_json
from collections.abc import Mapping
from typing import Any

import httpx2

from mcpservers.sessionhttp import MESSAGE, SessionTransport

Raw = list[tuple[bytes, bytes]]


class LeanClient(httpx2.AsyncClient):
    """For `SessionTransport` alone, and for the SDK's transports, which use `build_request` and `send`.

    `headers` go with each request; those of a request come instead of them.
    """

    def __init__(self, transport: SessionTransport, *, headers: Raw, timeout: httpx2.Timeout) -> None:
        super().__init__(transport=transport, timeout=timeout, trust_env=False)
        self._direct, self._ready = transport, {name.lower(): (name, value) for name, value in headers}
        self._ready[b"accept-encoding"] = (b"accept-encoding", b"identity")
        self._seconds = timeout.as_dict()
        self._urls: dict[str, httpx2.URL] = {}  # parsing one takes longer than the rest of a request

    def build_request(
        self,
        method: str,
        url: httpx2.URL | str,
        *,
        json: Any = None,
        headers: Any = None,
        **options: Any,
    ) -> httpx2.Request:
        """A request with a JSON body or none. The body's message goes along, so that nobody has to read it again."""
        assert not any(value is not None for value in options.values()), "the SDK has never asked for these"
        url = self._parsed(url)
        merged = dict(self._ready)
        for name, value in headers.items() if isinstance(headers, Mapping) else headers or ():
            key = name.encode("ascii")
            merged[key.lower()] = (key, value.encode("latin-1"))
        body = b""
        if json is not None:
            text = standard_json.dumps(json, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
            body = text.encode()
            merged[b"content-length"] = (b"content-length", str(len(body)).encode())
            merged.setdefault(b"content-type", (b"content-type", b"application/json"))
        request = httpx2.Request(
            method,
            url,
            headers=[(b"host", url.netloc), *merged.values()],
            stream=httpx2.ByteStream(body),
            extensions={"timeout": self._seconds, MESSAGE: json},
        )
        if self.cookies.jar:
            self.cookies.set_cookie_header(request)
        return request

    def _parsed(self, url: httpx2.URL | str) -> httpx2.URL:
        if not isinstance(url, str):
            return url
        found = self._urls.get(url)
        if found is None:
            found = self._urls[url] = httpx2.URL(url)
        return found

    async def send(self, request: httpx2.Request, *, stream: bool = False, **_: Any) -> httpx2.Response:
        """As `AsyncClient.send`, without redirects, authentication and hooks."""
        if self.is_closed:
            raise RuntimeError("The connection is closed.")
        try:
            response = await self._direct.handle_async_request(request)
        except httpx2.RequestError as error:
            error.request = request
            raise
        response.request = request
        if "set-cookie" in response.headers:
            self.cookies.extract_cookies(response)
        if not stream:
            await response.aread()
        return response
