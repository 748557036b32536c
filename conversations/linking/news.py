"""What follows a sign-in, or its end: parked turns go on, connections that are stale close, every open tab is told."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from accounts.actors import Actor, find_actor
from chatui.rows import in_rows
from conversations import hints, questions, supervisor
from conversations.questions import Answered
from mcpservers.models import MCPServer
from mcpservers.oauth.accounts import Disconnected
from mcpservers.oauth.flow import Completed


async def linked(user_id: UUID, completed: Completed) -> int:
    """Carry on the turns that waited for the account, and tell of it; how many questions it answered."""
    actor = await in_rows(find_actor, user_id, completed.organization_id)
    if actor is None:  # left the organization meanwhile: nothing of it can use the account
        return 0
    answers = await in_rows(questions.signed_in, actor, completed.server_id, completed.account)
    await carry_on(user_id, answers)
    organization, server = actor.organization_slug, completed.server_slug
    await hints.tell_user(user_id, hints.connection_changed(organization, server, "connected", completed.account))
    return len(answers)


async def carry_on(user_id: UUID, answers: Iterable[Answered]) -> None:
    """Start the parked turns here (any process may), hand the others their answer, and tell the user's tabs."""
    for answer in answers:
        supervisor.current().answered(answer)
        changed = hints.question_changed(answer.question_id, answer.kind, "answered", answer.turn_id)
        await hints.tell_user(user_id, changed)


async def disconnected(actor: Actor, gone: Disconnected) -> None:
    """Tell of an account that was disconnected."""
    slug = await in_rows(_slug_of, gone.server_id)
    told = hints.connection_changed(actor.organization_slug, slug, "disconnected", gone.account)
    await hints.tell_user(actor.user_id, told)


def _slug_of(server_id: UUID) -> str:
    return MCPServer.objects.as_system().filter(pk=server_id).values_list("slug", flat=True).first() or ""
