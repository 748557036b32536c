"""Questions as the `openai` package asks them, and what was said."""

from __future__ import annotations

from typing import Any

from openai import AsyncOpenAI

HI = [{"role": "user", "content": "Hi"}]
ADD = ("demo__calculate", {"expression": "2+3"})


async def ask(client: AsyncOpenAI, messages: Any = HI, **parameters: Any) -> Any:
    return await client.chat.completions.create(model="helper", messages=messages, **parameters)


async def streamed(client: AsyncOpenAI, messages: Any = HI, **parameters: Any) -> list[Any]:
    async with await ask(client, messages, stream=True, **parameters) as stream:
        return [chunk async for chunk in stream]


def said(chunks: list[Any]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
