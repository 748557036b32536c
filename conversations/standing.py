"""Standing approvals: what a person has allowed for good, where it counts, and how it is taken back.

They turn *ask* into *allow* in that person's own turns, for the definition that the person saw, and nothing else.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.utils import timezone

from accounts import audit, policy
from accounts.actors import Actor
from accounts.models import AuditAction
from agents.deciding import Always, Standing
from chatui.errors import NotFoundError
from chatui.prepared import PreparedQuery
from chatui.rows import writing
from conversations.models import Question, StandingApproval

Scope = StandingApproval.Scope
_WORDS = {
    Scope.CONVERSATION: "You always allow this tool in this chat.",
    Scope.AGENT: "You always allow this tool with this agent.",
    Scope.ALWAYS: "You always allow this tool.",
}
CHANGED = "You had always allowed this tool, but its definition has changed since then."

_given = PreparedQuery(
    lambda user, server, tool: StandingApproval.objects.as_system().filter(
        user_id=user, server_id=server, tool=tool, revoked_at=None
    ),
    UUID,
    UUID,
    str,
)


def always_of(user_id: UUID, conversation_id: UUID, agent_id: UUID | None) -> Always:
    """What this user has always allowed, as it counts in a turn of that user's, in this conversation and agent."""

    def always(server_id: UUID, tool: str, definition: str) -> Standing:
        counting = [
            row
            for row in _given(user_id, server_id, tool)
            if row.scope == Scope.ALWAYS
            or (row.scope == Scope.CONVERSATION and row.conversation_id == conversation_id)
            or (row.scope == Scope.AGENT and agent_id is not None and row.agent_id == agent_id)
        ]
        same = next((row for row in counting if row.definition == definition), None)
        if same is not None:
            return Standing(True, _WORDS[Scope(same.scope)])
        return Standing(False, CHANGED if counting else "")

    return always


def remember(actor: Actor, question: Question, scope: str) -> None:
    """Keep the actor's *Always allow* of what `question` asks about. Its call, turn and server are loaded."""
    call, turn = question.call, question.turn
    assert call is not None
    where: dict[str, Any] = {
        "organization_id": actor.organization_id,
        "user_id": actor.user_id,
        "server_id": call.server_id,
        "tool": call.tool,
        "scope": scope,
        "conversation_id": turn.conversation_id if scope == Scope.CONVERSATION else None,
        "agent_id": turn.agent_id if scope == Scope.AGENT else None,
        "definition": question.definition,
    }
    if StandingApproval.objects.visible_to(actor).filter(revoked_at=None, **where).exists():
        return
    given = StandingApproval.objects.create(title=call.title, **where)
    _record(AuditAction.APPROVAL_REMEMBERED, actor, given, call.server_slug)


def revoke(actor: Actor, standing_id: UUID) -> None:
    """Take it back; one that was taken back before stays so. Raises `NotFoundError`."""
    policy.require(actor, policy.Action.ANSWER)
    with writing():
        given = StandingApproval.objects.visible_to(actor).select_related("server").filter(pk=standing_id).first()
        if given is None:
            raise NotFoundError(public_message="There is no such standing approval.")
        rows = StandingApproval.objects.visible_to(actor).filter(pk=standing_id, revoked_at=None)
        if rows.update(revoked_at=timezone.now()):
            _record(AuditAction.APPROVAL_REVOKED, actor, given, given.server.slug)


def _record(action: AuditAction, actor: Actor, given: StandingApproval, server: str) -> None:
    audit.record(
        action,
        organization_id=actor.organization_id,
        actor_id=actor.user_id,
        via=audit.via_of(actor),
        server_id=given.server_id,
        server=server,
        tool=given.tool,
        details={"scope": given.scope},
    )
