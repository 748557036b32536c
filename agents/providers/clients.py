"""The pooled clients of model endpoints: one per endpoint and event loop, kept alive, closed together.

It is the only module that imports `openai`, which takes a second: whoever needs it imports it late.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit
from weakref import WeakKeyDictionary

import aiohttp
import httpx2
import openai
from django.conf import settings as django_settings
from openai import AsyncOpenAI, DefaultAioHttpClient
from openai._vendor.httpx_aiohttp import AiohttpTransport

from agents.providers.chat_model import EndpointRateLimitedError, EndpointRequestError
from agents.providers.settings import BaseURLError, ModelSettings, normalise_base_url
from chatui import netguard
from chatui.text import shorten

CONNECTIONS = 1000  # per endpoint; `max_concurrency` is the limit that is meant
KEEPALIVE_SECONDS = 30.0
MAX_ERROR_BYTES = 2**16
READ_BYTES = 2**14  # at once: what is more is left for the next read, so that one fast answer delays nobody
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")  # RFC 9110, 5.6.2
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*\Z")


def _connector(base_url: str) -> aiohttp.TCPConnector:
    """The one place where connections to endpoints are made. What the operator's environment names is allowed."""
    extra: list[str] = []
    if django_settings.OPENAI_BASE_URL:
        allowed = netguard.allowance_of(django_settings.OPENAI_BASE_URL)
        if netguard.allowance_of(base_url) == allowed:
            extra.append(allowed)
    return netguard.guarded_connector(extra=extra, limit=CONNECTIONS, keepalive_timeout=KEEPALIVE_SECONDS)


class _ShortErrors(httpx2.AsyncByteStream):
    """The beginning of an error's body: the SDK reads it whole, and it could be endless."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for data in self._inner:
            yield data[: MAX_ERROR_BYTES - size]
            size += len(data)
            if size >= MAX_ERROR_BYTES:
                return

    async def aclose(self) -> None:
        await self._inner.aclose()


class _LargeBody(httpx2.AsyncByteStream):
    """A request body above a mebibyte, in pieces: aiohttp warns of writing it at once, which would hold the loop."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), 2**18):
            yield self._body[start : start + 2**18]


# Called when a body leaves for the endpoint: what is made known here is that it has a prompt, not that it took it.
when_sent: ContextVar[Callable[[], None] | None] = ContextVar("when_sent", default=None)


async def _chunk_sent(session: object, context: object, chunk: object) -> None:
    told = when_sent.get()
    if told is not None:
        told()


class _Transport(AiohttpTransport):
    """The SDK's aiohttp transport over our connector, without cookies and proxies of the environment."""

    def __init__(self, base_url: str) -> None:
        def session() -> aiohttp.ClientSession:
            trace = aiohttp.TraceConfig()
            trace.on_request_chunk_sent.append(_chunk_sent)
            return aiohttp.ClientSession(
                connector=_connector(base_url), cookie_jar=aiohttp.DummyCookieJar(), trace_configs=[trace]
            )

        super().__init__(verify=netguard.tls_context(), trust_env=False, client=session)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if len(request.content) > 2**20:
            stream = _LargeBody(request.content)
            request = httpx2.Request(
                request.method, request.url, headers=request.headers, stream=stream, extensions=request.extensions
            )
        response = await super().handle_async_request(request)
        if response.status_code >= 300 and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _ShortErrors(response.stream)
        return response


def reader_of(response: httpx2.Response) -> Callable[[], Awaitable[bytes]]:
    """A function that reads what has come of the body, at least one byte; nothing at its end.

    An uncompressed body is read from aiohttp directly: the four generators between cost as much as the rest of a read.
    """
    body = getattr(response.stream, "_stream", response.stream)  # under the wrapper that httpx2 puts around it
    raw = getattr(body, "_aiohttp_response", None)
    if isinstance(raw, aiohttp.ClientResponse) and response.headers.get("content-encoding", "identity") == "identity":
        return partial(raw.content.read, READ_BYTES)
    reads = response.aiter_bytes()

    async def read() -> bytes:
        while (data := await anext(reads, None)) is not None:
            if data:
                return data
        return b""

    return read


class _EndpointClient(AsyncOpenAI):
    """The SDK's client without what it reads from the environment: that is the operator's, not this endpoint's."""

    def __init__(self, settings: ModelSettings) -> None:
        parts = urlsplit(_base_url(settings))
        base_url = urlunsplit(parts._replace(query=""))
        self._endpoint_headers = _checked_headers(settings)
        refuse_all = CookieJar(policy=DefaultCookiePolicy(allowed_domains=[]))
        super().__init__(
            api_key=settings.api_key.strip() or "none",
            admin_api_key="",
            organization="",
            project="",
            webhook_secret="",
            base_url=base_url,
            default_query=dict(parse_qsl(parts.query)),
            max_retries=0,
            # The reads have limits of their own (exchange.py); `pool` covers resolving and connecting.
            timeout=httpx2.Timeout(None, connect=settings.connect_timeout, pool=settings.connect_timeout),
            http_client=DefaultAioHttpClient(
                transport=_Transport(base_url), cookies=refuse_all, follow_redirects=False, timeout=None
            ),
        )

    @property
    def default_headers(self) -> dict[str, str | openai.Omit]:
        agent = f"chatui openai-python/{openai.__version__}"
        return {
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": agent,
            **self._endpoint_headers,
        }


def _base_url(settings: ModelSettings) -> str:
    try:
        return normalise_base_url(settings.base_url)
    except BaseURLError as error:
        raise EndpointRequestError("not a base URL", detail=error.public_message) from None


def _checked_headers(settings: ModelSettings) -> dict[str, str]:
    """The headers of the endpoint. Raises `EndpointRequestError` if HTTP cannot carry one of them, or the key."""
    headers = {str(name).strip(): str(value).strip() for name, value in settings.headers.items()}
    for name, value in [*headers.items(), ("Authorization", settings.api_key.strip())]:
        if not _HEADER_NAME.match(name) or not _HEADER_VALUE.match(value):
            shown = "The API key" if name == "Authorization" else f"The header “{shorten(name, 40)}”"
            detail = f"{shown} holds a character that a header cannot carry."
            raise EndpointRequestError(f"header {name!r} is not sendable", detail=detail)
    return headers


def request_headers(settings: ModelSettings) -> dict[str, str | openai.Omit]:
    """Headers of each request: an endpoint without a key gets no `Authorization`."""
    if settings.api_key.strip() or any(name.lower() == "authorization" for name in settings.headers):
        return {}
    return {"Authorization": openai.Omit()}


@dataclass(eq=False)
class _Pooled:
    client: _EndpointClient
    fingerprint: str
    slots: asyncio.Semaphore | None
    users: int = 0


@dataclass(eq=False)
class _Pool:
    clients: dict[str, _Pooled] = field(default_factory=dict)
    retired: set[_Pooled] = field(default_factory=set)


_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = WeakKeyDictionary()


@asynccontextmanager
async def borrowed(settings: ModelSettings, deadline: float) -> AsyncIterator[AsyncOpenAI]:
    """The pooled client of the endpoint; where requests at once are limited, a slot is waited for until `deadline`.

    A client whose endpoint was changed meanwhile is replaced, and closed when its last request ends. Raises
    `EndpointRateLimitedError` when no slot came free, `EndpointRequestError` for a URL or headers that cannot be used.
    """
    pool = _pools.setdefault(asyncio.get_running_loop(), _Pool())
    pooled = await _client_of(pool, settings)
    pooled.users += 1
    try:
        async with _slot(pooled.slots, deadline):
            yield pooled.client
    finally:
        pooled.users -= 1
        if not pooled.users and pooled in pool.retired:
            pool.retired.discard(pooled)
            await pooled.client.close()


@asynccontextmanager
async def _slot(slots: asyncio.Semaphore | None, deadline: float) -> AsyncIterator[None]:
    if slots is None:
        yield
        return
    try:
        async with asyncio.timeout_at(deadline):
            await slots.acquire()
    except TimeoutError:
        detail = "Too many requests are made to it at once."
        raise EndpointRateLimitedError("no slot came free", detail=detail) from None
    try:
        yield
    finally:
        slots.release()


async def _client_of(pool: _Pool, settings: ModelSettings) -> _Pooled:
    fingerprint = _fingerprint(settings)
    key = settings.endpoint_key or fingerprint
    pooled = pool.clients.get(key)
    if pooled is not None and pooled.fingerprint == fingerprint:
        return pooled
    limit = settings.max_concurrency
    fresh = _Pooled(_EndpointClient(settings), fingerprint, asyncio.Semaphore(limit) if limit else None)
    pool.clients[key] = fresh
    if pooled is not None:
        if pooled.users:
            pool.retired.add(pooled)
        else:
            await pooled.client.close()
    return fresh


def _fingerprint(settings: ModelSettings) -> str:
    """Of all that a client is made of; a hash, so that the pool's keys hold no secret."""
    parts: list[Any] = [settings.base_url, settings.api_key, sorted(settings.headers.items())]
    parts += [settings.connect_timeout, settings.max_concurrency, django_settings.OPENAI_BASE_URL]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


async def aclose() -> None:
    """Close the clients of the running loop, those in use too: their requests end with an error."""
    pool = _pools.pop(asyncio.get_running_loop(), None)
    if pool is not None:
        for pooled in [*pool.clients.values(), *pool.retired]:
            await pooled.client.close()
