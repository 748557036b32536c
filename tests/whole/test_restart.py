"""The server as a process that is killed, told to stop and started again, under both ASGI servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import uuid4

import psutil
import pytest

from tests.fakes.endpoint import Endpoint, calls, text
from tests.whole.site import Site

pytestmark = pytest.mark.deadline(180)  # servers start and are killed as processes
NOTE = ("demo__add_note", {"title": "Milk", "text": "Buy milk."})


def start(text: str, agent: str = "plain") -> dict[str, object]:
    return {"request_id": str(uuid4()), "agent": agent, "content": [{"type": "text", "text": text}]}


@pytest.mark.parametrize("server", ["daphne", "uvicorn"])
async def test_a_server_killed_in_mid_answer_keeps_what_was_checkpointed_and_offers_to_continue(
    endpoint: Endpoint, make_site: Callable[..., Site], server: str
) -> None:
    gate = asyncio.Event()
    endpoint.script(text("This was shown", gate), text(" and this came after."))
    site = await asyncio.to_thread(make_site, endpoint.base_url, server=server)
    await asyncio.to_thread(site.start)
    key = await asyncio.to_thread(site.key, "alice", "acme", "chat")
    async with site.socket("acme", key) as socket:
        await socket.send("turn.start", **start("go on"))
        turn = await socket.until("turn.started")
        await socket.until("text.delta")
        # A checkpoint is due a second after the first delta; the row tells when it is there.
        await asyncio.to_thread(site.until_stored, "This was shown")
        site.kill()
    await asyncio.to_thread(site.start)
    async with site.socket("acme", key) as socket:
        # The reaper runs as the server starts: the turn is told as interrupted, in the snapshot or right after it.
        await socket.send("turn.follow", turn_id=turn["turn_id"], after=0)
        told = await socket.until("turn.snapshot")
        if told["status"] == "running":
            told = await socket.until("turn.finished")
        assert told.get("outcome", told.get("status")) == "interrupted"
        assert told["message"]["parts"][0]["text"] == "This was shown"
        await socket.send("turn.continue", request_id=str(uuid4()), message_id=told["message"]["id"])
        continued = await socket.until("turn.started")
        finished = await socket.until("turn.finished")
        assert finished["turn_id"] == continued["turn_id"]
        assert finished["outcome"] == "completed"
        shown = "".join(part["text"] for part in finished["message"]["parts"] if part["type"] == "text")
        assert shown == "This was shown and this came after."


@pytest.mark.parametrize("server", ["daphne", "uvicorn"])
async def test_a_server_told_to_stop_ends_its_turns_as_interrupted_its_processes_and_closes_sockets_with_1012(
    endpoint: Endpoint, make_site: Callable[..., Site], server: str
) -> None:
    gate = asyncio.Event()
    endpoint.script(text("kept", gate))
    site = await asyncio.to_thread(make_site, endpoint.base_url, server=server)
    site.env["TURN_DRAIN_SECONDS"] = "0.2"
    await asyncio.to_thread(site.start)
    key = await asyncio.to_thread(site.key, "alice", "acme", "chat")
    async with site.socket("acme", key) as socket:
        await socket.send("turn.start", **start("go on", "helper"))  # whose tools are those of a local process
        await socket.until("text.delta")
        assert site.process is not None
        local = psutil.Process(site.process.pid).children(recursive=True)
        assert [child for child in local if "demo.mcp_server" in child.cmdline()]
        stopping = asyncio.create_task(asyncio.to_thread(site.stop))
        finished = await socket.until("turn.finished")
        assert finished["outcome"] == "interrupted"
        assert finished["message"]["parts"][0]["text"] == "kept"
        with pytest.raises(ConnectionError, match="1012"):
            await socket.until("never")
        await stopping
    assert not [child for child in local if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


async def test_a_turn_that_waits_survives_a_kill_and_goes_on_after_the_answer(
    endpoint: Endpoint, make_site: Callable[..., Site]
) -> None:
    endpoint.script(calls(NOTE), text("Noted."))
    site = await asyncio.to_thread(make_site, endpoint.base_url)
    await asyncio.to_thread(site.start)
    key = await asyncio.to_thread(site.key, "alice", "acme", "chat", "approve")
    async with site.socket("acme", key) as socket:
        await socket.send("turn.start", **start("note it", "helper"))
        card = await socket.until("call.approval")
        waiting = await socket.until("turn.waiting")
    site.kill()
    await asyncio.to_thread(site.start)
    async with site.socket("acme", key) as socket:
        assert (await socket.until("hello"))["turns"][0]["status"] == "waiting"
        await socket.send("turn.follow", turn_id=waiting["turn_id"], after=waiting["seq"])
        snapshot = await socket.until("turn.snapshot")
        await socket.send("call.decide", call_id=card["call_id"], decision="allow_once")
        finished = await socket.until("turn.finished")
        assert finished["outcome"] == "completed"
        numbers = [frame["seq"] for frame in socket.seen if frame.get("turn_id") and "seq" in frame]
        assert numbers == list(range(snapshot["seq"], snapshot["seq"] + len(numbers)))


async def test_a_second_process_on_the_same_database_is_refused(
    endpoint: Endpoint, make_site: Callable[..., Site]
) -> None:
    site = await asyncio.to_thread(make_site, endpoint.base_url)
    await asyncio.to_thread(site.start)
    second = Site(site.directory)
    second.env.update(site.env)
    try:
        with pytest.raises(AssertionError, match="REDIS_URL"):
            await asyncio.to_thread(second.start)
    finally:
        second.close()
