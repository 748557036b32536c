"""What a socket hears beside turns: of its own organization alone, and of chats only where they may be seen."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from accounts.models import ApiKey, Membership, Organization, Role, User
from chatui.rows import in_rows
from conversations import hints
from conversations.models import Conversation
from conversations.wire import frame
from tests.conversations.asking import WRITE, agent, asked, fake, server
from tests.conversations.chat import Chat, Frame
from tests.fakes.endpoint import Endpoint, text

__all__ = ["agent", "fake", "server"]


async def heard(chat: Chat, user: User, organization: Organization) -> list[str]:
    """The types of all that the socket was told: hints arrive in order, and this one is the last."""
    await hints.tell_user(user.pk, organization.pk, frame("that.is.all"))
    frames: list[Frame] = []
    while not frames or frames[-1]["type"] != "that.is.all":
        frames.append(await chat.next())
    return [one["type"] for one in frames[:-1]]


async def with_key(user: User, organization: Organization, *scopes: str) -> Chat:
    _, secret = await in_rows(lambda: ApiKey.issue(user=user, organization=organization, scopes=list(scopes)))
    return await Chat(organization.slug, {"authorization": f"Bearer {secret}"}).connect()


async def everything(chat: Chat, endpoint: Endpoint) -> None:
    """A chat with a question that is answered, and one that is stopped while it waits."""
    card = await asked(chat, endpoint)
    endpoint.script(text("Noted."))
    await chat.send("call.decide", call_id=card["call_id"], decision="allow_once")
    await chat.until("question.changed", lambda changed: changed["state"] == "answered")
    await chat.until("turn.changed", lambda changed: changed["status"] == "completed")
    other = await asked(chat, endpoint, WRITE)
    await chat.send("turn.stop", turn_id=other["turn_id"])
    await chat.until("question.changed", lambda changed: changed["state"] == "void")


async def test_what_happens_in_one_organization_is_not_told_in_another(
    owner: User, other_organization: Organization, endpoint: Endpoint, house: Any
) -> None:
    await Membership.objects.acreate(user=owner, organization=other_organization, role=Role.OWNER)
    elsewhere, key = await Chat.of(owner, "globex"), await with_key(owner, other_organization, "chat", "approve")
    async with await Chat.of(owner) as chat, elsewhere, key:
        await everything(chat, endpoint)
        for socket in (elsewhere, key):
            assert await heard(socket, owner, other_organization) == []


@pytest.mark.parametrize(("scopes", "hears"), [(["read"], set()), (["chat"], {"conversation.updated", "turn.changed"})])
async def test_a_key_hears_of_chats_only_if_it_may_see_them(
    owner: User, organization: Organization, endpoint: Endpoint, house: Any, scopes: list[str], hears: set[str]
) -> None:
    async with await Chat.of(owner) as chat:
        await asked(chat, endpoint)
        async with await with_key(owner, organization, *scopes) as key:
            assert [turn["status"] for turn in key.hello["turns"]] == ["waiting"] * bool(hears)
            await everything(chat, endpoint)
            assert set(await heard(key, owner, organization)) - {"question.changed"} == hears


async def test_who_may_chat_no_more_hears_no_more_of_chats(owner: User, organization: Organization, house: Any) -> None:
    async with await Chat.of(owner) as chat:
        await Membership.objects.filter(user=owner).aupdate(role=Role.AUDITOR)
        await hints.recheck_user(owner.pk)
        conversation = Conversation(pk=uuid4(), organization=organization, owner=owner)
        await hints.tell_owner(conversation, frame("conversation.updated", title="Secret"))
        assert await heard(chat, owner, organization) == []
