"""The rows that measures need, and the queries that the product makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections
from django.db.backends.signals import connection_created
from django.utils import timezone

from accounts.actors import Actor, find_actor
from accounts.models import ApiKey, Organization, User
from agents.models import Agent
from benchmarks.product import ORGANIZATION
from conversations.models import Conversation, Message


def somebody() -> tuple[Actor, str]:
    """An actor and a key of theirs."""
    organization = Organization.objects.get(slug=ORGANIZATION)
    user = User.objects.filter(memberships__organization=organization).order_by("pk")[0]
    actor = find_actor(user.pk, organization.pk)
    assert actor is not None
    return actor, ApiKey.issue(organization_id=organization.pk, user=user, name="inside")[1]


def long_conversation(actor: Actor, messages: int) -> Conversation:
    """A conversation with so many messages, questions and answers in turn."""
    agent = Agent.objects.as_system().get(slug="first")
    conversation = Conversation.objects.create(
        organization_id=actor.organization_id,
        owner_id=actor.user_id,
        agent=agent,
        title="Long",
        active_at=timezone.now(),
    )
    rows: list[Message] = []
    for number in range(messages):
        role = Message.Role.USER if number % 2 == 0 else Message.Role.ASSISTANT
        text = f"Message {number} of a long conversation."
        parent = rows[-1] if rows else None
        parts = [{"type": "text", "text": text}]
        rows.append(Message(conversation=conversation, parent=parent, role=role, parts=parts, search_text=text))
    Message.objects.bulk_create(rows)
    conversation.current_leaf = rows[-1]
    conversation.save()
    return conversation


class Queries:
    """Every query of every thread, noted from the moment this is made."""

    def __init__(self) -> None:
        self.noted: list[str] = []
        connection_created.connect(self._watch, weak=False)
        connections.close_all()

    def _watch(self, connection: Any, **_: Any) -> None:
        connection.execute_wrappers.append(self._note)

    def _note(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if not sql.startswith(("PRAGMA", "BEGIN")):
            self.noted.append(sql)
        return execute(sql, params, many, context)

    @contextmanager
    def taken(self) -> Iterator[list[str]]:
        """The queries of the block, in a list that is filled at its end."""
        before = len(self.noted)
        found: list[str] = []
        yield found
        found.extend(self.noted[before:])
