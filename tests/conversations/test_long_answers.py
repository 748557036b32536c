"""Answers, arguments and results that no frame holds: every frame is small, and all of it is to be had."""

from __future__ import annotations

import json
from typing import Any

import orjson
from django.test import AsyncClient

from accounts.models import ApiKey, Organization, User
from chatui.rows import in_rows
from conversations import feed
from conversations.frame_bounds import FRAME_LIMIT
from tests.conversations.asking import agent, asked, decided, fake, server
from tests.conversations.chat import Chat
from tests.fakes.endpoint import Endpoint, text
from tests.fakes.mcp_server import FakeMCPServer, big

__all__ = ["agent", "fake", "server"]

LONG = "Ünd so weiter. " * (2 * 2**20 // 16)  # two megabytes


async def get(owner: User, path: str) -> Any:
    client = AsyncClient()
    await in_rows(client.force_login, owner)
    response = await client.get(path)
    assert response.status_code == 200
    return response.json()


def largest(chat: Chat) -> int:
    return max(len(orjson.dumps(frame)) for frame in chat.seen)


async def test_an_answer_of_two_megabytes_comes_in_small_frames_and_is_whole_over_http(
    owner: User, endpoint: Endpoint
) -> None:
    endpoint.script(text(LONG))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        turn_id = finished["turn_id"]
        assert chat.text(turn_id) == LONG
        assert finished["message"]["truncated"] is True
        whole = (await get(owner, finished["message"]["url"]))["message"]
        assert [part["text"] for part in whole["parts"]] == [LONG]
        assert "truncated" not in whole

        feed.current().aclose()  # forgets its frames, as after a while
        await chat.send("turn.follow", turn_id=turn_id)
        snapshot = await chat.until("turn.snapshot")
        assert LONG.startswith(snapshot["message"]["parts"][0]["text"])
        assert largest(chat) <= FRAME_LIMIT


async def test_a_long_answer_is_whole_for_clients_of_openai(
    owner: User, organization: Organization, endpoint: Endpoint
) -> None:
    endpoint.script(text(LONG))
    _, key = await in_rows(ApiKey.issue, user=owner, organization=organization)
    body = {"model": "helper", "messages": [{"role": "user", "content": "go on"}]}
    response = await AsyncClient().post(
        "/v1/chat/completions",
        json.dumps(body),
        content_type="application/json",
        headers={"Authorization": f"Bearer {key}"},
    )
    assert response.json()["choices"][0]["message"]["content"] == LONG


async def test_the_card_of_large_arguments_says_where_all_of_them_are(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer
) -> None:
    large = {"text": "ü" * 35_000}  # 70 kB
    fake.on("tools/call", big(300_000))
    async with await Chat.of(owner) as chat:
        card = await asked(chat, endpoint, ("notes__write", large))
        assert set(card["arguments"]) == {"truncated", "url"}
        assert (await get(owner, card["arguments"]["url"]))["arguments"] == large
        call = await decided(chat, endpoint, card)
        assert call["arguments"] == card["arguments"]
        assert largest(chat) <= FRAME_LIMIT
    assert fake.exchanges_of("tools/call")[-1].params["arguments"] == large
