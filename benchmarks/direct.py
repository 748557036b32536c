"""The same work without the product: a completion over bare HTTP and with the `openai` package, a call with `mcp`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

import orjson
from mcp import Client
from mcp_types import TextContent
from openai import AsyncOpenAI

QUESTION = [{"role": "user", "content": "How are you?"}]
now = time.monotonic


@dataclass(slots=True)
class Timing:
    """Seconds from the request to the first token and to the end; tokens that came."""

    first: float
    whole: float
    tokens: int

    @property
    def rate(self) -> float:
        return self.tokens / self.whole


class RawHTTP:
    """One kept-alive connection, with no more than what HTTP needs."""

    def __init__(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.port, self.reader, self.writer = port, reader, writer

    @classmethod
    async def to(cls, port: int) -> Self:
        return cls(port, *await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, model: str) -> Timing:
        body = orjson.dumps({"model": model, "stream": True, "messages": QUESTION})
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        asked, first, tokens, last = now(), 0.0, 0, b""
        self.writer.write(head.encode() + body)
        while b"0\r\n\r\n" not in last[-16:]:
            data = await self.reader.read(2**18)
            if not data:
                raise ConnectionError("the endpoint closed the connection")
            found = data.count(b'"content":"') - data.count(b'"content":""')
            if found and not tokens:
                first = now()
            tokens += found
            last = last[-16:] + data
        return Timing(first - asked, now() - asked, tokens)

    async def aclose(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


class Package:
    """The `openai` package as its users use it."""

    def __init__(self, port: int) -> None:
        self.client = AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="sk-benchmark", max_retries=0)

    async def ask(self, model: str) -> Timing:
        asked, first, tokens = now(), 0.0, 0
        messages: Any = QUESTION
        async with await self.client.chat.completions.create(model=model, messages=messages, stream=True) as stream:
            async for chunk in stream:
                text = chunk.choices[0].delta.content if chunk.choices else None
                if text:
                    first = first or now()
                    tokens += text.count(" ")
        return Timing(first - asked, now() - asked, tokens)

    async def tool_turn(self, model: str, client: Client) -> float:
        """Two completions and the call between them; seconds."""
        asked = now()
        schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        tools: Any = [{"type": "function", "function": {"name": "echo", "parameters": schema}}]
        messages: list[Any] = list(QUESTION)
        while True:
            call: dict[str, str] = {}
            create = self.client.chat.completions.create
            async with await create(model=model, messages=messages, tools=tools, stream=True) as stream:
                async for chunk in stream:
                    for piece in chunk.choices[0].delta.tool_calls or () if chunk.choices else ():
                        assert piece.function is not None
                        call = {"id": piece.id or "", "name": piece.function.name or ""}
                        call["arguments"] = piece.function.arguments or ""
            if not call:
                return now() - asked
            content = await echoed(client, orjson.loads(call["arguments"])["text"])
            function = {"name": call["name"], "arguments": call["arguments"]}
            asks = [{"id": call["id"], "type": "function", "function": function}]
            messages.append({"role": "assistant", "content": None, "tool_calls": asks})
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})

    async def aclose(self) -> None:
        await self.client.close()


@asynccontextmanager
async def mcp_client(url: str) -> AsyncIterator[Client]:
    """A client of the `mcp` package, with the defaults of the package."""
    async with Client(url, read_timeout_seconds=30) as client:
        yield client


async def echoed(client: Client, text: str) -> str:
    result = await client.call_tool("echo", {"text": text})
    first = result.content[0]
    assert isinstance(first, TextContent)
    return first.text
