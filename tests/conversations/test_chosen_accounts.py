"""Which account a conversation acts with: one's own, at a server of the agent, kept for the messages that follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from accounts.actors import Actor
from accounts.models import Organization, User
from agents.models import Agent
from conversations import turns
from conversations.models import Conversation, Turn
from conversations.turns import NewTurn, NotOfferedError
from mcpservers.models import LinkedAccount, MCPServer
from tests.conversations.linking.conftest import make_account, make_server

__all__ = ["make_account", "make_server"]


def ask(actor: Actor, **fields: Any) -> Turn:
    """A question whose answer ends at once."""
    fields = {"agent": "helper"} | fields if "conversation_id" not in fields else fields
    begun = turns.begin_turn(actor, NewTurn(request_id=uuid4(), content=[{"type": "text", "text": "hi"}], **fields))
    assert begun.turn is not None
    Turn.objects.filter(pk=begun.turn_id).update(status="completed")
    return begun.turn


@pytest.fixture
def notes(
    organization: Organization, make_server: Callable[..., MCPServer], make_agent: Callable[..., Agent]
) -> MCPServer:
    server = make_server(organization)
    make_agent(organization, servers=[server])
    return server


def test_a_choice_holds_for_the_turn_and_for_those_that_follow(
    notes: MCPServer, bob: User, actor_of: Callable[[User], Actor], make_account: Callable[..., LinkedAccount]
) -> None:
    ada, grace = make_account(notes, bob, "ada"), make_account(notes, bob, "grace")
    actor = actor_of(bob)
    first = ask(actor, accounts={"notes": str(ada.pk)})
    assert first.options["accounts"] == {"notes": str(ada.pk)}
    second = ask(actor, conversation_id=first.conversation_id)
    assert second.options["accounts"] == {"notes": str(ada.pk)}
    third = ask(actor, conversation_id=first.conversation_id, accounts={"notes": str(grace.pk).upper()})
    assert third.options["accounts"] == {"notes": str(grace.pk)}
    assert Conversation.objects.as_system().get().accounts == {"notes": str(grace.pk)}
    assert ask(actor).options["accounts"] == {}


def test_only_ones_own_accounts_at_the_agents_servers_can_be_chosen(
    notes: MCPServer,
    organization: Organization,
    other_organization: Organization,
    alice: User,
    bob: User,
    actor_of: Callable[[User], Actor],
    make_server: Callable[..., MCPServer],
    make_account: Callable[..., LinkedAccount],
) -> None:
    own = make_account(notes, bob)
    hers = make_account(notes, alice, "hers")
    machine = make_account(notes, None, "machine")
    unused = make_account(make_server(organization, "unused"), bob, "unused")
    foreign = make_account(make_server(other_organization), bob, "foreign")
    actor = actor_of(bob)
    wrong: list[dict[str, str]] = [{"notes": str(one.pk)} for one in (hers, machine, unused, foreign)]
    wrong += [{"unused": str(unused.pk)}, {"other": str(own.pk)}, {"notes": "7"}, {"notes": str(uuid4())}]
    for accounts in wrong:
        with pytest.raises(NotOfferedError, match="no such account of yours"):
            ask(actor, accounts=accounts)
    assert not Conversation.objects.as_system().exists()
