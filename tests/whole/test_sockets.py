"""What only a real server shows of the websocket: its own limits, beside ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import uuid4

import pytest

from tests.fakes.endpoint import Endpoint, text
from tests.whole.site import Site

pytestmark = pytest.mark.deadline(120)  # servers start and are killed as processes


@pytest.mark.parametrize("server", ["daphne", "uvicorn"])
async def test_a_frame_of_several_mebibytes_is_answered_not_cut_off(
    endpoint: Endpoint, make_site: Callable[..., Site], server: str
) -> None:
    endpoint.script(text("ok"))
    site = await asyncio.to_thread(make_site, endpoint.base_url, server=server)
    await asyncio.to_thread(site.start)
    key = await asyncio.to_thread(site.key, "alice", "acme", "chat")
    async with site.socket("acme", key) as socket:

        async def ask(characters: int) -> None:
            content = [{"type": "text", "text": "x" * characters}]
            await socket.send("turn.start", request_id=str(uuid4()), agent="plain", content=content)

        await ask(3 * 2**20)
        assert (await socket.until("error"))["code"] == "too_large"
        await ask(2**20)
        assert (await socket.until("turn.finished"))["outcome"] == "completed"
