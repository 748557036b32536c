"""Faults of an authorization server: handlers to be given to `FakeAuthServer.on` (or `ProtectedMCPServer.on_path`)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from tests.fakes.authserver import Handler, Heard


async def html(heard: Heard) -> web.StreamResponse:
    """A page where JSON was expected."""
    return web.Response(text="<html><title>Sign in</title></html>", content_type="text/html")


async def hang(heard: Heard) -> web.StreamResponse:
    """Never answer; end when the client leaves or the server closes."""
    await heard.server.closed.wait()
    return web.Response(status=503)


async def endless(heard: Heard) -> web.StreamResponse:
    """JSON that never ends."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(heard.request)
    await response.write(b'{"issuer": "')
    while not heard.server.closed.is_set():
        await response.write(b"x" * 65536)
        await asyncio.sleep(0)
    return response


async def die(heard: Heard) -> web.StreamResponse:
    """Reset the connection."""
    assert heard.request.transport is not None
    heard.request.transport.abort()
    return web.Response()


def huge(size: int) -> Handler:
    """Valid JSON of about `size` bytes."""

    async def answer(heard: Heard) -> web.StreamResponse:
        return web.json_response(heard.server.metadata() | {"filler": "x" * size})

    return answer


def status(code: int, body: str = "", **headers: str) -> Handler:
    """An HTTP status. Header names are written with underscores."""

    async def answer(heard: Heard) -> web.StreamResponse:
        return web.Response(status=code, text=body, headers={n.replace("_", "-"): v for n, v in headers.items()})

    return answer


def said(value: Any, code: int = 200, content_type: str = "application/json") -> Handler:
    """This JSON, whatever was asked; a string or bytes stand for the exact body."""

    async def answer(heard: Heard) -> web.StreamResponse:
        if isinstance(value, str | bytes):
            body = value.encode() if isinstance(value, str) else value
            return web.Response(body=body, status=code, content_type=content_type)
        return web.json_response(value, status=code, content_type=content_type)

    return answer


def refusal(error: str, code: int = 400, description: str = "") -> Handler:
    """An OAuth error such as invalid_client."""
    return said({"error": error, "error_description": description}, code)


def redirect(location: str, code: int = 302) -> Handler:
    """Elsewhere, such as a private address."""
    return status(code, location=location)


def after(event: asyncio.Event, then: Handler | None = None) -> Handler:
    """Wait for the test before answering."""

    async def answer(heard: Heard) -> web.StreamResponse:
        await event.wait()
        return await (then or heard.server.usual)(heard)

    return answer


def once(first: Handler, then: Handler | None = None) -> Handler:
    """`first` for the first request, later ones as usual (or as `then`)."""
    used = False

    async def answer(heard: Heard) -> web.StreamResponse:
        nonlocal used
        if used:
            return await (then or heard.server.usual)(heard)
        used = True
        return await first(heard)

    return answer
