"""What servers ask when the process that asked is killed: a parked question lives on, one during a call does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from tests.fakes.endpoint import Endpoint, calls, text
from tests.fakes.mcp_server import FakeMCPServer
from tests.mcpservers.test_elicitation_calls import FORM, asking, asks, question
from tests.whole.site import Site

pytestmark = pytest.mark.deadline(180)  # servers start and are killed as processes

SERVERS = """
organizations:
  acme:
    servers:
      parks:
        title: Parks
        transport: http
        url: {parks}
        rules: [{{tool: "*", do: allow}}]
        grants: [{{organization: true}}]
      holds:
        title: Holds
        transport: http
        url: {holds}
        headers: {{X-User: "{{{{user.id}}}}"}}
        rules: [{{tool: "*", do: allow}}]
        grants: [{{organization: true}}]
    agents:
      asker:
        name: Asker
        model: main/gpt
        servers: [parks, holds]
        grants: [{{organization: true}}]
"""


def start() -> dict[str, Any]:
    return {"request_id": str(uuid4()), "agent": "asker", "content": [{"type": "text", "text": "go"}]}


async def test_a_kill_leaves_a_parked_question_open_and_takes_one_during_a_call_back(
    endpoint: Endpoint, make_site: Callable[..., Site]
) -> None:
    endpoint.script(
        calls(("parks__echo", {"text": "x"})), calls(("holds__echo", {"text": "x"})), text("It has a name now.")
    )
    async with FakeMCPServer(era="modern") as parks, FakeMCPServer() as holds:
        parks.on("tools/call", asks({"inputRequests": {"q": question(FORM)}, "requestState": "kept"}))
        holds.on("tools/call", asking(FORM))
        site = await asyncio.to_thread(make_site, endpoint.base_url)
        await asyncio.to_thread(site.apply, SERVERS.format(parks=parks.url, holds=holds.url))
        await asyncio.to_thread(site.start)
        key = await asyncio.to_thread(site.key, "alice", "acme", "chat", "approve")
        async with site.socket("acme", key) as socket:
            await socket.send("turn.start", **start())
            parked = await socket.until("elicitation.requested")
            await socket.until("turn.waiting")
            await socket.send("turn.start", **start())
            held = await socket.until("elicitation.requested")
        site.kill()
        await asyncio.to_thread(site.start)
        async with site.socket("acme", key) as socket:
            await socket.send("turn.follow", turn_id=held["turn_id"], after=0)
            told = await socket.until("turn.snapshot")
            while told.get("status") in ("running", "waiting"):  # the reaper was not there yet
                told = await socket.until("turn.snapshot", "turn.finished")
            call = next(part for part in told["message"]["parts"] if part["type"] == "call")
            assert (call["status"], call["question"]["state"]) == ("interrupted", "void")
            await socket.send("elicitation.answer", elicitation_id=held["elicitation_id"], action="accept")
            assert (await socket.until("error"))["code"] == "already_answered"

            await socket.send("turn.follow", turn_id=parked["turn_id"], after=0)
            assert (await socket.until("turn.snapshot"))["status"] == "waiting"
            given = {"action": "accept", "content": {"name": "Ada"}}
            await socket.send("elicitation.answer", elicitation_id=parked["elicitation_id"], **given)
            assert (await socket.until("turn.finished"))["outcome"] == "completed"
        params = parks.exchanges_of("tools/call")[-1].params
        assert params["requestState"] == "kept"
        assert params["inputResponses"] == {"q": {"action": "accept", "content": {"name": "Ada", "size": 4}}}
