"""What one process learns from another's rows: a stop, an answer, the death of an owner, a question that is overdue."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.utils import timezone

from accounts.actors import Actor, find_actor
from accounts.models import User
from agents.models import Agent
from chatui.rows import in_rows
from conversations import questions, turns
from conversations.decisions import Decision
from conversations.models import Question, Turn
from conversations.supervisor import Supervisor
from conversations.turns import NewTurn
from tests.conversations.chat import Chat
from tests.fakes.demo_server import ALLOWED, ASKED, make_demo_server
from tests.fakes.endpoint import Endpoint, calls, text

NOTE = ("demo__add_note", {"title": "Milk", "text": "Buy milk."})
SLOW = ("demo__brew_coffee", {"cups": 20, "seconds_per_cup": 10})


def actor(user: User) -> Actor:
    found = find_actor(user.pk, "acme")
    assert found is not None
    return found


@pytest.fixture
def with_tools(owner: User, organization: Any, agent: Agent) -> None:
    server = make_demo_server(organization, ASKED, ALLOWED)
    agent.servers.create(server=server)


async def test_a_stop_that_another_process_marked_is_carried_out_at_the_next_heartbeat(
    owner: User, endpoint: Endpoint, house: Supervisor
) -> None:
    gate = asyncio.Event()
    endpoint.script(text("par", gate))
    async with await Chat.of(owner) as chat:
        turn_id = await chat.start()
        await chat.until("text.delta")
        stop = await in_rows(lambda: turns.request_stop(actor(owner), turn_id))
        assert stop.ended is None
        await house.beat()
        finished = await chat.until("turn.finished")
        assert finished["outcome"] == "stopped"
        assert finished["message"]["parts"][0]["text"] == "par"


async def test_an_answer_that_another_process_took_is_carried_out_at_the_next_heartbeat(
    owner: User, with_tools: None, endpoint: Endpoint, house: Supervisor
) -> None:
    endpoint.script(calls(SLOW, NOTE))
    async with await Chat.of(owner) as chat:
        turn_id = await chat.start()
        card = await chat.until("call.approval")
        await chat.until("call.progress")
        answer = await in_rows(
            lambda: questions.decide(actor(owner), Decision("allow_once"), call_id=UUID(card["call_id"]))
        )
        assert not answer.resumed
        await house.beat()
        finished = await chat.until("call.finished")
        assert (finished["call_id"], finished["status"]) == (card["call_id"], "ok")
        await chat.send("turn.stop", turn_id=str(turn_id))
        await chat.until("turn.finished")


async def test_an_overdue_question_lets_its_turn_go_on_without_the_call(
    owner: User, with_tools: None, endpoint: Endpoint, house: Supervisor
) -> None:
    endpoint.script(calls(NOTE), text("It was not decided."))
    async with await Chat.of(owner) as chat:
        await chat.start()
        await chat.until("turn.waiting")
        overdue = timezone.now() - timedelta(seconds=1)
        await in_rows(lambda: Question.objects.as_system().update(expires_at=overdue))
        await house.expire()
        finished = await chat.until("turn.finished")
        assert finished["outcome"] == "completed"
        call = next(part for part in finished["message"]["parts"] if part["type"] == "call")
        assert call["status"] == "expired"
    assert "Nobody decided" in endpoint.last.messages[-1]["content"]


async def test_the_turn_of_a_dead_process_is_ended_here_and_its_owner_is_told(
    owner: User, endpoint: Endpoint, house: Supervisor
) -> None:
    def of_another_process() -> UUID:
        new = NewTurn(request_id=uuid4(), agent="helper", content=[{"type": "text", "text": "hi"}])
        begun = turns.begin_turn(actor(owner), new)
        long_ago = timezone.now() - timedelta(minutes=1)
        Turn.objects.filter(pk=begun.turn_id).update(process="dead", heartbeat_at=long_ago)
        return begun.turn_id

    turn_id = await in_rows(of_another_process)
    async with await Chat.of(owner) as chat:
        await house.reap()
        changed = await chat.until("turn.changed")
        assert (changed["turn_id"], changed["status"]) == (str(turn_id), "interrupted")
        await chat.send("turn.follow", turn_id=str(turn_id), after=0)
        snapshot = await chat.until("turn.snapshot")
        assert snapshot["status"] == "interrupted"


async def test_a_heartbeat_that_fails_does_not_end_the_heartbeat(
    owner: User, endpoint: Endpoint, house: Supervisor, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.TURN = {**settings.TURN, "HEARTBEAT_SECONDS": 0.01}
    beats: list[int] = []
    enough = asyncio.Event()

    async def broken(_self: Supervisor) -> None:
        beats.append(1)
        if len(beats) >= 3:
            enough.set()
        raise OSError("the database is away")

    monkeypatch.setattr(Supervisor, "beat", broken)
    await house.begin()
    await enough.wait()
