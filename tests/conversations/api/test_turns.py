"""Turns over HTTP: begun, followed as server-sent events, resumed, stopped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import pytest
from django.test import AsyncClient

from accounts.models import ApiKey, Organization, User
from agents.models import Agent
from chatui.rows import in_rows
from conversations import feed
from conversations.models import Conversation, Turn
from conversations.supervisor import Supervisor
from tests.conversations.api.conftest import Enter
from tests.fakes.endpoint import Endpoint, failure, text
from tests.served import served


async def start(client: AsyncClient, **body: Any) -> Any:
    body = {"agent": "helper", "content": [{"type": "text", "text": "Hi"}], **body}
    return await client.post("/api/v1/turns", json.dumps(body), content_type="application/json")


@dataclass
class Event:
    id: str
    data: Any


async def events(lines: AsyncIterator[bytes]) -> AsyncIterator[Event]:
    """Server-sent events as a browser reads them (HTML standard, 9.2.6)."""
    id_, data = "", ""
    async for raw in lines:
        line = raw.decode().rstrip("\n")
        name, _, value = line.partition(": ")
        if not line:
            if data:
                yield Event(id_, json.loads(data))
            data = ""
        elif name == "id":
            id_ = value
        elif name == "data":
            data += value


async def follow(client: AsyncClient, turn_id: str, **headers: str) -> list[Event]:
    response = await client.get(f"/api/v1/turns/{turn_id}/events", headers=headers)
    assert response.status_code == 200
    assert response["Content-Type"] == "text/event-stream"

    async def lines() -> AsyncIterator[bytes]:
        body = b"".join([part async for part in response])
        for line in body.splitlines(keepends=True):
            yield line

    return [event async for event in events(lines())]


@pytest.fixture
async def client(owner: User, agent: Agent, as_user: Enter) -> AsyncClient:
    return await as_user(owner)


async def test_a_turn_is_begun_and_followed_to_its_end(client: AsyncClient, endpoint: Endpoint) -> None:
    endpoint.script(text("Hel", "lo."))
    begun = await start(client, timezone="Europe/Berlin")
    assert begun.status_code == 201
    turn = begun.json()
    seen = await follow(client, turn["id"])
    assert [event.id for event in seen] == [str(number) for number in range(1, len(seen) + 1)]
    assert seen[0].data["type"] == "turn.started"
    assert seen[-1].data["type"] == "turn.finished"
    assert seen[-1].data["outcome"] == "completed"
    assert "".join(event.data["text"] for event in seen if event.data["type"] == "text.delta") == "Hello."
    ended = (await client.get(f"/api/v1/turns/{turn['id']}")).json()
    assert (ended["status"], ended["seq"]) == ("completed", len(seen))
    assert ended["message"] == seen[-1].data["message"]
    assert ended["conversation_id"] == turn["conversation_id"]


async def test_following_again_resumes_after_the_last_event(client: AsyncClient, endpoint: Endpoint) -> None:
    endpoint.script(text("Hello."))
    turn_id = (await start(client)).json()["id"]
    whole = await follow(client, turn_id)
    assert await follow(client, turn_id, **{"Last-Event-ID": "2"}) == whole[2:]
    response = await client.get(f"/api/v1/turns/{turn_id}/events?after=2")
    assert b"".join([part async for part in response]).startswith(b"id: 3\n")


async def test_what_is_no_longer_held_is_a_snapshot(client: AsyncClient, endpoint: Endpoint, house: Supervisor) -> None:
    endpoint.script(text("Hello."))
    turn_id = (await start(client)).json()["id"]
    whole = await follow(client, turn_id)
    feed.current().aclose()  # forgets its frames, as after a while
    (snapshot,) = await follow(client, turn_id, **{"Last-Event-ID": "1"})
    assert snapshot.id == whole[-1].id
    assert snapshot.data["type"] == "turn.snapshot"
    assert snapshot.data["message"] == whole[-1].data["message"]


@pytest.mark.parametrize("value", ["x", "-1", "1.5", "²", "9" * 30])
async def test_a_last_event_id_that_is_no_number_is_refused(
    client: AsyncClient, endpoint: Endpoint, value: str
) -> None:
    endpoint.script(text("Hello."))
    turn_id = (await start(client)).json()["id"]
    response = await client.get(f"/api/v1/turns/{turn_id}/events?after={value}")
    assert response.status_code == 400


async def test_a_repeated_request_begins_nothing_new(client: AsyncClient, endpoint: Endpoint) -> None:
    endpoint.script(text("Hello."))
    request_id = str(uuid4())
    first = await start(client, request_id=request_id)
    second = await start(client, request_id=request_id)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["id"] == second.json()["id"]
    await follow(client, first.json()["id"])
    assert await Conversation.objects.as_system().acount() == 1


async def test_a_second_turn_of_a_conversation_is_refused_until_the_first_ended(
    client: AsyncClient, endpoint: Endpoint
) -> None:
    gate = asyncio.Event()
    endpoint.script(text("Hel", gate, "lo."), text("Again."))
    first = (await start(client)).json()
    again = await start(client, agent=None, conversation_id=first["conversation_id"])
    assert (again.status_code, again.json()["error"]["code"]) == (409, "turn_running")
    gate.set()
    await follow(client, first["id"])
    again = await start(client, agent=None, conversation_id=first["conversation_id"])
    assert again.status_code == 201
    assert (await follow(client, again.json()["id"]))[-1].data["outcome"] == "completed"


async def test_a_turn_is_stopped_and_keeps_what_it_said(client: AsyncClient, endpoint: Endpoint) -> None:
    endpoint.script(text("Hel", asyncio.Event(), "never"))
    turn_id = (await start(client)).json()["id"]
    await endpoint.received(1)
    async for frame in feed.current().follow(turn_id_of(turn_id), 0):
        if json.loads(frame)["type"] == "text.delta":
            break
    assert (await client.post(f"/api/v1/turns/{turn_id}/stop")).status_code == 202
    last = (await follow(client, turn_id))[-1].data
    assert last["outcome"] == "stopped"
    assert last["message"]["parts"][0]["text"] == "Hel"
    assert (await client.post(f"/api/v1/turns/{turn_id}/stop")).json()["status"] == "stopped"


def turn_id_of(text_: str) -> UUID:
    return UUID(text_)


async def test_a_failed_turn_says_why(client: AsyncClient, endpoint: Endpoint) -> None:
    endpoint.script(*[failure(401, "Incorrect API key provided: sk-live-SECRET123")] * 3)
    last = (await follow(client, (await start(client)).json()["id"]))[-1].data
    assert (last["outcome"], last["error"]["code"]) == ("failed", "endpoint_authentication")
    assert "SECRET123" not in json.dumps(last)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"content": []}, 400, "content: "),
        ({"content": [{"type": "text", "text": " "}]}, 400, "empty"),
        ({"content": "Hi"}, 400, "content: "),
        ({"agent": "no-such"}, 404, "agent"),
        ({"agent": None}, 400, "names its agent"),
        ({"conversation_id": str(uuid4())}, 404, "conversation"),
        ({"request_id": "x"}, 400, "request_id: "),
        ({"organization": "acme"}, 400, "organization: "),
        ({"user_id": str(uuid4())}, 400, "user_id: "),
        ({"content": [{"type": "attachment", "id": str(uuid4())}]}, 404, "attachment"),
        ({"servers": ["no-such"]}, 400, "no-such"),
    ],
)
async def test_what_cannot_be_begun_is_refused_and_leaves_nothing(
    client: AsyncClient, body: dict[str, Any], status: int, words: str
) -> None:
    response = await start(client, **body)
    assert response.status_code == status
    assert words in response.json()["error"]["message"]
    assert not await Turn.objects.aexists()
    assert not await Conversation.objects.as_system().aexists()


async def test_a_process_that_is_shutting_down_takes_no_turn(client: AsyncClient, house: Supervisor) -> None:
    house.draining = True
    response = await start(client)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "draining")


async def test_a_running_turn_is_followed_live_by_a_real_client_that_may_leave(
    owner: User, organization: Organization, agent: Agent, endpoint: Endpoint
) -> None:
    gate = asyncio.Event()
    endpoint.script(text("Hel", gate, "lo."))
    _, key = await in_rows(ApiKey.issue, user=owner, organization=organization)
    headers = {"Authorization": f"Bearer {key}"}
    async with served() as base, aiohttp.ClientSession(base, headers=headers) as session:
        body = {"agent": "helper", "content": [{"type": "text", "text": "Hi"}]}
        async with session.post("/api/v1/turns", json=body) as response:
            turn_id = (await response.json())["id"]
        seen: list[Event] = []
        async with session.get(f"/api/v1/turns/{turn_id}/events") as stream:
            async for event in events(stream.content):
                seen.append(event)
                if event.data["type"] == "text.delta":
                    break
        assert (await Turn.objects.aget(pk=turn_id)).status == "running"  # leaving stopped nothing
        gate.set()
        async with session.get(f"/api/v1/turns/{turn_id}/events", headers={"Last-Event-ID": seen[-1].id}) as stream:
            seen += [event async for event in events(stream.content)]
    assert [event.id for event in seen] == [str(number) for number in range(1, len(seen) + 1)]
    assert "".join(event.data["text"] for event in seen if event.data["type"] == "text.delta") == "Hello."


async def test_a_quiet_stream_is_kept_alive(client: AsyncClient, endpoint: Endpoint, monkeypatch: Any) -> None:
    monkeypatch.setattr("conversations.api.turns.KEEP_ALIVE", 0.02)
    gate = asyncio.Event()
    endpoint.script(text("Hel", gate, "lo."))
    turn_id = (await start(client)).json()["id"]
    response = await client.get(f"/api/v1/turns/{turn_id}/events")
    quiet = 0
    async for part in response:
        if part == b": \n\n":
            quiet += 1
            if quiet == 3:
                gate.set()
    assert quiet >= 3
    assert b"turn.finished" in part
