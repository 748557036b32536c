"""Turns through the websocket, on a scripted endpoint: streaming, resuming, stopping, faults, and who may do what."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import orjson
import pytest
from django.test import AsyncClient

from accounts.models import ApiKey, Membership, User
from agents.models import Agent
from chatui.routing import websocket
from chatui.rows import in_rows
from conversations import hints, supervisor, transitions
from conversations.models import Conversation, Message, Turn
from tests.conversations.chat import Chat, Closed, Communicator, cookie_of, gapless
from tests.fakes.endpoint import Endpoint, chunks, delta, failure, never, text


def stored_text(message: Message) -> str:
    return "".join(part["text"] for part in message.parts if part["type"] == "text")


async def message_of(turn_id: Any) -> Message:
    turn = await Turn.objects.select_related("message").aget(pk=turn_id)
    return turn.message


# --- A turn -------------------------------------------------------------------------------------------------------


async def test_an_answer_is_streamed_numbered_without_gap_and_stored_as_it_was_shown(
    owner: User, endpoint: Endpoint
) -> None:
    endpoint.script(text("It is ", "noon", "."))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask("What time is it?")
        turn_id = finished["turn_id"]
        assert finished["outcome"] == "completed"
        assert gapless(chat.frames(turn_id))
        assert chat.text(turn_id) == "It is noon."
        message = await message_of(turn_id)
        assert stored_text(message) == "It is noon."
        assert message.seq == finished["seq"]
        assert finished["message"]["parts"][0]["text"] == "It is noon."
        assert finished["message"]["usage"]["output_tokens"] > 0
    sent = endpoint.last.messages
    assert [message["role"] for message in sent] == ["system", "user"]
    assert sent[1]["content"] == "What time is it?"


async def test_the_next_question_is_sent_with_the_conversation_before_it(owner: User, endpoint: Endpoint) -> None:
    endpoint.script(text("one"), text("two"))
    async with await Chat.of(owner) as chat:
        await chat.ask("first")
        conversation = str((await Conversation.objects.as_system().aget()).pk)
        await chat.ask("second", conversation_id=conversation)
    assert [message["content"] for message in endpoint.last.messages[1:]] == ["first", "one", "second"]


async def test_the_first_delta_leaves_at_once_and_later_ones_are_coalesced(owner: User, endpoint: Endpoint) -> None:
    gate = asyncio.Event()
    endpoint.script(text("first", gate, *["x"] * 500))
    async with await Chat.of(owner) as chat:
        await chat.start()
        assert (await chat.until("text.delta"))["text"] == "first"
        gate.set()
        finished = await chat.until("turn.finished")
        deltas = [frame for frame in chat.frames(finished["turn_id"]) if frame["type"] == "text.delta"]
        assert len(deltas) < 100
        assert chat.text(finished["turn_id"]) == "first" + "x" * 500


async def test_another_tab_and_a_late_one_get_everything_from_the_first_event_on(
    owner: User, endpoint: Endpoint
) -> None:
    gate = asyncio.Event()
    endpoint.script(text("Hello ", gate, "there"))
    async with await Chat.of(owner) as first, await Chat.of(owner) as second:
        turn_id = await first.start()
        await first.until("text.delta")
        await second.until("turn.changed", lambda frame: frame["status"] == "running")
        await second.send("turn.follow", turn_id=str(turn_id), after=0)
        await second.until("text.delta")
        gate.set()
        await second.until("turn.finished")
        async with await Chat.of(owner) as late:
            await late.send("turn.follow", turn_id=str(turn_id), after=0)
            await late.until("turn.finished")
            for chat in (second, late):
                assert gapless(chat.frames(turn_id))
                assert chat.text(turn_id) == "Hello there"


async def test_a_socket_lost_in_mid_stream_resumes_after_the_last_number_it_saw(
    owner: User, endpoint: Endpoint
) -> None:
    gate = asyncio.Event()
    endpoint.script(text("one ", gate, "two"))
    chat = await Chat.of(owner)
    turn_id = await chat.start()
    seen = (await chat.until("text.delta"))["seq"]
    await chat.communicator.disconnect()
    gate.set()
    async with await Chat.of(owner) as back:
        await back.send("turn.follow", turn_id=str(turn_id), after=seen)
        await back.until("turn.finished")
        frames = back.frames(turn_id)
        assert [frame["seq"] for frame in frames] == list(range(seen + 1, seen + 1 + len(frames)))
        assert chat.text(turn_id) + back.text(turn_id) == "one two"
    assert (await message_of(turn_id)).status == Message.Status.COMPLETED


async def test_a_conversation_that_changes_is_told_without_a_word_on_its_turn(owner: User, endpoint: Endpoint) -> None:
    endpoint.script(text("yes"))
    async with await Chat.of(owner) as chat, await Chat.of(owner) as other:
        await chat.ask()
        told = await other.until("conversation.updated")
        assert told["agent"]["slug"] == "helper"
        assert "turn" not in told  # `turn.changed` tells; what is not known is not sent as null


async def test_hello_names_the_turns_that_have_not_ended(owner: User, endpoint: Endpoint) -> None:
    gate = asyncio.Event()
    endpoint.script(text("a", gate))
    async with await Chat.of(owner) as chat:
        turn_id = await chat.start()
        await chat.until("text.delta")
        async with await Chat.of(owner) as other:
            assert [turn["turn_id"] for turn in other.hello["turns"]] == [str(turn_id)]
        gate.set()
        await chat.until("turn.finished")


async def test_a_turn_whose_frames_are_gone_is_shown_as_a_snapshot(owner: User, endpoint: Endpoint, house: Any) -> None:
    from conversations import feed

    endpoint.script(text("kept"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        feed.current().aclose()
        await chat.send("turn.follow", turn_id=finished["turn_id"], after=0)
        snapshot = await chat.until("turn.snapshot")
        assert snapshot["status"] == "completed"
        assert snapshot["seq"] == finished["seq"]
        assert snapshot["message"] == finished["message"]


async def test_reasoning_is_streamed_and_stored_apart_from_the_answer(owner: User, endpoint: Endpoint) -> None:
    endpoint.script(text("42", reasoning="hmm"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert [part["type"] for part in finished["message"]["parts"]] == ["reasoning", "text"]


# --- Twice and at once --------------------------------------------------------------------------------------------


async def test_a_request_sent_twice_is_one_turn_and_both_senders_follow_it(owner: User, endpoint: Endpoint) -> None:
    endpoint.script(text("once"))
    request_id = str(uuid4())
    async with await Chat.of(owner) as one, await Chat.of(owner) as two:
        content = [{"type": "text", "text": "hi"}]
        for chat in (one, two, one):
            await chat.send("turn.start", request_id=request_id, agent="helper", content=content)
        for chat in (one, two):
            await chat.until("turn.finished")
    assert await Turn.objects.acount() == 1
    assert len(endpoint.requests) == 1


async def test_a_second_message_while_a_turn_runs_is_answered_turn_running(owner: User, endpoint: Endpoint) -> None:
    gate = asyncio.Event()
    endpoint.script(text("a", gate))
    async with await Chat.of(owner) as chat, await Chat.of(owner) as tab:
        await chat.start()
        await chat.until("text.delta")
        conversation = await Conversation.objects.as_system().aget()
        again = str(uuid4())
        for socket in (chat, tab):
            await socket.send(
                "turn.start",
                request_id=again,
                conversation_id=str(conversation.pk),
                content=[{"type": "text", "text": "more"}],
            )
            error = await socket.until("error")
            assert (error["code"], error["request_id"]) == ("turn_running", again)
        gate.set()
        await chat.until("turn.finished")
    assert await Message.objects.acount() == 2


# --- Stopping -----------------------------------------------------------------------------------------------------


async def test_stop_before_the_first_token(owner: User, endpoint: Endpoint) -> None:
    endpoint.script(never())
    async with await Chat.of(owner) as chat:
        turn_id = await chat.start()
        request = await endpoint.received(1)
        await chat.send("turn.stop", turn_id=str(turn_id))
        assert (await chat.until("turn.finished"))["outcome"] == "stopped"
        await request.disconnected.wait()


async def test_stop_in_mid_answer_keeps_what_was_shown_and_it_does_not_grow_back(
    owner: User, endpoint: Endpoint
) -> None:
    gate = asyncio.Event()
    endpoint.script(text("par", gate, "tial"))
    async with await Chat.of(owner) as chat:
        turn_id = await chat.start()
        await chat.until("text.delta")
        await chat.send("turn.stop", turn_id=str(turn_id))
        finished = await chat.until("turn.finished")
        gate.set()
        assert finished["outcome"] == "stopped"
        assert finished["message"]["parts"][0]["text"] == "par"
    assert stored_text(await message_of(turn_id)) == "par"
    assert not supervisor.current().runs(turn_id)


async def test_stop_from_another_tab_and_twice_is_one_end(owner: User, endpoint: Endpoint) -> None:
    gate = asyncio.Event()
    endpoint.script(text("a", gate))
    async with await Chat.of(owner) as chat, await Chat.of(owner) as other:
        turn_id = await chat.start()
        await chat.until("text.delta")
        await other.send("turn.stop", turn_id=str(turn_id))
        await other.send("turn.stop", turn_id=str(turn_id))
        assert (await chat.until("turn.finished"))["outcome"] == "stopped"


async def test_a_stopped_answer_goes_on_in_the_same_message(owner: User, endpoint: Endpoint) -> None:
    gate = asyncio.Event()
    endpoint.script(text("The answer ", gate), text("is 42."))
    async with await Chat.of(owner) as chat:
        turn_id = await chat.start()
        await chat.until("text.delta")
        await chat.send("turn.stop", turn_id=str(turn_id))
        stopped = await chat.until("turn.finished")
        await chat.send("turn.continue", request_id=str(uuid4()), message_id=stopped["message"]["id"])
        finished = await chat.until("turn.finished", lambda frame: frame["turn_id"] != str(turn_id))
    assert finished["message"]["id"] == stopped["message"]["id"]
    assert stored_text(await message_of(finished["turn_id"])) == "The answer is 42."
    sent = endpoint.last.messages
    assert sent[-2] == {"role": "assistant", "content": "The answer "}
    assert sent[-1]["role"] == "user"


async def test_regenerating_shows_a_sibling_and_sends_the_question_again(owner: User, endpoint: Endpoint) -> None:
    endpoint.script(text("one"), text("two"))
    async with await Chat.of(owner) as chat:
        first = await chat.ask("q")
        await chat.send("turn.regenerate", request_id=str(uuid4()), message_id=first["message"]["id"])
        second = await chat.until("turn.finished", lambda frame: frame["turn_id"] != first["turn_id"])
        assert second["message"]["siblings"] == [first["message"]["id"], second["message"]["id"]]
    assert [message["content"] for message in endpoint.last.messages[1:]] == ["q"]


# --- Faults of the endpoint ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "code", "kept"),
    [
        (failure(401, "Incorrect API key provided: sk-live-SECRET123"), "endpoint_authentication", ""),
        (failure(429, "slow down", **{"retry-after": "0"}), "endpoint_rate_limited", ""),
        (failure(500, "boom"), "endpoint_unavailable", ""),
        (failure(400, "bad request"), "endpoint_request", ""),
        (chunks(delta("Par"), {"error": {"message": "backend busy", "code": 503}}), "endpoint_unavailable", "Par"),
        (chunks(delta("Par"), end="reset"), "endpoint_unavailable", "Par"),
    ],
)
async def test_a_fault_of_the_endpoint_is_told_keeps_what_was_shown_and_the_next_message_works(
    owner: User, agent: Agent, endpoint: Endpoint, answer: Any, code: str, kept: str
) -> None:
    endpoint.script(*[answer] * (1 + agent.model.endpoint.retries))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert finished["outcome"] == "failed"
        assert finished["error"]["code"] == code
        assert "SECRET123" not in orjson.dumps(chat.seen).decode()
        assert chat.text(finished["turn_id"]) == kept
        assert stored_text(await message_of(finished["turn_id"])) == kept
        endpoint.answers.clear()
        endpoint.script(text("fine"))
        conversation = await Conversation.objects.as_system().aget()
        assert (await chat.ask("again", conversation_id=str(conversation.pk)))["outcome"] == "completed"


async def test_an_endpoint_that_is_down_is_told_in_plain_words(owner: User, agent: Agent, endpoint: Endpoint) -> None:
    await endpoint.stop()
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert finished["error"]["code"] == "endpoint_unreachable"
        assert "127.0.0.1" not in finished["error"]["message"]


async def test_an_endpoint_that_hangs_ends_the_turn_after_its_own_limit(
    owner: User, agent: Agent, endpoint: Endpoint
) -> None:
    agent.model.endpoint.first_token_timeout = 0.2
    agent.model.endpoint.retries = 0
    await agent.model.endpoint.asave()
    endpoint.script(never())
    async with await Chat.of(owner) as chat:
        assert (await chat.ask())["error"]["code"] == "endpoint_timeout"


async def test_an_answer_cut_by_its_length_is_truncated_not_complete(owner: User, endpoint: Endpoint) -> None:
    endpoint.script(text("The answer is", finish="length"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert finished["outcome"] == "truncated"
        assert finished["message"]["parts"][0]["text"] == "The answer is"


async def test_an_empty_answer_says_so_and_does_not_poison_the_next_request(owner: User, endpoint: Endpoint) -> None:
    endpoint.script(text(""), text("now"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask("q")
        notices = [part["code"] for part in finished["message"]["parts"] if part["type"] == "notice"]
        assert notices == ["empty_response"]
        conversation = await Conversation.objects.as_system().aget()
        await chat.ask("again", conversation_id=str(conversation.pk))
    assert all(message["content"] for message in endpoint.last.messages)


async def test_an_unexpected_fault_of_ours_gives_a_reference_and_nothing_more(
    owner: User, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("table conversations_secret is missing")

    monkeypatch.setattr("conversations.briefing.system_prompt", broken)
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert finished["error"]["code"] == "internal"
        assert "reference" in finished["error"]["message"]
        assert "secret" not in orjson.dumps(chat.seen).decode()


async def test_nul_and_surrogates_from_person_and_model_are_stored_and_sent_clean(
    owner: User, endpoint: Endpoint
) -> None:
    pieces = [delta("a\x00b"), delta("\ud83d c 🎉 北京"), delta(finish="stop")]
    endpoint.script(chunks(*[f"data: {json.dumps(piece)}\n\n" for piece in pieces]))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask("x\x00y")
        assert finished["outcome"] == "completed"
        assert stored_text(await message_of(finished["turn_id"])) == "a\ufffdb\ufffd c 🎉 北京"
        assert "\x00" not in orjson.dumps(chat.seen).decode()
    assert endpoint.last.messages[1]["content"] == "x\ufffdy"


async def test_a_message_above_one_mebibyte_is_refused_and_one_of_that_size_is_answered(
    owner: User, endpoint: Endpoint
) -> None:
    endpoint.script(text("ok"))
    async with await Chat.of(owner) as chat:
        await chat.send(
            "turn.start",
            request_id=str(uuid4()),
            agent="helper",
            content=[{"type": "text", "text": "x" * (2**20 + 1)}],
        )
        assert (await chat.until("error"))["code"] == "too_large"
        assert (await chat.ask("x" * 2**20))["outcome"] == "completed"


# --- Bad frames ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "code"),
    [("{", "invalid_frame"), ('{"type":"nonsense"}', "unknown_type"), ('{"type":"ping","user":1}', "invalid_frame")],
)
async def test_a_frame_that_makes_no_sense_is_an_error_and_the_socket_stays(
    owner: User, house: Any, sent: str, code: str
) -> None:
    async with await Chat.of(owner) as chat:
        await chat.send_text(sent)
        assert (await chat.until("error"))["code"] == code
        await chat.send("ping")
        await chat.until("pong")


async def test_bytes_are_refused_as_a_frame(owner: User, house: Any) -> None:
    async with await Chat.of(owner) as chat:
        await chat.communicator.send_to(bytes_data=b"\x00")
        assert (await chat.until("error"))["code"] == "invalid_frame"


async def test_ids_of_others_are_not_found_whatever_the_frame(
    owner: User, endpoint: Endpoint, bob: User, charlie: User
) -> None:
    endpoint.script(text("mine"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
    conversation = await Conversation.objects.as_system().aget()
    frames: list[tuple[str, dict[str, Any]]] = [
        ("turn.follow", {"turn_id": finished["turn_id"]}),
        ("turn.stop", {"turn_id": finished["turn_id"]}),
        ("turn.regenerate", {"message_id": finished["message"]["id"]}),
        ("turn.continue", {"message_id": finished["message"]["id"]}),
        ("turn.start", {"conversation_id": str(conversation.pk), "content": [{"type": "text", "text": "x"}]}),
        ("call.decide", {"call_id": str(uuid4()), "decision": "deny"}),
        ("call.cancel", {"call_id": str(uuid4())}),
    ]
    for user, organization in ((bob, "acme"), (charlie, "globex")):
        async with await Chat.of(user, organization) as chat:
            for type, fields in frames:
                await chat.send(type, request_id=str(uuid4()), **fields)
                assert (await chat.until("error"))["code"] == "not_found", type


# --- Who may open a socket ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "http://testserver.evil.example", "null", "file://", None, "http://eviltestserver"],
)
async def test_a_foreign_or_missing_origin_is_refused_before_accept(
    owner: User, origin: str | None, house: Any
) -> None:
    headers = [(b"cookie", (await in_rows(cookie_of, owner)).encode())]
    if origin:
        headers.append((b"origin", origin.encode()))
    communicator = Communicator(websocket, "/ws/o/acme/", headers=headers)
    accepted, _ = await communicator.connect()
    assert not accepted
    await communicator.disconnect()


async def test_a_socket_without_a_session_is_closed_4401_after_accept(owner: User, house: Any) -> None:
    with pytest.raises(Closed) as closed:
        await Chat("acme", {"origin": "http://testserver"}).connect()
    assert closed.value.code == 4401


async def test_another_organizations_socket_is_closed_4403(owner: User, charlie: User, house: Any) -> None:
    headers = {"cookie": await in_rows(cookie_of, charlie), "origin": "http://testserver"}
    for organization in ("acme", "there-is-no-such"):
        with pytest.raises(Closed) as closed:
            await Chat(organization, headers).connect()
        assert closed.value.code == 4403


async def test_an_older_protocol_is_told_apart(owner: User, house: Any) -> None:
    headers = {"cookie": await in_rows(cookie_of, owner), "origin": "http://testserver"}
    chat = Chat("acme", headers, subprotocols=["chatui.0"])
    accepted, _ = await chat.communicator.connect()
    assert accepted
    assert await chat.closed() == 4409
    current = await Chat("acme", headers, subprotocols=["chatui.1"]).connect()
    await current.communicator.disconnect()


async def test_a_key_opens_a_socket_without_origin_and_its_revocation_closes_it(
    owner: User, organization: Any, house: Any
) -> None:
    key, secret = await in_rows(ApiKey.issue, user=owner, organization=organization, name="k")
    chat = await Chat("acme", {"authorization": f"Bearer {secret}"}).connect()
    await ApiKey.objects.filter(pk=key.pk).aupdate(revoked_at=key.created_at)
    await chat.send("ping")
    assert await chat.closed() == 4401


async def test_with_a_wrong_key_the_cookie_does_not_count(owner: User, house: Any) -> None:
    headers = {"authorization": "Bearer wrong", "cookie": await in_rows(cookie_of, owner)}
    with pytest.raises(Closed) as closed:
        await Chat("acme", headers).connect()
    assert closed.value.code == 4401


def sign_out(user: User) -> None:
    from django.contrib.sessions.models import Session

    Session.objects.all().delete()


def deactivate(user: User) -> None:
    User.objects.filter(pk=user.pk).update(is_active=False)


def change_password(user: User) -> None:
    user.set_password("another battery staple")
    user.save()


def leave(user: User) -> None:
    Membership.objects.filter(user=user).update(is_active=False)


@pytest.mark.parametrize(
    ("event", "code"), [(sign_out, 4401), (deactivate, 4401), (change_password, 4401), (leave, 4403)]
)
async def test_what_ends_a_persons_right_closes_the_open_socket_at_the_next_frame_and_on_a_hint(
    owner: User, endpoint: Endpoint, event: Callable[[User], None], code: int
) -> None:
    acting, listening = await Chat.of(owner), await Chat.of(owner)
    await in_rows(event, owner)
    await acting.send("turn.start", request_id=str(uuid4()), agent="helper", content=[{"type": "text", "text": "x"}])
    assert await acting.closed() == code
    await hints.recheck_user(owner.pk)
    assert await listening.closed() == code
    assert not endpoint.requests


async def test_signing_out_in_another_tab_closes_a_socket_that_only_listens(owner: User, house: Any) -> None:
    cookie = await in_rows(cookie_of, owner)
    listening = await Chat("acme", {"cookie": cookie, "origin": "http://testserver"}).connect()
    tab = AsyncClient()
    tab.cookies.load(cookie)
    await tab.post("/accounts/logout/")
    assert await listening.closed() == 4401


async def test_a_listening_socket_is_closed_by_the_clock_without_any_hint(
    owner: User, house: Any, settings: Any
) -> None:
    settings.SOCKET = {**settings.SOCKET, "RECHECK_SECONDS": 0.05}
    chat = await Chat.of(owner)
    await in_rows(leave, owner)
    assert await chat.closed() == 4403


async def test_losing_the_membership_in_mid_turn_does_not_lose_the_answer(owner: User, endpoint: Endpoint) -> None:
    gate = asyncio.Event()
    endpoint.script(text("a", gate, "b"))
    chat = await Chat.of(owner)
    turn_id = await chat.start()
    await chat.until("text.delta")
    await in_rows(leave, owner)
    await hints.recheck_user(owner.pk)
    assert await chat.closed() == 4403
    task = supervisor.current()._running[turn_id].task
    gate.set()
    await asyncio.wait({task})
    assert stored_text(await message_of(turn_id)) == "ab"


# --- Restart ------------------------------------------------------------------------------------------------------


async def test_a_shutdown_ends_running_turns_as_interrupted_and_keeps_their_text(
    owner: User, endpoint: Endpoint, house: supervisor.Supervisor
) -> None:
    gate = asyncio.Event()
    endpoint.script(text("kept", gate), text(" and continued"))
    async with await Chat.of(owner) as chat:
        turn_id = await chat.start()
        await chat.until("text.delta")
        await house.aclose(drain_seconds=0)
        finished = await chat.until("turn.finished")
        assert finished["outcome"] == "interrupted"
        assert stored_text(await message_of(turn_id)) == "kept"
        await chat.send("turn.start", request_id=str(uuid4()), agent="helper", content=[{"type": "text", "text": "x"}])
        assert (await chat.until("error"))["code"] == "draining"
        house.draining = False
        await chat.send("turn.continue", request_id=str(uuid4()), message_id=finished["message"]["id"])
        assert (await chat.until("turn.finished"))["outcome"] == "completed"
        assert stored_text(await message_of(turn_id)) == "kept and continued"


async def test_a_shutdown_waits_for_turns_that_finish_in_time(
    owner: User, endpoint: Endpoint, house: supervisor.Supervisor
) -> None:
    gate = asyncio.Event()
    endpoint.script(text("a", gate, "b"))
    async with await Chat.of(owner) as chat:
        await chat.start()
        await chat.until("text.delta")
        closing = asyncio.ensure_future(house.aclose(drain_seconds=60))
        await asyncio.sleep(0)
        gate.set()
        assert (await chat.until("turn.finished"))["outcome"] == "completed"
        await closing


async def test_what_was_shown_is_stored_within_a_checkpoint_not_only_at_the_end(
    owner: User, endpoint: Endpoint, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.TURN = {**settings.TURN, "CHECKPOINT_SECONDS": 0.01}
    gate, stored, loop = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()
    checkpoint = transitions.checkpoint

    def store(*given: Any) -> Any:
        found = checkpoint(*given)
        loop.call_soon_threadsafe(stored.set)
        return found

    monkeypatch.setattr(transitions, "checkpoint", store)
    endpoint.script(text("shown", gate))
    async with await Chat.of(owner) as chat:
        turn_id = await chat.start()
        await chat.until("text.delta")
        await stored.wait()
        assert stored_text(await message_of(turn_id)) == "shown"
        gate.set()
        await chat.until("turn.finished")
