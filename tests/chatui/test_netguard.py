"""The guard through both of its builders: the same cases, an httpx2 client and an aiohttp session."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from chatui import netguard
from chatui.netguard import (
    AddressRefusedError,
    GuardedTransport,
    RedirectRefusedError,
    allowance_of,
    check_url,
    guarded_connector,
)

Fetch = Callable[..., Awaitable[bytes]]


@dataclass
class Listener:
    """A TCP server on loopback that counts connections and answers each request with `answer`."""

    port: int = 0
    connections: int = 0
    requests: list[str] = field(default_factory=list)
    answer: Callable[[str], bytes] = lambda head: response(200, b"hello")

    def headers(self, at: int = -1) -> dict[str, str]:
        pairs = (line.partition(": ") for line in self.requests[at].split("\r\n")[1:])
        return {name.lower(): value for name, _, value in pairs if name}


def response(status: int, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@asynccontextmanager
async def listening(host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> AsyncIterator[Listener]:
    listener = Listener()

    tasks: set[asyncio.Task[None] | None] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        listener.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                if "content-length: " in head.lower():
                    await reader.readexactly(int(head.lower().split("content-length: ")[1].split("\r\n")[0]))
                listener.requests.append(head.strip())
                writer.write(listener.answer(head))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(connected, host, 0, ssl=tls)
    listener.port = server.sockets[0].getsockname()[1]
    async with server:
        yield listener
    for task in tasks:
        assert task is not None
        task.cancel()


async def _with_httpx2(url: str, *, extra: tuple[str, ...] = (), seconds: float = 5.0) -> bytes:
    async with httpx2.AsyncClient(transport=GuardedTransport(extra=extra), timeout=seconds) as client:
        return (await client.get(url, headers={"Authorization": "Bearer secret"})).content


async def _with_aiohttp(url: str, *, extra: tuple[str, ...] = (), seconds: float = 5.0) -> bytes:
    timeout = aiohttp.ClientTimeout(total=seconds)
    async with (
        aiohttp.ClientSession(connector=guarded_connector(extra=extra), timeout=timeout) as session,
        session.get(url, headers={"Authorization": "Bearer secret"}, allow_redirects=False) as answer,
    ):
        return await answer.read()


@pytest.fixture(params=[_with_httpx2, _with_aiohttp], ids=["httpx2", "aiohttp"])
def fetch(request: pytest.FixtureRequest) -> Fetch:
    function: Fetch = request.param
    return function


@pytest.fixture(autouse=True)
def _nothing_allowed(settings: Any) -> None:
    settings.MCP_ALLOW_PRIVATE = []


Names = dict[str, list[list[str]]]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """Names of the test: each list is one answer of the resolver, the last one stays."""
    table: Names = {}
    real = asyncio.BaseEventLoop.getaddrinfo

    async def getaddrinfo(self: Any, host: Any, port: Any, **options: Any) -> Any:
        if host not in table:
            return await real(self, host, port, **options)
        answers = table[host]
        addresses = answers.pop(0) if len(answers) > 1 else answers[0]
        return [
            (socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in addresses
        ]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    return table


# --- Addresses ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "0.0.0.0",
        "①②⑦.0.0.1",
    ],
)
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_loopback_is_never_connected_to_however_it_is_written(fetch: Fetch, scheme: str, host: str) -> None:
    async with listening() as listener:
        # aiohttp refuses odd notations itself, before the connector is asked.
        with pytest.raises((AddressRefusedError, aiohttp.InvalidURL, httpx2.InvalidURL)):
            await fetch(f"{scheme}://{host}:{listener.port}/")
        assert listener.connections == 0


async def test_a_name_that_resolves_to_a_private_address_is_refused_with_a_hint(fetch: Fetch, names: Names) -> None:
    names["inner.test"] = [["10.1.2.3"]]
    with pytest.raises(AddressRefusedError) as caught:
        await fetch("https://inner.test/")
    assert "MCP_ALLOW_PRIVATE=inner.test:443" in caught.value.public_message
    assert "10.1.2.3" not in caught.value.public_message  # what lies behind a name is for the log
    assert "10.1.2.3" in str(caught.value)


async def test_one_private_address_among_public_ones_refuses_the_name(fetch: Fetch, names: Names) -> None:
    names["mixed.test"] = [["93.184.216.34", "169.254.169.254"]]
    with pytest.raises(AddressRefusedError):
        await fetch("https://mixed.test/")


async def test_a_name_that_changes_between_check_and_connect_gains_nothing(
    fetch: Fetch, names: Names, settings: Any
) -> None:
    async with listening("127.0.0.1") as loopback, listening("127.0.0.2") as checked:
        # Two names of the same machine stand for a public address and a private one.
        settings.MCP_ALLOW_PRIVATE = [f"rebinding.test:{checked.port}"]
        names["rebinding.test"] = [["127.0.0.2"], ["127.0.0.1"]]
        assert await fetch(f"http://rebinding.test:{checked.port}/") == b"hello"
        assert (checked.connections, loopback.connections) == (1, 0)
        assert names["rebinding.test"] == [["127.0.0.1"]]  # it was resolved once


async def test_an_unknown_name_is_a_network_error_and_not_a_refusal(fetch: Fetch) -> None:
    with pytest.raises((httpx2.ConnectError, aiohttp.ClientConnectorDNSError)):
        await fetch("https://nowhere.invalid/")


async def test_the_next_address_is_tried_when_the_first_refuses(fetch: Fetch, names: Names, settings: Any) -> None:
    async with listening("127.0.0.1") as listener:
        settings.MCP_ALLOW_PRIVATE = ["two.test"]
        names["two.test"] = [["127.0.0.3", "127.0.0.1"]]
        assert await fetch(f"http://two.test:{listener.port}/") == b"hello"


async def test_an_address_that_does_not_answer_is_raced_by_the_next(names: Names, settings: Any) -> None:
    silent = socket.socket()
    silent.bind(("127.0.0.4", 0))
    port = silent.getsockname()[1]
    silent.listen(0)
    fillers = [socket.socket() for _ in range(4)]
    for filler in fillers:  # a full backlog drops further SYNs
        filler.setblocking(False)
        filler.connect_ex(("127.0.0.4", port))
    settings.MCP_ALLOW_PRIVATE = ["slow.test"]
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", port)
    names["slow.test"] = [["127.0.0.4", "127.0.0.1"]]
    async with server:
        with pytest.raises(httpx2.RemoteProtocolError):  # it connected, and the server hung up
            await _with_httpx2(f"http://slow.test:{port}/", seconds=5)
    for closing in (silent, *fillers):
        closing.close()


async def test_a_connect_that_takes_too_long_is_a_timeout(settings: Any) -> None:
    settings.MCP_ALLOW_PRIVATE = ["127.0.0.5"]
    silent = socket.socket()
    silent.bind(("127.0.0.5", 0))
    silent.listen(0)
    fillers = [socket.socket() for _ in range(4)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex(silent.getsockname())
    with pytest.raises(httpx2.ConnectTimeout, match=r"took longer than 0\.2 s"):
        await _with_httpx2(f"http://127.0.0.5:{silent.getsockname()[1]}/", seconds=0.2)
    for closing in (silent, *fillers):
        closing.close()


# --- What an operator allows --------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", ["127.0.0.1", "127.0.0.1:{port}", " 127.0.0.1 "])
async def test_a_listed_host_may_be_private_and_plain_http(fetch: Fetch, settings: Any, entry: str) -> None:
    async with listening() as listener:
        settings.MCP_ALLOW_PRIVATE = [entry.format(port=listener.port)]
        assert await fetch(f"http://127.0.0.1:{listener.port}/") == b"hello"


@pytest.mark.parametrize("entry", ["127.0.0.1:1", "localhost", "::1", "[::1]:{port}", "7.0.0.1", ""])
async def test_another_host_or_port_in_the_list_allows_nothing(fetch: Fetch, settings: Any, entry: str) -> None:
    async with listening() as listener:
        settings.MCP_ALLOW_PRIVATE = [entry.format(port=listener.port)]
        with pytest.raises(AddressRefusedError):
            await fetch(f"http://127.0.0.1:{listener.port}/")
        assert listener.connections == 0


async def test_what_the_operators_environment_names_is_allowed_by_that(fetch: Fetch) -> None:
    async with listening() as listener:
        url = f"http://127.0.0.1:{listener.port}/v1"
        assert await fetch(url, extra=(allowance_of(url),)) == b"hello"


@pytest.mark.parametrize("entry", ["127.0.0.1", "intranet.example", "127.0.0.1,intranet.example"])
async def test_what_a_person_entered_reaches_public_addresses_alone_whatever_is_listed(
    names: Names, settings: Any, entry: str
) -> None:
    """Also where a name leads there, or a redirect of a server that was reached would."""
    settings.MCP_ALLOW_PRIVATE = entry.split(",")
    names["intranet.example"] = [["127.0.0.1"]]
    async with (
        listening() as listener,
        httpx2.AsyncClient(transport=GuardedTransport(extra=None), timeout=60) as client,
    ):
        for url in (
            f"http://127.0.0.1:{listener.port}/",
            f"https://127.0.0.1:{listener.port}/",
            f"https://intranet.example:{listener.port}/",
        ):
            with pytest.raises(AddressRefusedError) as refused:
                await client.get(url)
            assert "MCP_ALLOW_PRIVATE" not in refused.value.public_message  # nothing that they could do
        assert listener.connections == 0
    with pytest.raises(AddressRefusedError):
        check_url("http://127.0.0.1/", extra=None)


def test_an_allowance_names_the_port_also_where_the_url_does_not() -> None:
    assert allowance_of("https://models.example/v1") == "models.example:443"
    assert allowance_of("http://[::1]/v1") == "[::1]:80"


@pytest.mark.parametrize("address", ["169.254.169.254", "224.0.0.1", "0.0.0.0", "fe80::1"])
async def test_a_listed_name_never_leads_to_metadata_or_the_like(
    fetch: Fetch, names: Names, settings: Any, address: str
) -> None:
    settings.MCP_ALLOW_PRIVATE = ["listed.test"]
    names["listed.test"] = [[address]]
    with pytest.raises(AddressRefusedError):
        await fetch("http://listed.test/")


async def test_plain_http_to_a_public_address_needs_to_be_listed(fetch: Fetch, names: Names) -> None:
    names["public.test"] = [["93.184.216.34"]]
    with pytest.raises(AddressRefusedError, match="only https"):
        await fetch("http://public.test/")


# --- TLS ----------------------------------------------------------------------------------------------------------


def _certificate(name: str, directory: Path) -> tuple[ssl.SSLContext, ssl.SSLContext, list[str | None]]:
    """A server's context for `name`, a client's that trusts it, and the names that clients asked for (SNI)."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = directory / "server.pem"
    pem.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    asked: list[str | None] = []
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(pem)
    server.sni_callback = lambda _, name, __: asked.append(name)
    client = ssl.create_default_context(cadata=certificate.public_bytes(serialization.Encoding.PEM).decode())
    return server, client, asked


async def test_tls_verifies_the_name_although_the_address_was_connected_to(
    fetch: Fetch, names: Names, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client, asked = _certificate("secure.test", tmp_path)
    monkeypatch.setattr(netguard, "tls_context", lambda: client)
    names["secure.test"] = names["other.test"] = [["127.0.0.1"]]
    settings.MCP_ALLOW_PRIVATE = ["secure.test", "other.test"]
    async with listening(tls=server) as listener:
        assert await fetch(f"https://secure.test:{listener.port}/") == b"hello"
        assert asked == ["secure.test"]
        assert listener.headers()["host"] == f"secure.test:{listener.port}"
        with pytest.raises((httpx2.ConnectError, aiohttp.ClientConnectorCertificateError)):
            await fetch(f"https://other.test:{listener.port}/")


def test_the_tls_context_is_built_once() -> None:
    assert netguard.tls_context() is netguard.tls_context()
    assert netguard.tls_context().check_hostname


# --- Redirects (the httpx2 transport follows them itself) ---------------------------------------------------------


async def _post(url: str, **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient(transport=GuardedTransport(), timeout=60) as client:
        return await client.post(url, json={"n": 1}, headers=headers)


@pytest.mark.parametrize("code", [307, 308])
async def test_a_redirect_within_the_origin_keeps_method_body_and_credentials(settings: Any, code: int) -> None:
    settings.MCP_ALLOW_PRIVATE = ["127.0.0.1"]
    async with listening() as listener:
        listener.answer = lambda head: (
            response(200, b"end") if head.startswith("POST /end") else response(code, location="/end")
        )
        answer = await _post(f"http://127.0.0.1:{listener.port}/", Authorization="Bearer secret")
        assert answer.content == b"end"
        assert listener.headers()["authorization"] == "Bearer secret"
        assert listener.headers()["content-length"] == "7"


async def test_a_redirect_to_another_origin_carries_no_credentials(settings: Any) -> None:
    settings.MCP_ALLOW_PRIVATE = ["127.0.0.1"]
    async with listening() as first, listening() as second:
        first.answer = lambda head: response(307, location=f"http://127.0.0.1:{second.port}/end")
        headers = {"Authorization": "Bearer secret", "X-Api-Key": "secret", "Cookie": "a=secret"}
        assert (await _post(f"http://127.0.0.1:{first.port}/", **headers)).content == b"hello"
        assert "secret" not in second.requests[0]
        assert second.headers()["host"] == f"127.0.0.1:{second.port}"
        assert second.headers()["content-type"] == "application/json"


@pytest.mark.parametrize("code", [301, 302, 303])
async def test_a_redirect_that_would_change_the_method_is_refused_by_name(settings: Any, code: int) -> None:
    settings.MCP_ALLOW_PRIVATE = ["127.0.0.1"]
    async with listening() as listener:
        listener.answer = lambda head: response(code, location="/login?state=secret")
        with pytest.raises(RedirectRefusedError) as caught:
            await _post(f"http://127.0.0.1:{listener.port}/")
        assert f"http://127.0.0.1:{listener.port}/login" in caught.value.public_message
        assert "secret" not in caught.value.public_message
        assert len(listener.requests) == 1


@pytest.mark.parametrize(
    "location", ["http://169.254.169.254/latest/meta-data/", "https://[::1]:1/", "http://localhost:{other}/"]
)
async def test_each_hop_is_checked_like_the_first(settings: Any, location: str) -> None:
    settings.MCP_ALLOW_PRIVATE = ["127.0.0.1"]
    async with listening() as listener, listening() as other:
        listener.answer = lambda head: response(307, location=location.format(other=other.port))
        with pytest.raises(AddressRefusedError):
            await _post(f"http://127.0.0.1:{listener.port}/", Authorization="Bearer secret")
        assert other.connections == 0


async def test_redirects_end_after_five(settings: Any) -> None:
    settings.MCP_ALLOW_PRIVATE = ["127.0.0.1"]
    async with listening() as listener:
        listener.answer = lambda head: response(307, location="/again")
        with pytest.raises(RedirectRefusedError):
            await _post(f"http://127.0.0.1:{listener.port}/")
        assert len(listener.requests) == 6


async def test_a_redirect_from_https_to_http_or_with_a_password_is_refused() -> None:
    for url, location in [("https://a.test/", "http://a.test/"), ("https://a.test/", "https://u:p@a.test/")]:
        with pytest.raises(RedirectRefusedError):
            netguard._next_hop(httpx2.Request("GET", url), 307, location)


# --- Size ---------------------------------------------------------------------------------------------------------


async def test_a_body_above_the_limit_fails_the_request(settings: Any) -> None:
    settings.MCP_ALLOW_PRIVATE = ["127.0.0.1"]
    async with listening() as listener:
        listener.answer = lambda head: response(200, b"x" * 1001)
        transport = GuardedTransport(max_bytes=1000)
        async with httpx2.AsyncClient(transport=transport) as client:
            with pytest.raises(httpx2.StreamError, match="1000 bytes"):
                await client.get(f"http://127.0.0.1:{listener.port}/")
            listener.answer = lambda head: response(200, b"x" * 1000)
            assert len((await client.get(f"http://127.0.0.1:{listener.port}/")).content) == 1000


async def test_a_compressed_body_is_neither_asked_for_nor_expanded(settings: Any) -> None:
    settings.MCP_ALLOW_PRIVATE = ["127.0.0.1"]
    async with listening() as listener:
        listener.answer = lambda head: response(200, gzip.compress(b"0" * 10**6), content_encoding="gzip")
        async with httpx2.AsyncClient(transport=GuardedTransport()) as client:
            with pytest.raises(httpx2.StreamError, match="compressed"):
                await client.get(f"http://127.0.0.1:{listener.port}/")
        assert listener.headers()["accept-encoding"] == "identity"


async def test_an_event_stream_may_be_longer_than_one_message(settings: Any) -> None:
    settings.MCP_ALLOW_PRIVATE = ["127.0.0.1"]
    async with listening() as listener:
        listener.answer = lambda head: response(200, b"data: x\n\n" * 1000, content_type="text/event-stream")
        async with httpx2.AsyncClient(transport=GuardedTransport(max_bytes=100)) as client:
            assert len((await client.get(f"http://127.0.0.1:{listener.port}/")).content) == 9000


# --- URLs in forms ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["https://example.org/mcp", "https://example.org:8443/a?b=c", "https://8.8.8.8/"])
def test_a_public_https_url_passes(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/",
        "ftp://example.org/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "https://",
        "https://user:pw@example.org/",
        "https://exa mple.org/",
        "https://example.org/\n",
        "https://example.org:99999/",
        "https://[::1/",
        "https://127.0.0.1/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://[::ffff:10.0.0.1]/",
        "not a url",
        "",
    ],
)
def test_a_url_that_could_never_be_connected_to_is_refused_when_it_is_typed(url: str) -> None:
    with pytest.raises(AddressRefusedError):
        check_url(url)
