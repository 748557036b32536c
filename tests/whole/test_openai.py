"""The `openai` package against the whole product, as an operator starts it: models, tools, streams, going away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import openai
import pytest
from openai import AsyncOpenAI, DefaultAioHttpClient

from tests.fakes.endpoint import Endpoint, calls, text
from tests.whole.site import Site

HI = [{"role": "user", "content": "Hi"}]


@pytest.mark.deadline(120)  # servers start and are killed as processes
@pytest.mark.parametrize("server", ["daphne", "uvicorn"])
async def test_an_openai_client_streams_with_tools_and_may_go_away(
    make_site: Callable[..., Site], endpoint: Endpoint, server: str
) -> None:
    site = await asyncio.to_thread(lambda: make_site(endpoint.base_url, server=server).start())
    key = await asyncio.to_thread(site.key, "bob", "acme")
    async with AsyncOpenAI(
        api_key=key, base_url=f"{site.url}/v1", max_retries=0, http_client=DefaultAioHttpClient()
    ) as client:
        assert {model.id for model in (await client.models.list()).data} == {"helper", "plain"}

        endpoint.script(calls(("demo__calculate", {"expression": "6*7"})), text("It is ", "42."))
        async with await client.chat.completions.create(model="helper", messages=HI, stream=True) as stream:
            said = [chunk.choices[0].delta.content or "" async for chunk in stream]
        assert "".join(said) == "It is 42."
        assert endpoint.last.messages[-1]["role"] == "tool"
        assert "42" in endpoint.last.messages[-1]["content"]

        endpoint.script(text("Hel", asyncio.Event(), "never"))
        async with await client.chat.completions.create(model="plain", messages=HI, stream=True) as stream:
            async for chunk in stream:
                if chunk.choices[0].delta.content:
                    break
        await endpoint.last.disconnected.wait()

        endpoint.script(text(asyncio.Event(), "never"))
        asking = asyncio.create_task(client.chat.completions.create(model="plain", messages=HI))
        waiting = await endpoint.received(4)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await waiting.disconnected.wait()

        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="no-such", messages=HI)
