"""The queries of a turn, and of opening a conversation."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any
from uuid import uuid4

from django.test import Client

from accounts.doors import Door
from benchmarks.inside.rows import Queries, long_conversation, somebody
from benchmarks.product import ORGANIZATION
from chatui import lifecycle
from chatui.rows import in_rows
from conversations import beginning, feed
from conversations.models import Conversation
from conversations.turns import NewTurn


async def one_turn(key: str, **fields: Any) -> dict[str, Any]:
    """A turn from its beginning to its last frame, which is returned."""
    door = Door(ORGANIZATION, authorization=f"Bearer {key}")
    new = NewTurn(request_id=uuid4(), content=[{"type": "text", "text": "How are you?"}], **fields)
    begun = await beginning.begin(door, new)
    last = ""
    async for text in feed.current().follow(begun.turn_id, 0):
        last = text
    frame: dict[str, Any] = json.loads(last)
    assert frame["type"] == "turn.finished", frame
    assert frame["outcome"] == "completed", frame
    return frame


def open_conversation(key: str, conversation: Conversation) -> int:
    """Load it as the page does; the number of its messages."""
    client = Client(headers={"Authorization": f"Bearer {key}"}, SERVER_NAME="127.0.0.1")
    answer = client.get(f"/api/v1/conversations/{conversation.pk}/messages")
    assert answer.status_code == 200, answer.content
    return len(answer.json()["messages"])


async def _measured() -> dict[str, Any]:
    counted = Queries()
    actor, key = await in_rows(somebody)
    for agent in ("first", "tool"):  # the first use of everything
        await one_turn(key, agent=agent)
    found: dict[str, Any] = {}
    for messages in (2, 200):
        conversation = await in_rows(long_conversation, actor, messages)
        with counted.taken() as noted:
            await one_turn(key, conversation_id=conversation.pk)
        found[f"turn_{messages}"] = len(noted)
    for agent in ("first", "tool"):
        with counted.taken() as noted:
            await one_turn(key, agent=agent)
        found[f"new_{agent}"], found[f"sql_{agent}"] = len(noted), list(noted)
    for messages in (10, 1000):
        conversation = await in_rows(long_conversation, actor, messages)
        began = time.perf_counter()
        with counted.taken() as noted:
            opened = await in_rows(open_conversation, key, conversation)
        assert opened == messages, opened
        found[f"open_{messages}"] = len(noted)
        found[f"open_{messages}_ms"] = (time.perf_counter() - began) * 1000
    await lifecycle.aclose()
    return found


def measure() -> dict[str, Any]:
    """Numbers of queries, transactions not counted, and the SQL of new chats."""
    return asyncio.run(_measured())
