"""Answers of model endpoints that need a second look, as the person gets them over the socket and the next request."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.contrib.sessions.models import Session

from accounts.models import User
from agents.models import Agent
from tests.agents.providers.conftest import call, called
from tests.conversations.chat import Chat, Frame
from tests.fakes.endpoint import Endpoint, chunk, chunks, delta, failure, text

STOP = delta(finish="stop")
SIGNATURE = {"google": {"thought_signature": "c2lnMQ=="}}


async def again(chat: Chat) -> Frame:
    conversation = next(frame for frame in chat.seen if frame["type"] == "turn.started")["conversation_id"]
    return await chat.ask("and now?", conversation_id=conversation)


def notices(finished: Frame) -> list[str]:
    return [part["code"] for part in finished["message"]["parts"] if part["type"] == "notice"]


async def test_who_is_asked_to_wait_is_told_how_long_and_asks_but_once(owner: User, endpoint: Endpoint) -> None:
    endpoint.script(failure(429, "slow down", retry_after="3600"), text("fine"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert (finished["outcome"], finished["error"]["code"]) == ("failed", "endpoint_rate_limited")
        assert "60 min" in finished["error"]["message"]
        assert len(endpoint.requests) == 1
        assert (await again(chat))["outcome"] == "completed"


async def test_an_answer_that_ends_early_is_kept_and_said_to_be_incomplete(owner: User, endpoint: Endpoint) -> None:
    endpoint.script(chunks(delta("The answer is"), end="eof"), text("fine"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert finished["outcome"] == "truncated"
        assert chat.text(finished["turn_id"]) == "The answer is"
        assert notices(finished)
        assert (await again(chat))["outcome"] == "completed"


async def test_an_answer_that_was_withheld_is_said_to_be_and_asked_for_once(owner: User, endpoint: Endpoint) -> None:
    endpoint.script(chunks(chunk({"delta": {"role": "assistant", "content": None}}), delta(finish="content_filter")))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert notices(finished) == ["content_filter"]
        assert len(endpoint.requests) == 1
        endpoint.script(text("fine"))
        assert (await again(chat))["outcome"] == "completed"
    assert all(message.get("content") for message in endpoint.last.messages)


async def test_a_refusal_is_text_that_is_flagged(owner: User, endpoint: Endpoint) -> None:
    endpoint.script(chunks(delta("", refusal=None), delta(refusal="I will "), delta(refusal="not do this."), STOP))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert chat.text(finished["turn_id"]) == "I will not do this."
        assert "refusal" in notices(finished)


@pytest.mark.parametrize("finish", ["stop", "tool_calls"])
async def test_a_call_is_run_whatever_its_answer_says_of_its_end_and_its_signature_goes_back(
    owner: User, endpoint: Endpoint, finish: str
) -> None:
    lookup = call("lookup", '{"city":"Sofia"}', index=None, id="c1", extra_content=SIGNATURE)
    other = delta(extra_content={"google": {"thought_signature": "c2lnMg=="}})
    endpoint.script(chunks(delta("Let me look."), called(lookup), other, delta(finish=finish)), text("Rain."))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
    assert finished["outcome"] == "completed"
    asked, result = endpoint.last.messages[-2:]
    assert asked["content"] == "Let me look."
    assert [made["extra_content"] for made in asked["tool_calls"]] == [SIGNATURE]
    assert result["tool_call_id"] == asked["tool_calls"][0]["id"] == "c1"


async def test_reasoning_is_no_part_of_the_answer_nor_of_the_next_request(owner: User, endpoint: Endpoint) -> None:
    endpoint.script(chunks(delta("<think>a</think>\n\nVisible"), STOP), text("fine"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        kinds = {part["type"]: part["text"] for part in finished["message"]["parts"]}
        assert kinds == {"reasoning": "a", "text": "Visible"}
        await again(chat)
    assert [message["content"] for message in endpoint.last.messages if message["role"] == "assistant"] == ["Visible"]


async def test_a_session_that_expires_closes_its_open_socket_at_the_next_frame(
    owner: User, agent: Agent, endpoint: Endpoint
) -> None:
    async with await Chat.of(owner) as chat:
        await Session.objects.aupdate(expire_date=datetime(2020, 1, 1, tzinfo=UTC))
        await chat.send("turn.start", request_id="r", agent="helper", content=[{"type": "text", "text": "x"}])
        assert await chat.closed() == 4401
    assert not endpoint.requests
