"""A body above the limit is refused before it is kept, announced or not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from django.core.asgi import get_asgi_application

from chatui.body_limit import BodyLimit
from tests.served import served

LIMIT = 100_000


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answers how long the body was; nothing to a client that went away."""
    length, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        length += len(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(length).encode()})


@pytest_asyncio.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with served(BodyLimit(application, LIMIT)) as address, aiohttp.ClientSession(address) as made:
        yield made


async def chunked(length: int) -> AsyncIterator[bytes]:
    for _ in range(length // 1000):
        yield b"x" * 1000


@pytest.mark.parametrize("body", [b"", b"x" * LIMIT])
async def test_a_body_within_the_limit_passes(session: aiohttp.ClientSession, body: bytes) -> None:
    async with session.post("/", data=body) as response:
        assert await response.text() == str(len(body))
    async with session.post("/", data=chunked(LIMIT)) as response:
        assert await response.text() == str(LIMIT)


async def test_a_body_that_is_announced_too_long_is_refused(session: aiohttp.ClientSession) -> None:
    async with session.post("/", data=b"x" * (LIMIT + 1)) as response:
        assert response.status == 413
        assert "MiB" in await response.text()


async def test_a_body_of_unknown_length_is_refused_when_it_gets_too_long(session: aiohttp.ClientSession) -> None:
    async with session.post("/", data=chunked(LIMIT + 1000)) as response:
        assert response.status == 413


@pytest.mark.parametrize("address", ["/api/v1/attachments", "/v1/chat/completions"])
async def test_a_program_is_told_in_json(session: aiohttp.ClientSession, address: str) -> None:
    async with session.post(address, data=b"x" * (LIMIT + 1)) as response:
        assert response.status == 413
        assert (await response.json())["error"]["code"] == "too_large"


async def test_django_lets_go_of_what_it_kept(transactional_db: None) -> None:
    django = BodyLimit(get_asgi_application(), LIMIT)
    async with served(django) as address, aiohttp.ClientSession(address) as session:
        async with session.post("/accounts/login/", data=chunked(LIMIT + 1000)) as response:
            assert response.status == 413
        async with session.get("/healthz") as response:
            assert response.status == 200
