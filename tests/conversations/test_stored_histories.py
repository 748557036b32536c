"""Conversations as they may lie in the database, gone on with over HTTP: what a strict endpoint is sent."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest

from accounts.models import User
from agents.models import Agent
from chatui.rows import in_rows
from conversations.models import Conversation, Message, ToolCall
from tests.agents.providers.request_shape import check_request
from tests.conversations.chat import Chat
from tests.conversations.stored import Path, row, store, text
from tests.fakes.endpoint import Endpoint, failure
from tests.fakes.endpoint import text as says

Status, CallStatus = Message.Status, ToolCall.Status
SIGNATURE = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
LONG = "x" * 40_000
Told = tuple[str, str, list[str]]  # role, content, ids of the calls that it makes or answers


@pytest.fixture
def go_on(owner: User, organization: Any, endpoint: Endpoint, make_agent: Callable[..., Agent]) -> Callable[..., Any]:
    """Store a path and ask the next question; the messages that the endpoint got, which a strict one would take."""

    async def go(path: Path, question: str = "n", **profile: Any) -> list[dict[str, Any]]:
        fields = {"base_url": endpoint.base_url, "profile": profile}
        agent = await in_rows(lambda: make_agent(organization, "other", **fields))
        conversation: Conversation = await in_rows(store, path, owner, agent)
        endpoint.script(says("done"))
        async with await Chat.of(owner) as chat:
            finished = await chat.ask(question, conversation_id=str(conversation.pk))
        assert finished["outcome"] == "completed"
        (request,) = endpoint.requests
        strict = profile.get("alternate_roles", False) or profile.get("dialect") == "mistral"
        check_request(request.body, alternating=strict, extras=profile.get("dialect") != "mistral")
        return [message for message in request.messages if message["role"] != "system"]

    return go


def told(messages: Sequence[dict[str, Any]]) -> list[Told]:
    return [
        (
            message["role"],
            message["content"],
            [call["id"] for call in message.get("tool_calls", [])] or [*filter(None, [message.get("tool_call_id")])],
        )
        for message in messages
    ]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param(
            lambda: (
                Path().user("go").assistant(row(status=CallStatus.CANCELLED, result="Stopped."), status=Status.STOPPED)
            ),
            [("user", "go", []), ("assistant", "", ["c1"]), ("tool", "Stopped.", ["c1"])],
            id="a call that was stopped",
        ),
        pytest.param(
            lambda: Path().user("go").assistant(row(status=CallStatus.RUNNING, result=""), status=Status.INTERRUPTED),
            [("user", "go", []), ("assistant", "", ["c1"]), ("tool", r".*may have taken effect.*", ["c1"])],
            id="a call without a result",
        ),
        pytest.param(
            lambda: Path().user("run").assistant({"type": "call", "id": str(UUID(int=1))}, status=Status.STOPPED),
            [("user", "run", [])],
            id="an answer whose call is gone",
        ),
        pytest.param(
            lambda: Path().user("q").assistant(row(), status=Status.FAILED),
            [("user", "q", []), ("assistant", "", ["c1"]), ("tool", "r", ["c1"])],
            id="nothing beside a call",
        ),
        pytest.param(
            lambda: Path().user("q").assistant("x"),
            [("user", "q", []), ("assistant", "x", [])],
            id="an answer without calls",
        ),
        pytest.param(
            lambda: Path().user("first").assistant(status=Status.FAILED),
            [("user", "first", [])],
            id="an answer that failed before its first word",
        ),
        pytest.param(
            lambda: Path().user("q").assistant("x").assistant({"type": "reasoning", "text": "z"}, "y"),
            [("user", "q", []), ("assistant", "x", []), ("assistant", "y", [])],
            id="reasoning",
        ),
        pytest.param(
            lambda: Path().user("q").assistant({"type": "text", "text": "x", "refusal": None, "audio": None}),
            [("user", "q", []), ("assistant", "x", [])],
            id="parts with fields of somebody else",
        ),
        pytest.param(
            lambda: (
                Path()
                .user("q")
                .assistant(
                    row("fast", position=1, id="c2", result="F"), row("slow", position=0, result="S"), text("a", 2)
                )
            ),
            [
                ("user", "q", []),
                ("assistant", "", ["c1", "c2"]),
                ("tool", "S", ["c1"]),
                ("tool", "F", ["c2"]),
                ("assistant", "a", []),
            ],
            id="results in the order in which they came",
        ),
    ],
)
async def test_what_is_stored_is_told_in_a_request_that_a_strict_endpoint_takes(
    go_on: Any, path: Callable[[], Path], expected: list[Told]
) -> None:
    messages = told(await go_on(path()))
    assert messages[-1] == ("user", "n", [])
    assert len(messages) == len(expected) + 1
    for (role, content, ids), (wanted, words, wanted_ids) in zip(messages, expected, strict=False):
        assert (role, ids) == (wanted, wanted_ids)
        assert re.fullmatch(words, content, re.DOTALL)


async def test_a_history_that_is_cut_is_cut_between_turns(go_on: Any) -> None:
    path = Path().user("A").assistant(row(), row(position=1, id="c2"), text(LONG, 2))
    path.user("B").assistant("b")
    messages = told(await go_on(path, "C", context=9_000))
    assert messages == [("user", "B", []), ("assistant", "b", []), ("user", "C", [])]


async def test_arguments_that_were_no_json_go_back_as_an_object(go_on: Any) -> None:
    broken = row(text='{"value": ', arguments=None, status=CallStatus.ERROR, result="bad arguments")
    messages = await go_on(Path().user("q").assistant(broken, text("a", 2)))
    assert messages[1]["tool_calls"][0]["function"] == {"name": "t", "arguments": "{}"}


async def test_questions_without_an_answer_are_one_where_roles_must_alternate(go_on: Any) -> None:
    path = Path().user("first").assistant(status=Status.FAILED)
    assert told(await go_on(path, "second", alternate_roles=True)) == [("user", "first\n\nsecond", [])]
    assert len(path.messages) == 2
    assert await in_rows(Message.objects.filter(role="user").count) == 2


@pytest.mark.parametrize("returned", [True, False])
async def test_reasoning_goes_back_where_the_profile_says_so_and_never_empty(go_on: Any, returned: bool) -> None:
    path = Path().user("q").assistant({"type": "reasoning", "text": ""}, "x")
    path.user("r").assistant({"type": "reasoning", "text": "z"}, "y")
    messages = await go_on(path, return_reasoning=returned)
    assert [message.get("reasoning_content") for message in messages if message["role"] == "assistant"] == [
        None,
        "z" if returned else None,
    ]


async def test_ids_of_another_provider_take_the_form_that_this_one_demands(go_on: Any) -> None:
    stored = row(id="call_Zq4TestTestTestTest0001")
    messages = await go_on(Path().user("q").assistant(stored, text("a", 2)), dialect="mistral")
    (made,) = messages[1]["tool_calls"]
    assert re.fullmatch(r"[a-zA-Z0-9]{9}", made["id"])
    assert messages[2]["tool_call_id"] == made["id"]


async def test_an_id_that_came_twice_is_answered_by_each_of_its_results(go_on: Any) -> None:
    path = Path().user("q").assistant(row(id="call_0", result="one"), text("ok", 2))
    path.user("q2").assistant(row(id="call_0", result="two"), text("ok", 2))
    messages = await go_on(path)
    results = [message for message in messages if message["role"] == "tool"]
    assert [result["content"] for result in results] == ["one", "two"]
    assert results[0]["tool_call_id"] != results[1]["tool_call_id"]


async def test_a_signature_goes_back_with_its_call_alone(go_on: Any) -> None:
    path = Path().user("q").assistant(row(id="f1", extra=SIGNATURE), row(position=1, id="f2"), text("a", 2))
    signed, plain = (await go_on(path))[1]["tool_calls"]
    assert signed["extra_content"] == SIGNATURE["extra_content"]
    assert set(plain) == {"id", "type", "function"}


async def test_a_request_that_is_refused_is_made_once_and_stops_no_other_conversation(
    owner: User, endpoint: Endpoint
) -> None:
    endpoint.script(failure(400, body={"error": {"type": "invalid_request_error", "message": "no"}}), says("fine"))
    async with await Chat.of(owner) as chat:
        assert (await chat.ask())["outcome"] == "failed"
        assert len(endpoint.requests) == 1
        assert (await chat.ask("another"))["outcome"] == "completed"
