"""The life of an approval: changed arguments, changed tools, other people's answers, the end of what it was for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from accounts.actors import Actor
from accounts.models import AuditRecord, Membership, User
from chatui.errors import NotFoundError
from chatui.rows import in_rows
from conversations import pending, questions, supervisor
from conversations.decisions import Decision
from conversations.models import Question, ToolCall
from mcpservers.models import MCPServer
from tests.conversations.asking import (
    WRITE,
    agent,
    asked,
    call_of,
    decided,
    fake,
    group_of,
    redefine,
    refused,
    server,
    set_rule,
)
from tests.conversations.chat import Chat
from tests.fakes.endpoint import Endpoint, calls, text
from tests.fakes.mcp_server import FakeMCPServer, hang

__all__ = ["agent", "fake", "server"]


# --- Changed arguments --------------------------------------------------------------------------------------------


async def test_arguments_cannot_be_changed_unless_a_rule_lets_one(owner: User, endpoint: Endpoint) -> None:
    async with await Chat.of(owner) as chat:
        card = await asked(chat, endpoint)
        assert not card["can_edit"]
        error = await refused(chat, card, decision="allow_once", arguments={"text": "honey"})
        assert error["code"] == "not_supported"


async def test_changed_arguments_reach_the_tool_and_the_model_is_told(
    owner: User, endpoint: Endpoint, server: MCPServer, fake: FakeMCPServer
) -> None:
    await set_rule(server, edit=True)
    async with await Chat.of(owner) as chat:
        card = await asked(chat, endpoint)
        assert card["can_edit"]
        call = await decided(chat, endpoint, card, arguments={"text": "honey"})
    assert (call["status"], call["arguments"]) == ("ok", {"text": "honey"})
    assert fake.exchanges_of("tools/call")[-1].params["arguments"] == {"text": "honey"}
    told = endpoint.last.messages[-1]["content"]
    assert "user changed the arguments" in told
    assert "honey" in told


@pytest.mark.parametrize("arguments", [{}, {"text": 7}, {"text": None}])
async def test_changed_arguments_that_the_tool_would_refuse_leave_the_question_open(
    owner: User, endpoint: Endpoint, server: MCPServer, fake: FakeMCPServer, arguments: dict[str, Any]
) -> None:
    await set_rule(server, edit=True)
    async with await Chat.of(owner) as chat:
        card = await asked(chat, endpoint)
        error = await refused(chat, card, decision="allow_once", arguments=arguments)
        assert error["code"] == "invalid_arguments"
        assert "text" in error["message"]
        assert (await decided(chat, endpoint, card, arguments={"text": "honey"}))["status"] == "ok"


# --- Void ---------------------------------------------------------------------------------------------------------


async def test_an_approval_is_void_when_the_tool_is_another_by_then_and_the_person_is_asked_again(
    owner: User, endpoint: Endpoint, server: MCPServer, fake: FakeMCPServer
) -> None:
    async with await Chat.of(owner) as chat:
        card = await asked(chat, endpoint)
        await redefine(fake, server, description="Write, and tell the whole world.")
        await chat.send("call.decide", call_id=card["call_id"], decision="allow_once")
        again = await chat.until("call.approval")
        assert again["call_id"] == card["call_id"]
        assert again["question_id"] != card["question_id"]
        assert "have changed" in again["reason"]
        assert fake.count("tools/call") == 0
        await chat.until("turn.waiting")
        call = await decided(chat, endpoint, again)
    assert call["status"] == "ok"
    assert "asked about again" in endpoint.last.messages[-1]["content"]


async def test_an_answer_that_is_sent_again_does_not_answer_the_question_that_came_after_it(
    owner: User, endpoint: Endpoint, server: MCPServer, fake: FakeMCPServer
) -> None:
    async with await Chat.of(owner) as chat:
        card = await asked(chat, endpoint)
        await redefine(fake, server, description="Write, and tell the whole world.")
        one = {"call_id": card["call_id"], "question_id": card["question_id"], "request_id": str(uuid4())}
        await chat.send("call.decide", decision="allow_once", **one)
        again = await chat.until("call.approval")
        await chat.until("turn.waiting")
        await chat.send("call.decide", decision="allow_once", **one)
        assert (await chat.until("error"))["code"] == "already_answered"
        assert fake.count("tools/call") == 0
        call = await decided(chat, endpoint, again, question_id=again["question_id"])
    assert call["status"] == "ok"


async def test_changed_arguments_are_void_with_the_tool_that_they_were_written_for(
    owner: User, endpoint: Endpoint, server: MCPServer, fake: FakeMCPServer
) -> None:
    await set_rule(server, edit=True)
    async with await Chat.of(owner) as chat:
        card = await asked(chat, endpoint)
        await redefine(fake, server, description="Another.")
        await chat.send("call.decide", call_id=card["call_id"], decision="allow_once", arguments={"text": "honey"})
        again = await chat.until("call.approval")
        assert again["arguments"] == WRITE[1]
        await chat.until("turn.waiting")
        assert (await decided(chat, endpoint, again))["arguments"] == WRITE[1]
    assert fake.exchanges_of("tools/call")[-1].params["arguments"] == WRITE[1]


async def test_an_approval_is_void_when_the_stored_arguments_are_others_by_then(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer
) -> None:
    async with await Chat.of(owner) as chat:
        card = await asked(chat, endpoint)
        await in_rows(lambda: ToolCall.objects.update(arguments_text='{"text": "poison"}'))
        await chat.send("call.decide", call_id=card["call_id"], decision="allow_once")
        again = await chat.until("call.approval")
        assert again["arguments"] == {"text": "poison"}
        assert fake.count("tools/call") == 0


async def test_a_call_that_is_cancelled_while_it_is_asked_about_closes_its_question(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer
) -> None:
    fake.on("tools/call", hang)
    endpoint.script(calls(("notes__read", {"text": "x"}), WRITE), text("never mind"))
    async with await Chat.of(owner) as chat:
        await chat.start()
        card = await chat.until("call.approval")
        await fake.heard("tools/call")
        await chat.send("call.cancel", call_id=card["call_id"])
        settled = await chat.until("question.changed", lambda frame: frame["state"] != "open")
        assert (settled["question_id"], settled["state"]) == (card["question_id"], "void")
        await chat.send("call.decide", call_id=card["call_id"], decision="allow_once", request_id=str(uuid4()))
        assert (await chat.until("error"))["code"] == "already_answered"


async def test_a_parked_turn_goes_on_without_a_call_that_is_cancelled(owner: User, endpoint: Endpoint) -> None:
    async with await Chat.of(owner) as chat:
        card = await asked(chat, endpoint)
        endpoint.script(text("Then not."))
        await chat.send("call.cancel", call_id=card["call_id"])
        ended = await chat.until("call.finished")
        assert (ended["call_id"], ended["status"]) == (card["call_id"], "cancelled")
        finished = await chat.until("turn.finished")
        assert (finished["outcome"], call_of(finished)["question"]["state"]) == ("completed", "void")
        assert endpoint.last.messages[-1]["content"] == "Cancelled by the user before it ran."
        await chat.send("call.decide", call_id=card["call_id"], decision="allow_once")
        assert (await chat.until("error"))["code"] == "already_answered"


async def test_all_who_were_asked_hear_that_it_is_over(owner: User, endpoint: Endpoint, settings: Any) -> None:
    async with await Chat.of(owner) as chat:
        card = await asked(chat, endpoint)
        await Question.objects.as_system().aupdate(expires_at="2020-01-01T00:00:00Z")
        endpoint.script(text("Nobody decided."))
        await supervisor.current().expire()
        changed = await chat.until("question.changed", lambda frame: frame["state"] == "expired")
        assert changed["question_id"] == card["question_id"]
        ended = await chat.until("call.finished")
        assert (ended["call_id"], ended["status"]) == (card["call_id"], "expired"), "its card goes before the turn ends"
        assert call_of(await chat.until("turn.finished"))["status"] == "expired"


# --- Approvers ----------------------------------------------------------------------------------------------------


@pytest.fixture
def boss(organization: Any, bob: User) -> User:
    """Bob, whom rules name."""
    return bob


async def test_whom_a_rule_names_decides_and_the_owner_does_not(
    owner: User, boss: User, endpoint: Endpoint, server: MCPServer, actor_of: Callable[[User], Actor]
) -> None:
    await set_rule(server, approvers=["bob"])
    async with await Chat.of(owner) as chat, await Chat.of(boss) as other:
        card = await asked(chat, endpoint)
        assert (card["can_decide"], card["can_remember"], card["approvers"]) == (False, False, ["bob"])
        hint = await other.until("question.changed")
        assert (hint["question_id"], hint["state"]) == (card["question_id"], "open")
        await chat.send("call.decide", call_id=card["call_id"], decision="allow_once")
        assert (await chat.until("error"))["code"] == "not_found"
        (row,) = await in_rows(lambda: pending.listing(actor_of(boss)))
        assert (row["arguments"], row["asked_by"]["username"], row["tool"]) == (WRITE[1], "alice", "write")
        assert row["conversation"] is None, "who approves learns what is to be done, not what was said"
        (mine,) = await in_rows(lambda: pending.listing(actor_of(owner)))
        assert not mine["can_decide"]
        assert await in_rows(lambda: pending.count(actor_of(owner))) == 0
        endpoint.script(text("done"))
        await other.send("call.decide", call_id=card["call_id"], decision="allow_once")
        call = call_of(await chat.until("turn.finished"))
        assert (call["status"], call["decided_by"]) == ("ok", "bob")
        await other.until("question.changed", lambda frame: frame["state"] == "answered")
    entry = await AuditRecord.objects.aget(action="approval.answered")
    assert (entry.actor_id, entry.person_id) == (boss.pk, owner.pk)


async def test_a_call_whose_approvers_have_all_left_is_not_made_and_says_why(
    owner: User, boss: User, endpoint: Endpoint, server: MCPServer
) -> None:
    await set_rule(server, approvers=["bob"])
    async with await Chat.of(owner) as chat:
        card = await asked(chat, endpoint)
        await supervisor.current().expire()
        assert await Question.objects.as_system().filter(state="open").aexists(), "bob is there"
        await Membership.objects.filter(user=boss).aupdate(role="auditor")
        endpoint.script(text("Nobody can approve."))
        await supervisor.current().expire()
        changed = await chat.until("question.changed", lambda frame: frame["state"] == "void")
        assert changed["question_id"] == card["question_id"]
        ended = await chat.until("call.finished")
        call = call_of(await chat.until("turn.finished"))
    assert (call["status"], ended["status"]) == ("denied", "denied")
    assert ended["content"] == call["content"]
    assert "Nobody who was to approve this call" in str(call["content"])


async def test_who_has_no_say_in_a_call_is_told_who_has(
    owner: User, boss: User, endpoint: Endpoint, server: MCPServer, actor_of: Callable[[User], Actor]
) -> None:
    async with await Chat.of(owner) as chat:
        card = await asked(chat, endpoint)
        with pytest.raises(NotFoundError) as missed:
            await in_rows(lambda: pending.one(actor_of(boss), card["question_id"]))
    assert "by whoever it was made for, or by those whom its rule names" in missed.value.public_message


async def test_who_approves_for_others_does_not_allow_for_good(
    owner: User, boss: User, endpoint: Endpoint, server: MCPServer
) -> None:
    await set_rule(server, approvers=["bob"])
    async with await Chat.of(owner) as chat, await Chat.of(boss) as other:
        card = await asked(chat, endpoint)
        error = await refused(other, card, decision="allow_always", scope="always")
        assert error["code"] == "not_supported"


async def test_an_owner_who_is_named_too_may_decide_and_so_may_the_others(
    owner: User, boss: User, endpoint: Endpoint, server: MCPServer, organization: Any
) -> None:
    await group_of(organization, "finance", owner, boss)
    await set_rule(server, approvers=["group:finance"])
    async with await Chat.of(owner) as chat, await Chat.of(boss) as other:
        card = await asked(chat, endpoint)
        assert (card["can_decide"], card["approvers"]) == (True, ["alice", "bob"])
        assert (await decided(chat, endpoint, card))["status"] == "ok"
        await other.send("call.decide", call_id=card["call_id"], decision="deny", request_id=str(uuid4()))
        assert (await other.until("error"))["code"] == "already_answered"


@pytest.mark.parametrize("approvers", [["nobody"], ["group:gone"], ["bob"], ["group:empty"]])
async def test_where_nobody_can_answer_the_call_is_denied_at_once_with_the_reason(
    owner: User, bob: User, endpoint: Endpoint, server: MCPServer, organization: Any, approvers: list[str]
) -> None:
    await group_of(organization, "empty")
    await in_rows(lambda: Membership.objects.filter(user=bob).update(is_active=False))  # bob has left
    await set_rule(server, approvers=approvers)
    endpoint.script(calls(WRITE), text("I may not."))
    async with await Chat.of(owner) as chat:
        call = call_of(await chat.ask())
    assert call["status"] == "denied"
    assert approvers[0] in call["reason"]
    assert "nobody can approve" in endpoint.last.messages[-1]["content"]


async def test_an_auditor_who_is_named_cannot_answer(
    owner: User, organization: Any, endpoint: Endpoint, server: MCPServer, make_member: Callable[..., User]
) -> None:
    await in_rows(lambda: make_member("carol", organization, "auditor"))
    await set_rule(server, approvers=["carol"])
    endpoint.script(calls(WRITE), text("I may not."))
    async with await Chat.of(owner) as chat:
        assert call_of(await chat.ask())["status"] == "denied"


async def test_rules_of_two_lists_that_name_different_people_leave_nobody(
    owner: User, boss: User, endpoint: Endpoint, server: MCPServer, organization: Any
) -> None:
    rules = [{"tool": "notes__*", "do": "ask", "approvers": ["alice"]}]
    await group_of(organization, "staff", owner, rules=rules)
    await set_rule(server, approvers=["bob"])
    endpoint.script(calls(WRITE), text("I may not."))
    async with await Chat.of(owner) as chat:
        call = call_of(await chat.ask())
    assert call["status"] == "denied"
    assert "different approvers" in call["reason"]


async def test_an_approval_of_somebody_whom_the_rule_names_no_more_is_void(
    owner: User, boss: User, endpoint: Endpoint, server: MCPServer, organization: Any, make_member: Callable[..., User]
) -> None:
    await in_rows(lambda: make_member("carol", organization))
    await set_rule(server, approvers=["bob"])
    async with await Chat.of(owner) as chat, await Chat.of(boss) as other:
        card = await asked(chat, endpoint)
        await set_rule(server, approvers=["carol"])
        await other.send("call.decide", call_id=card["call_id"], decision="allow_once")
        again = await chat.until("call.approval")
        assert again["approvers"] == ["carol"]
        await chat.until("turn.waiting")
        await other.send("call.decide", call_id=card["call_id"], decision="allow_once", request_id=str(uuid4()))
        assert (await other.until("error"))["code"] in ("already_answered", "not_found")


async def test_somebody_elses_question_is_not_found_by_its_id_either(
    owner: User, bob: User, charlie: User, endpoint: Endpoint, actor_of: Callable[[User], Actor]
) -> None:
    async with await Chat.of(owner) as chat:
        card = await asked(chat, endpoint)
    question = UUID(card["question_id"])
    for stranger in (bob, charlie):
        who = await in_rows(actor_of, stranger)
        assert await in_rows(pending.listing, who) == []
        with pytest.raises(NotFoundError):
            await in_rows(pending.one, who, question)
        with pytest.raises(NotFoundError):
            await in_rows(questions.decide, who, Decision("allow_once"), question_id=question)


# --- Rules of groups ----------------------------------------------------------------------------------------------


async def test_a_groups_rule_counts_for_its_members_alone(
    owner: User, bob: User, endpoint: Endpoint, organization: Any, server: MCPServer
) -> None:
    await set_rule(server, do="allow")
    await group_of(organization, "interns", bob, rules=[{"tool": "notes__write", "do": "deny"}])
    for user, status in ((owner, "ok"), (bob, "denied")):
        endpoint.script(calls(WRITE), text("done"))
        async with await Chat.of(user) as chat:
            call = call_of(await chat.ask())
        assert call["status"] == status
    assert "interns" in call["reason"]


async def test_a_group_left_or_joined_while_the_turn_waits_counts_at_the_call(
    owner: User, endpoint: Endpoint, organization: Any, fake: FakeMCPServer
) -> None:
    async with await Chat.of(owner) as chat:
        card = await asked(chat, endpoint)
        await group_of(organization, "interns", owner, rules=[{"tool": "notes__*", "do": "deny"}])
        assert (await decided(chat, endpoint, card))["status"] == "denied"
    assert fake.count("tools/call") == 0
