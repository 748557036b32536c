"""Which of one's accounts a conversation acts with, where a server has several: chosen with a message, then kept."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from django.db.models import Q

from accounts.actors import Actor
from agents.models import Agent
from chatui.errors import ChatUIError
from conversations.models import Conversation
from mcpservers.models import LinkedAccount


class NotOfferedError(ChatUIError):
    """The selection names a server, a model or an account that the agent does not offer."""

    code = "not_offered"
    public_message = "This agent does not offer that."


def chosen_accounts(
    actor: Actor, agent: Agent, conversation: Conversation, chosen: Mapping[str, str]
) -> dict[str, str]:
    """What the conversation keeps, with what is `chosen` now ({server's slug: account's id}) in its place.

    Raises `NotOfferedError` unless each is the actor's own account at that server of the agent. What was kept is not
    looked at here: an account that has gone since shows at the call, which asks for a sign-in.
    """
    if not chosen:
        return dict(conversation.accounts)
    ids = {id for id in map(_uuid, chosen.values()) if id is not None}
    rows = LinkedAccount.objects.visible_to(actor).filter(_at_servers_of(agent), pk__in=ids, user_id=actor.user_id)
    found = {str(id): slug for id, slug in rows.values_list("pk", "server__slug")}
    accounts = {slug: str(_uuid(id)) for slug, id in chosen.items()}
    for slug, id in accounts.items():
        if found.get(id) != slug:
            raise NotOfferedError(public_message=f"There is no such account of yours to choose for “{slug[:80]}”.")
    return {**conversation.accounts, **accounts}


def _at_servers_of(agent: Agent) -> Q:
    """At those that the agent has, and the person's own where it uses them: nobody has an account at another's."""
    its = Q(server__in=agent.servers.values("server_id"))
    return its | Q(server__owner__isnull=False) if agent.user_servers else its


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
