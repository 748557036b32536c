"""The only way out: one address check, made at connect time, and the two builders of clients that make it.

`GuardedTransport` is an httpx2 transport (MCP, OAuth, files), `guarded_connector` an aiohttp connector (model
endpoints). Both connect to the very addresses that were checked, so that a name cannot resolve to something else
between check and use; TLS still verifies the name. The only switch is the operator's: `MCP_ALLOW_PRIVATE` and what
the operator's own environment names (`allowance_of`). Where `extra` is None not even that: public addresses alone, for
what a person without a say in the operator's list has entered.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from functools import cache, lru_cache
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio.abc
import httpcore2
import httpx2
from django.conf import settings

from chatui.addresses import Address, literal, special_kind
from chatui.errors import ChatUIError
from chatui.netstream import NetworkStream

if TYPE_CHECKING:
    import aiohttp

MAX_REDIRECTS = 5
HAPPY_EYEBALLS_SECONDS = 0.25  # RFC 8305, 5: the delay before the next address is tried beside the first


class AddressRefusedError(ChatUIError):
    """The address is not public and no operator allowed it, or the URL is of a kind that is never connected to."""

    code = "address_refused"
    public_message = "This address may not be connected to."


class RedirectRefusedError(ChatUIError):
    """The server redirects in a way that is not followed: not 307 or 308, too often, or to plain HTTP."""

    code = "redirect_refused"
    status = 502
    public_message = "The server redirects to another address, which is not followed."


# --- What an operator allows --------------------------------------------------------------------------------------


# Further `host` or `host:port` that may be private; None: nothing may be, whatever the settings list.
Extra = Iterable[str] | None

# What a listed *name* may resolve to. The rest is reached only where the literal itself is listed.
_SOFT = frozenset({"private", "loopback", "shared", "benchmark"})


def _canonical(host: str) -> str:
    address = literal(host)
    return str(address) if address is not None else host.lower().rstrip(".")


@lru_cache(maxsize=64)
def _parsed(entries: tuple[str, ...]) -> frozenset[tuple[str, int | None]]:
    allowed: set[tuple[str, int | None]] = set()
    for entry in entries:
        text = entry.strip()
        if not text:
            continue
        host, colon, port = text.rpartition(":")
        if colon and port.isdigit() and (host.endswith("]") or ":" not in host):
            allowed.add((_canonical(host), int(port)))
        else:
            allowed.add((_canonical(text), None))
    return frozenset(allowed)


def is_allowed(host: str, port: int, extra: Extra = ()) -> bool:
    """Whether an operator lists `host` (as the URL writes it) or `host:port`, in the settings or in `extra`."""
    if extra is None:
        return False
    allowed = _parsed((*settings.MCP_ALLOW_PRIVATE, *extra))
    name = _canonical(host)
    return (name, None) in allowed or (name, port) in allowed


def allowance_of(url: str) -> str:
    """`host:port` of a URL that the operator's own environment names, to be passed on as `extra`."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _refuse(host: str, port: int, why: str, extra: Extra, detail: str = "") -> AddressRefusedError:
    place = f"{host}:{port}"
    remedy = f"An operator can allow it with MCP_ALLOW_PRIVATE={place}."
    if extra is None:
        remedy = "A server of one's own is reached by https at a public address; for another one, ask an admin."
    return AddressRefusedError(
        f"{place} is refused: {why}{f' ({detail})' if detail else ''}.",
        public_message=f"“{place}” may not be connected to: {why}. {remedy}",
    )


def check_scheme(scheme: str, host: str, port: int, *, extra: Extra = ()) -> None:
    """Raise `AddressRefusedError` unless the scheme is https, or http to a host that an operator lists."""
    if scheme == "https" or (scheme == "http" and is_allowed(host, port, extra)):
        return
    why = "only https is used" if scheme == "http" else f"“{scheme}” is not a scheme of the web"
    raise _refuse(host, port, why, extra)


def check_address(address: Address, host: str, port: int, *, extra: Extra = ()) -> None:
    """Raise `AddressRefusedError` unless `address`, which `host` stands for, is public or allowed."""
    kind = special_kind(address)
    if not kind:
        return
    if not is_allowed(host, port, extra) or (kind not in _SOFT and literal(host) is None):
        raise _refuse(host, port, "its address is not a public one", extra, f"{address}, {kind}")


def check_url(url: str, *, extra: Extra = ()) -> None:
    """What can be said of a URL without resolving it: scheme, host, userinfo, and the address if it is a literal.

    For forms and configuration files. It never replaces the check at connect time. Raises `AddressRefusedError`.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise AddressRefusedError(str(error), public_message="This is not a valid URL.") from None
    if not host or any(character.isspace() or ord(character) < 32 for character in url):
        raise AddressRefusedError(f"not a URL: {url!r}", public_message="This is not a valid URL.")
    if parts.username is not None or parts.password is not None:
        raise AddressRefusedError(
            "URL with userinfo", public_message="The URL must not hold a user name or a password: use headers."
        )
    port = port or (80 if parts.scheme == "http" else 443)
    check_scheme(parts.scheme, host, port, extra=extra)
    with suppress(OSError):  # inet_aton's notations (0x7f.1, 2130706433, 0177.0.0.1) are literals too
        check_address(literal(host) or IPv4Address(socket.inet_aton(host)), host, port, extra=extra)


async def resolve(host: str, port: int, *, extra: Extra = ()) -> list[Address]:
    """The addresses of `host`, every one checked: one that is refused refuses the name.

    Raises `AddressRefusedError`, or `OSError` (`socket.gaierror`) when the name does not resolve.
    """
    name = host.strip("[]")
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(ipaddress.ip_address(info[4][0]) for info in found))
    for address in addresses:
        check_address(address, host, port, extra=extra)
    if not addresses:
        raise socket.gaierror(socket.EAI_NONAME, "no address")
    return addresses


@cache
def tls_context() -> ssl.SSLContext:
    """The process's TLS context (the system's trust store): building one costs more than the rest of a connect."""
    return httpx2.create_ssl_context()


# --- httpx2 -------------------------------------------------------------------------------------------------------


class _Pool(httpcore2.AsyncConnectionPool):
    """A pool that shields itself from cancellation to close connections only where there are some to close."""

    async def _close_connections(self, closing: list[httpcore2.AsyncConnectionInterface]) -> None:
        if closing:
            await super()._close_connections(closing)


class _CheckedBackend(httpcore2.AsyncNetworkBackend):
    """Connects to checked addresses only; the pool above it does TLS with the name, so nothing resolves twice."""

    def __init__(self, extra: tuple[str, ...] | None) -> None:
        self._extra = extra

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), *(socket_options or ())]
        try:
            async with asyncio.timeout(timeout):
                addresses = await resolve(host, port, extra=self._extra)
                connected = await _race(addresses, port, options)
        except TimeoutError:
            raise httpcore2.ConnectTimeout(f"connecting to {host}:{port} took longer than {timeout} s") from None
        except OSError as error:
            raise httpcore2.ConnectError(f"{host}: {_words(error)}") from error
        try:
            return NetworkStream(await anyio.abc.SocketStream.from_socket(connected))
        except ValueError as error:  # reset in the moment between
            connected.close()
            raise httpcore2.ConnectError(f"{host}: the connection was reset") from error
        except BaseException:
            connected.close()
            raise

    async def connect_unix_socket(self, *args: Any, **kwargs: Any) -> httpcore2.AsyncNetworkStream:
        raise httpcore2.ConnectError("sockets of the file system are not connected to")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def _race(addresses: list[Address], port: int, options: list[Any]) -> socket.socket:
    """The first socket that connects; each next address starts when the last failed or took a while (RFC 8305).

    Sockets of our own rather than a stream's, so that those that lost, or connected in the very moment of a
    cancellation, are closed without waiting for anything.
    """
    running: set[asyncio.Task[socket.socket]] = set()
    waiting = list(addresses)
    failure: BaseException | None = None
    try:
        while waiting or running:
            if waiting:
                running.add(asyncio.create_task(_connected(waiting.pop(0), port, options)))
            delay = HAPPY_EYEBALLS_SECONDS if waiting else None
            done, running = await asyncio.wait(running, timeout=delay, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                failure = task.exception()
                if failure is None:
                    running |= done - {task}
                    return task.result()
        raise failure or OSError("no address")
    finally:
        for task in running:
            task.cancel()
            task.add_done_callback(_close)


async def _connected(address: Address, port: int, options: list[Any]) -> socket.socket:
    opened = socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
    try:
        opened.setblocking(False)
        for option in options:
            opened.setsockopt(*option)
        await asyncio.get_running_loop().sock_connect(opened, (str(address), port))
    except BaseException:
        opened.close()
        raise
    return opened


def _words(error: OSError) -> str:
    """For people: asyncio's own words of a failed connect are a Python tuple, with the address that was resolved."""
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused"
    if isinstance(error, socket.gaierror) or not error.errno:
        return error.strerror or str(error)
    return os.strerror(error.errno)


def _close(task: asyncio.Task[socket.socket]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


class _Capped(httpx2.AsyncByteStream):
    """A body that fails above `limit` bytes. A `StreamError` fails the one request, not the connection."""

    def __init__(self, inner: httpx2.AsyncByteStream, limit: int, message: str = "") -> None:
        self._inner, self._limit = inner, limit
        self._message = message or f"the answer is larger than {limit} bytes"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        seen = 0
        async for chunk in self._inner:
            seen += len(chunk)
            if seen > self._limit:
                raise httpx2.StreamError(self._message)
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


# What may follow a redirect to another origin: nothing that a definition or a jar added.
_HARMLESS_HEADERS = frozenset(
    {"accept", "accept-encoding", "cache-control", "content-length", "content-type", "last-event-id", "mcp-method"}
    | {"mcp-name", "mcp-protocol-version", "mcp-session-id", "transfer-encoding", "user-agent"}
)


def origin(url: httpx2.URL) -> tuple[str, str, int]:
    """Scheme, host (both in lower case) and port of `url`: whom a credential is meant for."""
    return url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80)


class GuardedTransport(httpx2.AsyncHTTPTransport):
    """An httpx2 transport that checks every address at connect time, caps bodies and follows 307 and 308 only.

    `extra` lists further `host` or `host:port` that may be private. A body above `max_bytes` (default
    `settings.MCP["MAX_MESSAGE"]`) fails with `httpx2.StreamError`; an event stream has no length, so its reader caps
    each event. Raises `AddressRefusedError` and `RedirectRefusedError` besides httpx2's own errors.
    """

    def __init__(self, *, extra: Extra = (), max_bytes: int | None = None, connections: int = 100) -> None:
        limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=20, keepalive_expiry=5.0)
        super().__init__(verify=tls_context(), trust_env=False, limits=limits)
        self._extra = None if extra is None else tuple(extra)
        self._max_bytes = max_bytes or settings.MCP["MAX_MESSAGE"]
        # httpx2 has no argument for the pool's network backend, where the name is resolved.
        self._pool = _Pool(
            ssl_context=tls_context(),
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=_CheckedBackend(self._extra),
            socket_options=[(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)],
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        # A compressed body could be a thousand times what was counted.
        if request.headers.get("accept-encoding") != "identity":
            request.headers["accept-encoding"] = "identity"
        for _ in range(MAX_REDIRECTS + 1):
            check_scheme(*origin(request.url), extra=self._extra)
            response = await self._hop(request)
            location = response.headers.get("location", "")
            if response.status_code not in (301, 302, 303, 307, 308) or not location:
                return self._capped(response)
            await response.aclose()
            if request.extensions.get("follow_redirects") is False:  # its body is meant for this place alone
                raise RedirectRefusedError(f"{request.url.host} answers with a redirect (HTTP {response.status_code})")
            request = _next_hop(request, response.status_code, location)
        raise RedirectRefusedError(f"more than {MAX_REDIRECTS} redirects")

    async def _hop(self, request: httpx2.Request) -> httpx2.Response:
        """Send this very request: the first one, or one that follows a redirect."""
        return await super().handle_async_request(request)

    def _capped(self, response: httpx2.Response) -> httpx2.Response:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            del response.headers["content-encoding"]
            response.stream = _Capped(response.stream, -1, "the answer is compressed, which was not asked for")
        elif not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = _Capped(response.stream, self._max_bytes)
        return response


def _next_hop(request: httpx2.Request, status: int, location: str) -> httpx2.Request:
    """The request that follows a redirect. Raises `RedirectRefusedError`, naming where it leads, when none does."""
    try:
        url = request.url.join(location)
    except httpx2.InvalidURL:
        raise RedirectRefusedError(f"redirect to an invalid URL ({status})") from None
    shown = url.copy_with(userinfo=b"", query=None, fragment=None)
    message = f"The server redirects to {shown} (HTTP {status}), which is not followed: use that URL if it is meant."
    downgrade = request.url.scheme == "https" and url.scheme != "https"
    replayable = isinstance(request.stream, httpx2.ByteStream)
    if status not in (307, 308) or downgrade or url.userinfo or not url.host or not replayable:
        raise RedirectRefusedError(f"{request.url.host}: {message}", public_message=message)
    same = origin(url) == origin(request.url)
    headers = [(k, v) for k, v in request.headers.raw if same or k.decode().lower() in _HARMLESS_HEADERS]
    return httpx2.Request(
        request.method,
        url,
        headers=[(b"host", url.netloc), *((k, v) for k, v in headers if k.lower() != b"host")],
        stream=request.stream,
        extensions=request.extensions,
    )


# --- aiohttp ------------------------------------------------------------------------------------------------------


def guarded_connector(*, extra: Iterable[str] = (), **options: Any) -> aiohttp.TCPConnector:
    """An aiohttp connector that checks every address at connect time; `options` are `aiohttp.TCPConnector`'s.

    Redirects are the client's affair: each hop connects through this connector and is checked like the first.
    Raises `AddressRefusedError` out of the request.
    """
    from chatui import netguard_aiohttp  # aiohttp is imported only where it is used

    return netguard_aiohttp.GuardedConnector(tuple(extra), options)
