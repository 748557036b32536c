"""A server's questions in the chat: parked or during a call, answered once, from anywhere, after anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone

from accounts.models import ApiKey, AuditRecord, Organization, User
from agents.models import Agent
from chatui.rows import in_rows
from conversations import feed, supervisor
from conversations.models import Question, ToolCall, Turn
from conversations.supervisor import Supervisor
from mcpservers import connections
from mcpservers.models import MCPServer, ServerGrant
from tests.conversations.chat import Chat, Frame, gapless
from tests.fakes.endpoint import Endpoint, calls, text
from tests.fakes.mcp_server import Exchange, FakeMCPServer
from tests.mcpservers.test_elicitation_calls import asking, asks, question, refusing

JSON = dict[str, Any]
ECHO = ("tickets__echo", {"text": "hi"})
FORM: JSON = {
    "mode": "form",
    "message": "Which one?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "title": "Name", "minLength": 2},
            "size": {"type": "integer", "default": 4},
        },
        "required": ["name"],
    },
}
ACCEPTED = {"action": "accept", "content": {"name": "Ada", "size": 4}}


@pytest.fixture
async def fake() -> AsyncIterator[FakeMCPServer]:
    async with FakeMCPServer() as server:
        yield server


@pytest.fixture
def server(owner: User, organization: Organization, agent: Agent, fake: FakeMCPServer) -> MCPServer:
    made = MCPServer.objects.create(
        organization=organization,
        slug="tickets",
        title="Tickets",
        url=fake.url,
        headers={"X-User": "{{user.id}}"},
        rules=[{"tool": "*", "do": "allow"}],
    )
    ServerGrant.objects.create(server=made, whole_organization=True)
    agent.servers.create(server=made)
    return made


@pytest.fixture
def stateless(server: MCPServer, fake: FakeMCPServer) -> FakeMCPServer:
    """A server that asks once, between two requests."""
    fake.era = "modern"
    fake.on("tools/call", asks({"inputRequests": {"q": question(FORM)}, "requestState": "opaque"}))
    return fake


@pytest.fixture
def session(server: MCPServer, fake: FakeMCPServer) -> FakeMCPServer:
    """A server that asks once, during the call."""
    fake.on("tools/call", asking(FORM))
    return fake


async def answer(chat: Chat, card: Frame, action: str = "accept", **content: Any) -> None:
    more = {"content": content} if content else {}
    await chat.send("elicitation.answer", elicitation_id=card["elicitation_id"], action=action, **more)


def call_of(frame: Frame) -> JSON:
    found: JSON = next(part for part in frame["message"]["parts"] if part["type"] == "call")
    return found


async def row() -> Question:
    found: Question = await in_rows(Question.objects.as_system().get)
    return found


# --- Parked -----------------------------------------------------------------------------------------------------------


async def test_a_form_is_asked_in_the_chat_and_its_answer_makes_the_call_again(
    owner: User, stateless: FakeMCPServer, endpoint: Endpoint
) -> None:
    endpoint.script(calls(ECHO), text("It is Ada."))
    async with await Chat.of(owner) as chat:
        turn_id = await chat.start()
        card = await chat.until("elicitation.requested")
        waiting = await chat.until("turn.waiting")
        assert (card["title"], card["mode"], card["message"], card["order"]) == (
            "Tickets",
            "form",
            "Which one?",
            ["name", "size"],
        )
        assert card["schema"]["properties"]["name"]["title"] == "Name"
        assert "opaque" not in str(card)
        assert (waiting["for"], waiting["ids"]) == ("elicitation", [card["call_id"]])
        assert (await in_rows(Turn.objects.get)).status == Turn.Status.WAITING
        await answer(chat, card, name="Ada")
        resolved = await chat.until("elicitation.resolved")
        assert (resolved["elicitation_id"], resolved["action"]) == (card["elicitation_id"], "accept")
        finished = await chat.until("turn.finished")
        assert (finished["outcome"], call_of(finished)["status"]) == ("completed", "ok")
        assert gapless(chat.frames(turn_id))
    params = stateless.exchanges_of("tools/call")[-1].params
    assert params["inputResponses"] == {"q": ACCEPTED}
    assert params["requestState"] == "opaque"


async def test_an_answer_that_does_not_fit_names_the_field_and_leaves_the_question_open(
    owner: User, stateless: FakeMCPServer, endpoint: Endpoint
) -> None:
    endpoint.script(calls(ECHO), text("done"))
    async with await Chat.of(owner) as chat:
        await chat.start()
        card = await chat.until("elicitation.requested")
        await chat.until("turn.waiting")
        await answer(chat, card, name="A", other=1)
        error = await chat.until("error")
        assert (error["code"], error["fields"]) == (
            "invalid_answer",
            {"name": "Enter at least 2 characters.", "other": "There is no such field."},
        )
        assert error["message"] == "other: There is no such field."
        await chat.send("elicitation.answer", elicitation_id=card["elicitation_id"], action="accept")
        assert (await chat.until("error"))["fields"] == {"name": "This is required."}
        assert (await row()).state == Question.State.OPEN
        await answer(chat, card, name="Ada")
        await chat.until("turn.finished")


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_decline_and_cancel_reach_the_server_without_any_content(
    owner: User, stateless: FakeMCPServer, endpoint: Endpoint, action: str
) -> None:
    endpoint.script(calls(ECHO), text("done"))
    async with await Chat.of(owner) as chat:
        await chat.start()
        await answer(chat, await chat.until("elicitation.requested"), action, name="secret")
        assert (await chat.until("elicitation.resolved"))["action"] == action
        await chat.until("turn.finished")
    assert stateless.exchanges_of("tools/call")[-1].params["inputResponses"] == {"q": {"action": action}}
    assert (await row()).answer == {"action": action, "content": {}}


async def test_a_question_is_answered_once_and_by_whom_it_is_asked_of(
    owner: User, bob: User, stateless: FakeMCPServer, endpoint: Endpoint
) -> None:
    endpoint.script(calls(ECHO), text("done"))
    async with await Chat.of(owner) as chat, await Chat.of(bob) as other:
        await chat.start()
        card = await chat.until("elicitation.requested")
        await answer(other, card, name="Eve")
        assert (await other.until("error"))["code"] == "not_found"
        await answer(chat, card, name="Ada")
        await chat.until("turn.finished")
        await answer(chat, card, name="Eva")
        assert (await chat.until("error"))["code"] == "already_answered"
    assert stateless.count("tools/call") == 2


async def test_the_answer_is_recorded_and_not_what_was_entered(
    owner: User, stateless: FakeMCPServer, endpoint: Endpoint
) -> None:
    endpoint.script(calls(ECHO), text("done"))
    async with await Chat.of(owner) as chat:
        await chat.start()
        await answer(chat, await chat.until("elicitation.requested"), name="Canary")
        await chat.until("turn.finished")
    record = await in_rows(AuditRecord.objects.get, action="elicitation.answered")
    assert (record.actor_id, record.server, record.details["action"]) == (owner.pk, "tickets", "accept")
    assert "Canary" not in str(record.details)


async def test_a_parked_question_outlives_the_process(
    owner: User, stateless: FakeMCPServer, endpoint: Endpoint, house: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.script(calls(ECHO), text("Still here."))
    async with await Chat.of(owner) as chat:
        turn_id = await chat.start()
        card = await chat.until("elicitation.requested")
        await chat.until("turn.waiting")
    await house.aclose(0)
    await connections.aclose()
    feed.current().aclose()
    monkeypatch.setitem(supervisor._supervisors, asyncio.get_running_loop(), Supervisor())
    async with await Chat.of(owner) as chat:
        assert chat.hello["turns"][0]["status"] == "waiting"
        await chat.send("turn.follow", turn_id=str(turn_id), after=0)
        snapshot = await chat.until("turn.snapshot")
        asked = call_of(snapshot)["question"]
        assert (asked["id"], asked["kind"], asked["state"]) == (card["elicitation_id"], "elicitation", "open")
        assert asked["details"]["schema"] == card["schema"]
        assert asked["details"]["order"] == ["name", "size"]
        await answer(chat, card, name="Ada")
        assert (await chat.until("turn.finished"))["outcome"] == "completed"
    await supervisor.current().aclose(0)
    assert stateless.exchanges_of("tools/call")[-1].params["inputResponses"] == {"q": ACCEPTED}


async def test_an_overdue_question_ends_its_call_and_the_turn_goes_on(
    owner: User, stateless: FakeMCPServer, endpoint: Endpoint, house: Supervisor
) -> None:
    endpoint.script(calls(ECHO), text("Nobody said anything."))
    async with await Chat.of(owner) as chat:
        await chat.start()
        await chat.until("turn.waiting")
        overdue = timezone.now() - timedelta(seconds=1)
        await in_rows(lambda: Question.objects.as_system().update(expires_at=overdue))
        await house.expire()
        finished = await chat.until("turn.finished")
        assert (finished["outcome"], call_of(finished)["status"]) == ("completed", "expired")
    assert stateless.count("tools/call") == 1


async def test_several_questions_follow_one_another(owner: User, stateless: FakeMCPServer, endpoint: Endpoint) -> None:
    place = {"mode": "url", "message": "Pay.", "url": "https://pay.example/1"}
    stateless.on("tools/call", asks({"inputRequests": {"a": question(FORM), "b": question(place)}}))
    endpoint.script(calls(ECHO), text("done"))
    async with await Chat.of(owner) as chat:
        turn_id = await chat.start()
        first = await chat.until("elicitation.requested")
        await answer(chat, first, name="Ada")
        second = await chat.until("elicitation.requested")
        assert [(card["step"], card["steps"]) for card in (first, second)] == [(1, 2), (2, 2)]
        assert (second["mode"], second["host"], second["url"]) == ("url", "pay.example", place["url"])
        await answer(chat, second)
        await chat.until("turn.finished")
        assert gapless(chat.frames(turn_id))
    answers = stateless.exchanges_of("tools/call")[-1].params["inputResponses"]
    assert answers == {"a": ACCEPTED, "b": {"action": "accept"}}


async def test_with_nobody_present_the_call_is_an_error_at_once(
    owner: User, organization: Organization, stateless: FakeMCPServer, endpoint: Endpoint
) -> None:
    endpoint.script(calls(ECHO), text("I could not."))

    def make_key() -> str:
        _, key = ApiKey.issue(user=owner, organization=organization, name="k", scopes=["chat"])
        return key

    key = await in_rows(make_key)
    async with await Chat("acme", {"authorization": f"Bearer {key}"}).connect() as chat:
        finished = await chat.ask()
    assert (finished["outcome"], call_of(finished)["status"]) == ("completed", "error")
    assert "nobody is present" in endpoint.last.messages[-1]["content"]
    assert not await in_rows(Question.objects.as_system().exists)


# --- During a call ----------------------------------------------------------------------------------------------------


async def test_a_question_during_a_call_keeps_the_turn_running_and_everybody_knows_that_it_waits(
    owner: User, session: FakeMCPServer, endpoint: Endpoint
) -> None:
    endpoint.script(calls(ECHO), text("It is Ada."))
    async with await Chat.of(owner) as chat, await Chat.of(owner) as other:
        turn_id = await chat.start()
        card = await chat.until("elicitation.requested")
        waiting = await chat.until("turn.waiting")
        assert (waiting["for"], waiting["ids"]) == ("elicitation", [card["call_id"]])
        left = datetime.fromisoformat(card["expires_at"]) - timezone.now()
        assert timedelta(minutes=8) < left <= timedelta(minutes=10), "a call does not wait as long as a parked turn"
        await other.until("turn.changed", lambda frame: frame["status"] == "waiting")
        assert (await in_rows(Turn.objects.get)).status == Turn.Status.RUNNING
        async with await Chat.of(owner) as late:
            assert late.hello["turns"][0]["status"] == "waiting"
        await answer(other, card, name="Ada")
        assert (await chat.until("elicitation.resolved"))["action"] == "accept"
        await chat.until("turn.resumed")
        assert (await other.until("turn.changed"))["status"] == "running"
        assert (await chat.until("turn.finished"))["outcome"] == "completed"
        assert gapless(chat.frames(turn_id))
    assert next(iter(session.answers.values()))["result"] == ACCEPTED
    assert session.count("tools/call") == 1


async def test_each_of_two_questions_of_a_call_gets_its_own_answer(
    owner: User, session: FakeMCPServer, endpoint: Endpoint, house: Supervisor
) -> None:
    session.on("tools/call", asking(FORM, FORM))
    endpoint.script(calls(ECHO), text("done"))
    async with await Chat.of(owner) as chat:
        await chat.start()
        await answer(chat, await chat.until("elicitation.requested"), name="First")
        second = await chat.until("elicitation.requested")
        await house.beat()  # what was answered before is not told again
        await answer(chat, second, "decline")
        await chat.until("turn.finished")
    assert [reply["result"]["action"] for reply in session.answers.values()] == ["accept", "decline"]


async def test_an_answer_that_another_process_took_reaches_the_running_call(
    owner: User, session: FakeMCPServer, endpoint: Endpoint, house: Supervisor
) -> None:
    from accounts.actors import find_actor
    from conversations import questions

    endpoint.script(calls(ECHO), text("done"))
    async with await Chat.of(owner) as chat:
        await chat.start()
        card = await chat.until("elicitation.requested")

        def elsewhere() -> bool:
            actor = find_actor(owner.pk, "acme")
            assert actor is not None
            return questions.elicited(actor, UUID(card["elicitation_id"]), "accept", {"name": "Ada"}).resumed

        assert not await in_rows(elsewhere)
        await house.beat()
        assert (await chat.until("turn.finished"))["outcome"] == "completed"
    assert next(iter(session.answers.values()))["result"] == ACCEPTED


async def test_a_question_that_nobody_answers_is_cancelled_and_the_call_goes_on(
    owner: User, session: FakeMCPServer, endpoint: Endpoint, settings: Any
) -> None:
    settings.TURN = {**settings.TURN, "LIVE_QUESTION_SECONDS": 0.3}
    endpoint.script(calls(ECHO), text("done"))
    async with await Chat.of(owner) as chat:
        await chat.start()
        await chat.until("elicitation.requested")
        assert (await chat.until("elicitation.resolved"))["action"] == "cancel"
        changed = await chat.until("question.changed", lambda frame: frame["state"] != "open")
        assert changed["state"] == "expired"
        assert call_of(await chat.until("turn.finished"))["status"] == "ok"
    assert next(iter(session.answers.values()))["result"] == {"action": "cancel"}


async def test_the_time_in_which_a_person_is_asked_is_not_the_turns(
    owner: User, session: FakeMCPServer, endpoint: Endpoint, house: Supervisor
) -> None:
    endpoint.script(calls(ECHO), text("done"))
    async with await Chat.of(owner) as chat:
        turn_id = await chat.start()
        card = await chat.until("elicitation.requested")
        await chat.until("turn.waiting")
        watch = house._running[turn_id].turn._watch
        spent = watch.seconds()
        await chat.send("ping")
        await chat.until("pong")
        assert watch.seconds() == spent > 0
        await answer(chat, card, name="Ada")
        await chat.until("turn.finished")
        assert watch.seconds() > spent


async def test_stopping_the_turn_takes_its_question_back(
    owner: User, session: FakeMCPServer, endpoint: Endpoint
) -> None:
    endpoint.script(calls(ECHO))
    async with await Chat.of(owner) as chat:
        turn_id = await chat.start()
        card = await chat.until("elicitation.requested")
        await chat.send("turn.stop", turn_id=str(turn_id))
        assert (await chat.until("turn.finished"))["outcome"] == "stopped"
        await answer(chat, card, name="Ada")
        assert (await chat.until("error"))["code"] == "already_answered"
    assert (await row()).state == Question.State.VOID
    await session.until(lambda: bool(session.cancelled))


async def test_cancelling_the_call_takes_its_question_back_and_the_answer_goes_on(
    owner: User, session: FakeMCPServer, endpoint: Endpoint
) -> None:
    endpoint.script(calls(ECHO), text("Without it, then."))
    async with await Chat.of(owner) as chat:
        await chat.start()
        card = await chat.until("elicitation.requested")
        await chat.send("call.cancel", call_id=card["call_id"])
        await chat.until("turn.resumed")
        await chat.until("call.finished")
        finished = await chat.until("turn.finished")
        assert (finished["outcome"], call_of(finished)["status"]) == ("completed", "cancelled")
        assert call_of(finished)["question"]["state"] == "void"


async def test_a_restart_cancels_a_question_during_a_call_visibly(
    owner: User, session: FakeMCPServer, endpoint: Endpoint, house: Supervisor
) -> None:
    endpoint.script(calls(ECHO))
    async with await Chat.of(owner) as chat:
        await chat.start()
        await chat.until("elicitation.requested")
        await house.aclose(0)
        finished = await chat.until("turn.finished")
        assert (finished["outcome"], call_of(finished)["status"]) == ("interrupted", "interrupted")
        assert call_of(finished)["question"]["state"] == "void"
    house.draining = False


async def test_a_dead_process_leaves_no_question_open(
    owner: User, session: FakeMCPServer, endpoint: Endpoint, house: Supervisor
) -> None:
    endpoint.script(calls(ECHO))
    async with await Chat.of(owner) as chat:
        turn_id = await chat.start()
        await chat.until("elicitation.requested")
        long_ago = timezone.now() - timedelta(minutes=1)
        await in_rows(lambda: Turn.objects.filter(pk=turn_id).update(heartbeat_at=long_ago, process="dead"))
        await Supervisor().reap()
        assert (await row()).state == Question.State.VOID
        assert (await in_rows(ToolCall.objects.get)).status == ToolCall.Status.INTERRUPTED
        house.stop(turn_id)


# --- Addresses --------------------------------------------------------------------------------------------------------


async def test_an_address_that_the_server_reports_as_dealt_with_lets_the_turn_go_on(
    owner: User, server: MCPServer, fake: FakeMCPServer, endpoint: Endpoint
) -> None:
    fake.on("tools/call", refusing("https://pay.example/7"))
    endpoint.script(calls(ECHO), text("Paid."))
    async with await Chat.of(owner) as chat:
        await chat.start()
        card = await chat.until("elicitation.requested")
        assert (card["mode"], card["host"]) == ("url", "pay.example")
        await chat.until("turn.waiting")
        await fake.until(lambda: bool(fake.open_streams))
        await fake.notify("notifications/elicitation/complete", {"elicitationId": "other"})
        await fake.notify("notifications/elicitation/complete", {"elicitationId": "7"})
        assert (await chat.until("elicitation.resolved"))["action"] == "accept"
        finished = await chat.until("turn.finished")
        assert (finished["outcome"], call_of(finished)["status"]) == ("completed", "ok")


async def test_hostile_words_of_a_question_are_stored_as_clean_text(
    owner: User, server: MCPServer, fake: FakeMCPServer, endpoint: Endpoint
) -> None:
    async def hostile(exchange: Exchange) -> None:
        schema = {"type": "object", "properties": {"__proto__": {"type": "string", "title": "\u202e<b>\ud800"}}}
        params = {"mode": "form", "message": "<img src=x onerror=alert(1)>\0", "requestedSchema": schema}
        await exchange.result({"resultType": "input_required", "inputRequests": {"q": question(params)}})

    fake.era = "modern"
    fake.on("tools/call", hostile)
    endpoint.script(calls(ECHO), text("done"))
    async with await Chat.of(owner) as chat:
        turn_id = await chat.start()
        card = await chat.until("elicitation.requested")
        assert card["message"].startswith("<img src=x onerror=alert(1)>")
        assert "\0" not in card["message"]
        assert "\u202e" not in str(card["schema"])
        assert card["order"] == ["__proto__"]
        await chat.send("turn.stop", turn_id=str(turn_id))
        await chat.until("turn.finished")
