"""Proofs on requests that are redirected: each is for the very request that leaves, and leaves for its origin alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import pytest
from aiohttp import web

from mcpservers.oauth import dpop
from mcpservers.oauth.proving import ProvingTransport, sign
from tests.fakes.proofs import Proofs

TOKEN = dpop.BoundToken("at-1", dpop.new_key())
Answer = Callable[[web.Request], Awaitable[web.Response]]


@asynccontextmanager
async def site(answer: Answer) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def posted(url: str, token: str = TOKEN) -> httpx2.Response:
    async with httpx2.AsyncClient(transport=ProvingTransport(), trust_env=False) as client:
        request = client.build_request("POST", url, json={})
        sign(request, token)
        return await client.send(request)


@pytest.mark.parametrize("code", [307, 308])
async def test_a_request_that_is_redirected_has_a_new_proof_for_where_it_goes(code: int) -> None:
    proofs, heard = Proofs(), list[str]()

    async def answer(request: web.Request) -> web.Response:
        heard.append(proofs.check(request.headers["dpop"], "POST", str(request.url.with_query(None)), TOKEN))
        moved = request.path == "/mcp"
        return web.Response(status=code, headers={"Location": "/mcp/?a=b"}) if moved else web.Response()

    async with site(answer) as origin:
        assert (await posted(f"{origin}/mcp?x=y#z")).status_code == 200
    assert heard == [dpop.thumbprint(TOKEN.key)] * 2


async def test_to_another_origin_goes_neither_token_nor_proof_and_its_nonce_is_not_kept() -> None:
    heard: list[Any] = []

    async def elsewhere(request: web.Request) -> web.Response:
        heard.append(dict(request.headers))
        said = {"WWW-Authenticate": 'DPoP error="use_dpop_nonce"', "DPoP-Nonce": "theirs"}
        return web.Response(status=401, headers=said)

    async with AsyncExitStack() as stack:
        away = await stack.enter_async_context(site(elsewhere))

        async def answer(request: web.Request) -> web.Response:
            return web.Response(status=307, headers={"Location": f"{away}/mcp"})

        origin = await stack.enter_async_context(site(answer))
        assert (await posted(f"{origin}/mcp")).status_code == 401
        assert dpop.OF_SERVERS.of(away, TOKEN.key) == dpop.OF_SERVERS.of(origin, TOKEN.key) == ""
    assert len(heard) == 1
    assert not {"Authorization", "DPoP"} & set(heard[0])
    assert TOKEN not in str(heard)


async def test_a_nonce_is_tried_once_and_every_answer_may_bring_the_next_one() -> None:
    given, nonces = ["n1", "n2", "n3"], list[str | None]()

    async def answer(request: web.Request) -> web.Response:
        import jwt

        claims = jwt.decode(request.headers["dpop"], options={"verify_signature": False})
        nonces.append(claims.get("nonce"))
        challenge = {"WWW-Authenticate": 'Bearer, DPoP error="use_dpop_nonce"', "DPoP-Nonce": given.pop(0)}
        return web.Response(status=401, headers=challenge) if len(nonces) < 3 else web.Response(headers=challenge)

    async with site(answer) as origin:
        assert (await posted(origin)).status_code == 401
        assert nonces == [None, "n1"]
        assert (await posted(origin)).status_code == 200
        assert nonces == [None, "n1", "n2"]
        assert dpop.OF_SERVERS.of(origin, TOKEN.key) == "n3"
        assert dpop.OF_ISSUERS.of(origin, TOKEN.key) == ""


async def test_without_a_nonce_to_try_nothing_is_sent_again() -> None:
    heard = list[str]()

    async def answer(request: web.Request) -> web.Response:
        heard.append(request.headers["dpop"])
        return web.Response(status=401, headers={"WWW-Authenticate": 'DPoP error="use_dpop_nonce"'})

    async with site(answer) as origin:
        assert (await posted(origin)).status_code == 401
    assert len(heard) == 1


async def test_a_bearer_token_has_no_proof() -> None:
    heard = list[Any]()

    async def answer(request: web.Request) -> web.Response:
        heard.append(dict(request.headers))
        return web.Response()

    async with site(answer) as origin:
        await posted(origin, "at-2")
    assert heard[0]["Authorization"] == "Bearer at-2"
    assert "DPoP" not in heard[0]
