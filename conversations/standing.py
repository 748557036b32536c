"""Standing approvals: what a person has allowed for good, where it counts, and how it is taken back.

They turn *ask* into *allow* in that person's own turns, for the definition that the person saw, and nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Q
from django.utils import timezone

from accounts import audit, policy
from accounts.actors import Actor
from accounts.models import AuditAction
from agents.deciding import Always, Standing
from chatui.errors import NotFoundError
from chatui.gathered import Gathered
from chatui.prepared import PreparedQuery
from chatui.rows import writing
from conversations.models import Question, StandingApproval, StandingQuerySet
from mcpservers.models import ToolSighting
from mcpservers.pins import tool_key

Scope = StandingApproval.Scope
_WORDS = {
    Scope.CONVERSATION: "You always allow this tool in this chat.",
    Scope.AGENT: "You always allow this tool with this agent.",
    Scope.ALWAYS: "You always allow this tool.",
}
CHANGED = "You had always allowed this tool, but its definition has changed since then."


def _given_to(user: UUID, server: UUID, tool: str) -> StandingQuerySet:
    return StandingApproval.objects.as_system().filter(user_id=user, server_id=server, tool=tool, revoked_at=None)


_given = PreparedQuery(_given_to, UUID, UUID, str)


def always_of(user_id: UUID, conversation_id: UUID | None, agent_id: UUID | None) -> Always:
    """What this user has always allowed, as it counts in a turn of that user's, in this conversation and agent."""
    return _AlwaysOf(user_id, conversation_id, agent_id)


@dataclass(frozen=True, slots=True)
class _AlwaysOf:
    user_id: UUID
    conversation_id: UUID | None
    agent_id: UUID | None

    def __call__(self, server_id: UUID, tool: str, definition: str) -> Standing:
        return self._said(_given(self.user_id, server_id, tool), definition)

    def column(self, server_id: UUID, tool: str) -> Gathered:
        rows = _given_to(self.user_id, server_id, tool).order_by()
        return Gathered(rows, scope="scope", conversation="conversation_id", agent="agent_id", definition="definition")

    def read(self, column: Sequence[Mapping[str, Any]], definition: str) -> Standing:
        rows = [
            StandingApproval(
                scope=row["scope"],
                conversation_id=_id(row["conversation"]),
                agent_id=_id(row["agent"]),
                definition=row["definition"],
            )
            for row in column
        ]
        return self._said(rows, definition)

    def _said(self, rows: Sequence[StandingApproval], definition: str) -> Standing:
        counting = [
            row
            for row in rows
            if row.scope == Scope.ALWAYS
            or (row.scope == Scope.CONVERSATION and _same(row.conversation_id, self.conversation_id))
            or (row.scope == Scope.AGENT and _same(row.agent_id, self.agent_id))
        ]
        same = next((row for row in counting if definition and row.definition == definition), None)
        if same is not None:
            return Standing(True, _WORDS[Scope(same.scope)])
        return Standing(False, CHANGED if counting else "")


def _same(one: UUID | None, other: UUID | None) -> bool:
    return one is not None and one == other


def _id(value: str | None) -> UUID | None:
    return None if value is None else UUID(value)


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


def listing(actor: Actor) -> list[dict[str, Any]]:
    """What the actor has allowed for good and not taken back, the newest first; three queries.

    `state`: `active`, or why it does not count: `changed` (the tool's definition), `withdrawn` (the tool), `off` (the
    server).
    """
    policy.require(actor, policy.Action.ANSWER)
    rows = list(
        StandingApproval.objects.visible_to(actor)
        .filter(revoked_at=None)
        .exclude(conversation__deleted_at__isnull=False)
        .select_related("server", "conversation", "agent")
    )
    states = _states(actor, rows)
    return [
        {
            "id": str(row.pk),
            "server": row.server.slug,
            "server_title": row.server.title,
            "tool": row.tool,
            "title": row.title or row.tool,
            "scope": row.scope,
            "conversation": _named(row.conversation, "title"),
            "agent": _named(row.agent, "name"),
            "created_at": row.created_at.isoformat(),
            "state": states[row.pk],
        }
        for row in rows
    ]


def _named(row: Any, name: str) -> dict[str, str] | None:
    return None if row is None else {"id": str(row.pk), name: getattr(row, name)}


def _states(actor: Actor, rows: Sequence[StandingApproval]) -> dict[UUID, str]:
    servers = {row.server_id for row in rows}
    sightings = ToolSighting.objects.filter(
        Q(view__user=None) | Q(view__user_id=actor.user_id), view__server__in=servers, listed=True
    )
    listed: dict[UUID, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for server_id, tool, pin in sightings.values_list("view__server_id", "version__tool", "version__hash"):
        listed[server_id][tool].add(pin)

    def state(row: StandingApproval) -> str:
        if not row.server.enabled:
            return "off"
        tools = listed.get(row.server_id)
        if tools is None:  # not listed yet: nothing speaks against it
            return "active"
        pins = tools.get(tool_key(row.tool))
        return "withdrawn" if not pins else "active" if row.definition in pins else "changed"

    return {row.pk: state(row) for row in rows}


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
