"""What follows a sign-in, or its end: parked turns go on, connections that are stale close, every open tab is told."""

from __future__ import annotations

from uuid import UUID

from accounts.actors import Actor, find_actor
from chatui.errors import NotFoundError
from chatui.rows import in_rows
from conversations import answering, hints, questions
from mcpservers import peers
from mcpservers.models import LinkedAccount
from mcpservers.oauth import accounts
from mcpservers.oauth.accounts import Disconnected
from mcpservers.oauth.flow import Completed


async def linked(user_id: UUID, completed: Completed) -> int:
    """Carry on the turns that waited for the account, and tell of it; how many questions it answered."""
    actor = await in_rows(find_actor, user_id, completed.organization_id)
    if actor is None:  # left the organization meanwhile: nothing of it can use the account
        return 0
    await peers.account_changed(completed.server_id, user_id)
    answers = await in_rows(questions.signed_in, actor, completed.server_id, completed.account)
    for answer in answers:
        await answering.carry(answer)
    organization, server = actor.organization_slug, completed.server_slug
    told = hints.connection_changed(organization, server, "connected", completed.account)
    await hints.tell_user(user_id, completed.organization_id, told)
    return len(answers)


async def disconnect(actor: Actor, account_id: UUID) -> Disconnected:
    """Disconnect an account of the actor's own, and tell of it. Raises `NotFoundError`; for managers, too."""
    server = await in_rows(_server_of, actor, account_id)
    gone = await accounts.disconnect(actor, account_id)
    await peers.account_changed(gone.server_id, actor.user_id)
    told = hints.connection_changed(actor.organization_slug, server, "disconnected", gone.account)
    await hints.tell_user(actor.user_id, actor.organization_id, told)
    return gone


def _server_of(actor: Actor, account_id: UUID) -> str:
    rows = LinkedAccount.objects.visible_to(actor).filter(user_id=actor.user_id, pk=account_id)
    slug: str | None = rows.values_list("server__slug", flat=True).first()
    if slug is None:
        raise NotFoundError
    return slug
