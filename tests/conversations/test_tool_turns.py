"""Turns that call tools of a real MCP server (our demo server over stdio): rounds, approvals, restarts, stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.utils import timezone

from accounts.actors import Actor, find_actor
from accounts.models import ApiKey, User
from agents.models import Agent
from chatui.rows import in_rows
from conversations import feed, questions, supervisor
from conversations.decisions import Decision
from conversations.models import Attachment, Conversation, Message, Question, ToolCall, Turn
from mcpservers import connections
from mcpservers.models import MCPServer, ServerGrant
from tests.conversations.chat import Chat, gapless
from tests.fakes.demo_server import ALLOWED, ASKED, DENIED, make_demo_server
from tests.fakes.endpoint import Endpoint, calls, text

ADD = ("demo__calculate", {"expression": "2+3"})


@pytest.fixture
def server(transactional_db: None, organization: Any) -> MCPServer:
    return make_demo_server(organization, ASKED, DENIED, ALLOWED)


@pytest.fixture
def agent(
    transactional_db: None,
    house: Any,
    endpoint: Endpoint,
    organization: Any,
    server: MCPServer,
    make_agent: Callable[..., Agent],
) -> Agent:
    return make_agent(organization, base_url=endpoint.base_url, servers=[server])


def actor(user: User) -> Actor:
    found = find_actor(user.pk, "acme")
    assert found is not None
    return found


def only(model: Any) -> Any:
    manager = model.objects
    return manager.as_system().get() if hasattr(manager, "as_system") else manager.get()


async def test_a_tool_of_a_real_server_is_called_and_its_result_goes_back_to_the_model(
    owner: User, endpoint: Endpoint
) -> None:
    endpoint.script(calls(ADD, text="Let me see."), text("It is 5."))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask("2+3?")
        assert finished["outcome"] == "completed"
        assert gapless(chat.frames(finished["turn_id"]))
        kinds = [frame["type"] for frame in chat.frames(finished["turn_id"])]
        assert kinds.index("call.started") < kinds.index("call.finished")
        parts = finished["message"]["parts"]
        assert [(part["type"], part.get("kind")) for part in parts] == [
            ("text", "preamble"),
            ("call", None),
            ("text", None),
        ]
        assert (parts[1]["status"], parts[1]["server"], parts[1]["arguments"]) == ("ok", "demo", {"expression": "2+3"})
    sent = endpoint.last.messages
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool"]
    assert "5" in sent[3]["content"]
    assert sent[2]["tool_calls"][0]["id"] == sent[3]["tool_call_id"]
    assert "demo__calculate" in endpoint.requests[0].tools


async def test_the_second_turn_tells_the_model_of_the_first_ones_calls(owner: User, endpoint: Endpoint) -> None:
    endpoint.script(calls(ADD), text("5"), text("again"))
    async with await Chat.of(owner) as chat:
        await chat.ask("first")
        conversation = await in_rows(only, Conversation)
        await chat.ask("second", conversation_id=str(conversation.pk))
    roles = [message["role"] for message in endpoint.last.messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]


async def test_an_unknown_tool_and_bad_arguments_are_told_to_the_model_not_run(owner: User, endpoint: Endpoint) -> None:
    endpoint.script(
        calls(("demo__nothing", {}), ("demo__calculate", {"expression": 5}), ("demo__calculate", '{"expr')), text("ok")
    )
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert [part["status"] for part in finished["message"]["parts"] if part["type"] == "call"] == ["error"] * 3
        told = [frame["type"] for frame in chat.frames(finished["turn_id"]) if frame["type"].startswith("call.")]
        assert told == ["call.started", "call.finished"] * 3
    results = [message["content"] for message in endpoint.last.messages if message["role"] == "tool"]
    assert "demo__calculate" in results[0]
    assert "expression" in results[1]


async def test_a_denied_tool_is_not_run_and_the_model_is_told(owner: User, endpoint: Endpoint) -> None:
    endpoint.script(calls(("demo__draw_chart", {"values": [1, 2]})), text("a pity"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        call = next(part for part in finished["message"]["parts"] if part["type"] == "call")
        assert call["status"] == "denied"


async def test_a_picture_becomes_a_file_of_the_message_never_base64(
    owner: User, endpoint: Endpoint, server: MCPServer
) -> None:
    await in_rows(lambda: MCPServer.objects.as_system().update(rules=[{"tool": "*", "do": "allow"}]))
    endpoint.script(calls(("demo__draw_chart", {"values": [1, 2]})), text("look"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        call = next(part for part in finished["message"]["parts"] if part["type"] == "call")
        assert call["status"] == "ok"
        (artifact,) = call["artifacts"]
        assert artifact["content_type"] == "image/png"
        assert max(len(str(frame)) for frame in chat.seen) < 20_000
    stored = await in_rows(only, Attachment)
    assert stored.size > 100
    assert "base64" not in str(endpoint.last.messages)


# --- Approvals ----------------------------------------------------------------------------------------------------

NOTE = ("demo__add_note", {"title": "Milk", "text": "Buy milk."})


async def parked(chat: Chat, endpoint: Endpoint, *requests: Any) -> tuple[UUID, dict[str, Any]]:
    """A turn that waits for the approval of `NOTE`."""
    endpoint.script(calls(*(requests or (NOTE,))))
    turn_id = await chat.start("note it")
    card = await chat.until("call.approval")
    waiting = await chat.until("turn.waiting")
    assert waiting["for"] == "approval"
    return turn_id, card


async def test_a_tool_that_asks_parks_the_turn_and_an_approval_lets_it_go_on(owner: User, endpoint: Endpoint) -> None:
    async with await Chat.of(owner) as chat:
        turn_id, card = await parked(chat, endpoint)
        assert card["arguments"] == NOTE[1]
        assert card["server"] == "demo"
        left = datetime.fromisoformat(card["expires_at"]) - timezone.now()
        assert timedelta(hours=23, minutes=58) < left <= timedelta(hours=24)
        running = supervisor.current()._running.get(turn_id)
        if running is not None:
            await asyncio.wait({running.task})
        assert not supervisor.current().runs(turn_id)  # no task exists while a person is asked
        (held,) = connections.manager().list_connections()
        assert (held.leases, held.state) == (0, "ready"), "nor is a connection kept for it"
        endpoint.script(text("Noted."))
        await chat.send("call.decide", call_id=card["call_id"], decision="allow_once")
        await chat.until("turn.resumed")
        finished = await chat.until("turn.finished")
        assert finished["outcome"] == "completed"
        assert gapless(chat.frames(turn_id))
        call = next(part for part in finished["message"]["parts"] if part["type"] == "call")
        assert (call["status"], call["decided_by"]) == ("ok", "alice")
        answered = await Question.objects.as_system().aget()
        told = next(frame for frame in chat.frames(turn_id) if frame["type"] == "call.finished")
        assert told["decided_at"] == call["decided_at"] == (answered.answered_at and answered.answered_at.isoformat())
    assert len(endpoint.requests) == 2


async def test_an_answer_in_the_very_moment_of_parking_is_not_lost(owner: User, endpoint: Endpoint) -> None:
    """`turn.waiting` is sent before the task is gone: an answer between the two starts a task after that one."""
    endpoint.script(calls(NOTE), text("Noted."))
    async with await Chat.of(owner) as chat:
        turn_id = await chat.start()
        card = await chat.until("call.approval")
        channel, tell = feed.current(), asyncio.Event()
        publish = channel.publish

        def listening(turn: UUID, frame: Any) -> int:
            if frame.type == "turn.waiting":
                tell.set()
            return publish(turn, frame)

        channel.publish = listening  # only to know the moment
        await tell.wait()
        running = supervisor.current()._running.get(turn_id)
        answer = await in_rows(
            lambda: questions.decide(actor(owner), Decision("allow_once"), call_id=UUID(card["call_id"]))
        )
        if running is not None:  # as if its task still were there
            supervisor.current()._running.setdefault(turn_id, running)
        supervisor.current().answered(answer)
        if running is not None and running.task.done():
            supervisor.current()._done(turn_id, running.task)
        assert (await chat.until("turn.finished"))["outcome"] == "completed"
        assert gapless(chat.frames(turn_id))


async def test_a_denial_with_a_note_is_told_to_the_model_and_nothing_runs(owner: User, endpoint: Endpoint) -> None:
    async with await Chat.of(owner) as chat:
        _, card = await parked(chat, endpoint)
        endpoint.script(text("As you wish."))
        await chat.send("call.decide", call_id=card["call_id"], decision="deny", note="Not today.")
        finished = await chat.until("turn.finished")
        call = next(part for part in finished["message"]["parts"] if part["type"] == "call")
        assert call["status"] == "denied"
    assert "Not today." in endpoint.last.messages[-1]["content"]


async def test_the_answer_comes_from_another_tab(owner: User, endpoint: Endpoint) -> None:
    async with await Chat.of(owner) as chat, await Chat.of(owner) as other:
        _, card = await parked(chat, endpoint)
        await other.until("question.changed")
        endpoint.script(text("ok"))
        await other.send("call.decide", call_id=card["call_id"], decision="allow_once")
        assert (await chat.until("turn.finished"))["outcome"] == "completed"
        await other.until("question.changed", lambda frame: frame["state"] == "answered")


async def test_a_question_is_answered_once(owner: User, endpoint: Endpoint) -> None:
    async with await Chat.of(owner) as chat, await Chat.of(owner) as other:
        _, card = await parked(chat, endpoint)
        endpoint.script(text("ok"))
        await chat.send("call.decide", call_id=card["call_id"], decision="allow_once")
        await chat.until("turn.finished")
        await other.send("call.decide", call_id=card["call_id"], decision="deny", request_id=str(uuid4()))
        assert (await other.until("error"))["code"] == "already_answered"


async def test_a_restart_while_a_turn_waits_loses_nothing(
    owner: User, endpoint: Endpoint, house: supervisor.Supervisor
) -> None:
    async with await Chat.of(owner) as chat:
        turn_id, card = await parked(chat, endpoint)
    await house.aclose(drain_seconds=0)  # the process ends …
    feed.current().aclose()
    house.draining = False  # … and another begins
    await house.begin(alone=True)
    async with await Chat.of(owner) as chat:
        assert [turn["status"] for turn in chat.hello["turns"]] == ["waiting"]
        await chat.send("turn.follow", turn_id=str(turn_id), after=0)
        snapshot = await chat.until("turn.snapshot")
        call = next(part for part in snapshot["message"]["parts"] if part["type"] == "call")
        assert (call["status"], call["question"]["state"]) == ("waiting", "open")
        endpoint.script(text("Noted."))
        await chat.send("call.decide", call_id=card["call_id"], decision="allow_once")
        finished = await chat.until("turn.finished")
        assert finished["outcome"] == "completed"
        seqs = [frame["seq"] for frame in chat.frames(turn_id) if frame["type"] != "turn.snapshot"]
        assert seqs == list(range(snapshot["seq"] + 1, snapshot["seq"] + 1 + len(seqs)))


async def test_three_calls_with_different_verdicts_in_one_round(owner: User, endpoint: Endpoint) -> None:
    async with await Chat.of(owner) as chat:
        _, card = await parked(chat, endpoint, ADD, NOTE, ("demo__draw_chart", {"values": [1, 2]}))
        rows = await in_rows(lambda: list(ToolCall.objects.order_by("position").values_list("status", flat=True)))
        assert rows == ["ok", "waiting", "denied"]
        endpoint.script(text("done"))
        await chat.send("call.decide", call_id=card["call_id"], decision="allow_once")
        finished = await chat.until("turn.finished")
        statuses = [part["status"] for part in finished["message"]["parts"] if part["type"] == "call"]
        assert statuses == ["ok", "ok", "denied"]
    assert [message["role"] for message in endpoint.last.messages][-3:] == ["tool"] * 3


async def test_each_answer_runs_its_own_call_and_the_turn_waits_for_the_rest(owner: User, endpoint: Endpoint) -> None:
    other = ("demo__add_note", {"title": "Eggs", "text": "Buy eggs."})
    endpoint.script(calls(NOTE, other))
    async with await Chat.of(owner) as chat:
        await chat.start("note both")
        cards = [await chat.until("call.approval"), await chat.until("call.approval")]
        await chat.until("turn.waiting")
        await chat.send("call.decide", call_id=cards[1]["call_id"], decision="allow_once")
        assert (await chat.until("call.finished"))["call_id"] == cards[1]["call_id"]
        again = await chat.until("turn.waiting")
        assert again["ids"] == [cards[0]["call_id"]]
        assert len(endpoint.requests) == 1
        endpoint.script(text("both"))
        await chat.send("call.decide", call_id=cards[0]["call_id"], decision="deny")
        finished = await chat.until("turn.finished")
        statuses = [part["status"] for part in finished["message"]["parts"] if part["type"] == "call"]
        assert statuses == ["denied", "ok"]


async def test_stopping_a_waiting_turn_from_another_tab_ends_it_everywhere(owner: User, endpoint: Endpoint) -> None:
    async with await Chat.of(owner) as chat, await Chat.of(owner) as other:
        turn_id, card = await parked(chat, endpoint)
        await other.send("turn.stop", turn_id=str(turn_id))
        finished = await chat.until("turn.finished")
        assert finished["outcome"] == "stopped"
        assert gapless(chat.frames(turn_id))
        await other.send("call.decide", call_id=card["call_id"], decision="allow_once")
        assert (await other.until("error"))["code"] == "already_answered"
        conversation = await in_rows(only, Conversation)
        endpoint.script(text("next"))
        assert (await chat.ask("next", conversation_id=str(conversation.pk)))["outcome"] == "completed"
    for message in endpoint.last.messages:
        assert message["role"] != "tool" or "ancelled" in message["content"]


async def test_with_nobody_present_a_tool_that_would_ask_is_refused_at_once(
    owner: User, organization: Any, endpoint: Endpoint
) -> None:
    _, secret = await in_rows(ApiKey.issue, user=owner, organization=organization, name="k", scopes=["chat"])
    endpoint.script(calls(NOTE), text("I could not."))
    async with await Chat("acme", {"authorization": f"Bearer {secret}"}).connect() as chat:
        finished = await chat.ask()
        call = next(part for part in finished["message"]["parts"] if part["type"] == "call")
        assert finished["outcome"] == "completed"
        assert call["status"] == "denied"


async def test_a_key_with_the_scope_approve_is_asked_and_answers(
    owner: User, organization: Any, endpoint: Endpoint
) -> None:
    _, secret = await in_rows(ApiKey.issue, user=owner, organization=organization, name="k", scopes=["chat", "approve"])
    async with await Chat("acme", {"authorization": f"Bearer {secret}"}).connect() as chat:
        _, card = await parked(chat, endpoint)
        endpoint.script(text("Noted."))
        await chat.send("call.decide", call_id=card["call_id"], decision="allow_once")
        assert (await chat.until("turn.finished"))["outcome"] == "completed"


async def test_a_grant_withdrawn_while_the_turn_waits_denies_the_approved_call(owner: User, endpoint: Endpoint) -> None:
    async with await Chat.of(owner) as chat:
        _, card = await parked(chat, endpoint)
        await in_rows(lambda: ServerGrant.objects.all().delete())
        endpoint.script(text("It is not possible."))
        await chat.send("call.decide", call_id=card["call_id"], decision="allow_once")
        finished = await chat.until("turn.finished")
        call = next(part for part in finished["message"]["parts"] if part["type"] == "call")
        assert call["status"] in ("denied", "error")
        assert call["status"] != "ok"


async def test_a_rule_that_denies_what_was_allowed_says_so_where_the_person_looks(
    owner: User, endpoint: Endpoint
) -> None:
    async with await Chat.of(owner) as chat:
        _, card = await parked(chat, endpoint)
        await in_rows(lambda: MCPServer.objects.as_system().update(rules=[{"tool": "*", "do": "deny"}]))
        endpoint.script(text("It is not possible."))
        await chat.send("call.decide", call_id=card["call_id"], decision="allow_once")
        live = await chat.until("call.finished")
        finished = await chat.until("turn.finished")
        stored = next(part for part in finished["message"]["parts"] if part["type"] == "call")
        for told in (live, stored):
            assert (told["status"], told["decided_by"]) == ("denied", "alice")
            assert "rule" in told["content"][0]["text"]
    assert "rule" in endpoint.last.messages[-1]["content"]


# --- Stopping and cancelling --------------------------------------------------------------------------------------

SLOW = ("demo__brew_coffee", {"cups": 60, "seconds_per_cup": 10})


async def test_stop_during_a_tool_call_ends_the_turn_and_the_call_is_not_left_open(
    owner: User, endpoint: Endpoint
) -> None:
    endpoint.script(calls(SLOW))
    async with await Chat.of(owner) as chat:
        turn_id = await chat.start()
        await chat.until("call.progress")
        await chat.send("turn.stop", turn_id=str(turn_id))
        finished = await chat.until("turn.finished")
        assert finished["outcome"] == "stopped"
        call = next(part for part in finished["message"]["parts"] if part["type"] == "call")
        assert call["status"] == "cancelled"


async def test_one_call_is_cancelled_and_its_sibling_and_the_turn_go_on(owner: User, endpoint: Endpoint) -> None:
    endpoint.script(calls(SLOW, ADD), text("the one that ran"))
    async with await Chat.of(owner) as chat:
        await chat.start()
        running = await chat.until("call.progress")
        await chat.send("call.cancel", call_id=running["call_id"])
        finished = await chat.until("turn.finished")
        assert finished["outcome"] == "completed"
        statuses = [part["status"] for part in finished["message"]["parts"] if part["type"] == "call"]
        assert statuses == ["cancelled", "ok"]


async def test_a_process_that_dies_in_mid_call_leaves_a_call_that_may_have_taken_effect_and_is_not_repeated(
    owner: User, endpoint: Endpoint, house: supervisor.Supervisor
) -> None:
    endpoint.script(calls(SLOW), text("I do not know whether it was done."))
    async with await Chat.of(owner) as chat:
        turn_id = await chat.start()
        await chat.until("call.progress")
        await house.aclose(drain_seconds=0)
        finished = await chat.until("turn.finished")
        assert finished["outcome"] == "interrupted"
        house.draining = False
        await chat.send("turn.continue", request_id=str(uuid4()), message_id=finished["message"]["id"])
        finished = await chat.until("turn.finished", lambda frame: frame["turn_id"] != str(turn_id))
        assert finished["outcome"] == "completed"
    told = [message["content"] for message in endpoint.last.messages if message["role"] == "tool"]
    assert len(told) == 1
    assert "may have taken effect" in told[0]
    assert await in_rows(ToolCall.objects.count) == 1


# --- Servers that are not there -----------------------------------------------------------------------------------


async def test_a_server_that_cannot_start_is_named_before_the_answer_and_the_turn_goes_on(
    owner: User, endpoint: Endpoint, server: MCPServer
) -> None:
    server.args = ["-c", "import sys; sys.exit('no licence')"]
    await in_rows(server.save)
    endpoint.script(text("Without tools."))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert finished["outcome"] == "completed"
        notice = finished["message"]["parts"][0]
        assert notice["code"] == "tools_unavailable"
        assert "Demo tools" in notice["message"]
    assert endpoint.last.tools == []


async def test_with_tools_off_none_are_offered_and_no_server_is_started(
    owner: User, endpoint: Endpoint, server: MCPServer
) -> None:
    from mcpservers import connections

    endpoint.script(text("plain"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask(tools=False)
        assert finished["outcome"] == "completed"
    assert "tools" not in endpoint.last.body
    assert connections.manager().list_connections() == []


async def test_rows_name_who_asked_what_and_how_it_ended(owner: User, endpoint: Endpoint) -> None:
    endpoint.script(calls(ADD), text("5"))
    async with await Chat.of(owner) as chat:
        await chat.ask()
    call = await in_rows(only, ToolCall)
    turn = await in_rows(only, Turn)
    assert (call.name, call.tool, call.status, call.round) == ("demo__calculate", "calculate", "ok", 1)
    assert call.duration_ms is not None
    assert turn.offered["demo__calculate"][1] == "calculate"
    assert (turn.rounds, turn.calls_made) == (1, 1)
    assert turn.usage["output_tokens"] == 14
    assert turn.message_id == call.message_id
    assert (await in_rows(lambda: Message.objects.get(pk=turn.message_id))).usage["output_tokens"] == 14
