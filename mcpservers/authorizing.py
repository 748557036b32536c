"""Whether a tool may be called just now, with which rows, and as whom: read anew before every call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.db.models import Q

from accounts.actors import Actor, refreshed, why_gone
from accounts.policy import Action, allows
from chatui.prepared import PreparedQuery
from mcpservers import approvals, pins
from mcpservers.acting import Identity, identity_of
from mcpservers.giving import given_tool, is_visible
from mcpservers.models import MCPServer, ServerGrant, UserVariables
from mcpservers.pins import CallPins


@dataclass(frozen=True, slots=True)
class Authorization:
    """Whether a call may run, why, and with which rows: all read now, in one crossing."""

    allowed: bool
    reason: str
    server: MCPServer | None = None
    actor: Actor | None = None  # as the membership says now
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    pins: CallPins = field(default_factory=CallPins)  # what is accepted of the tool
    identity: Identity = field(default_factory=Identity)  # as whom the server is called


def authorize_call(
    actor: Actor, server_id: UUID, tool: str, *, allow_globs: Sequence[str] = (), account_id: UUID | None = None
) -> Authorization:
    """Whether `actor` may call `tool` now: membership, role, server, grants and rules, from fresh rows.

    Three queries, and one more for a server with variables, and for one with accounts. Which version of the tool may be
    called depends on whose view of the server it is: `Authorization.pins` says it. `allow_globs`, if any, are the only
    tools that the agent offers of this server.
    """
    now = refreshed(actor)
    if now is None:
        return Authorization(False, why_gone(actor))
    verdict = allows(now, Action.CALL_TOOL)
    if not verdict:
        return Authorization(False, verdict.reason)
    grants = _grants(now.organization_id, server_id, now.user_id)
    server = _server(now, server_id, grants)
    if server is None:
        return Authorization(False, "There is no such server.")
    reason = _refusal(now, server, grants, tool, allow_globs)
    if reason:
        return Authorization(False, reason, server)
    accepted = pins.of_call(server_id, tool, now.user_id, own=server.owner_id is not None)
    identity = identity_of(now, server, account_id)
    return Authorization(True, "", server, now, _own_values(now, server), accepted, identity)


# Of groups all, since an actor has any number of them, and a server few.
_grants = PreparedQuery(
    lambda organization, server, user: (
        ServerGrant.objects.filter(server_id=server, server__organization_id=organization)
        .filter(Q(user_id=None) | Q(user_id=user))
        .select_related("server")
    ),
    UUID,
    UUID,
    UUID,
)


def _server(actor: Actor, server_id: UUID, grants: Sequence[ServerGrant]) -> MCPServer | None:
    """The server, from the rows of its grants if there are any; None for another person's."""
    server = grants[0].server if grants else MCPServer.objects.visible_to(actor).filter(pk=server_id).first()
    return server if server is not None and is_visible(actor, server) else None


def _not_given(actor: Actor, server: MCPServer, grants: Sequence[ServerGrant], tool: str) -> str:
    verdict = given_tool(actor, server, grants, tool)
    return "" if verdict else verdict.reason


def _own_values(actor: Actor, server: MCPServer) -> Mapping[str, str]:
    if not server.variables:
        return {}
    own = UserVariables.objects.filter(server=server, user_id=actor.user_id).first()
    return own.values if own is not None else {}


def _refusal(
    actor: Actor, server: MCPServer, grants: Sequence[ServerGrant], tool: str, allow_globs: Sequence[str]
) -> str:
    if not server.enabled:
        return f"“{server.title}” is switched off."
    refusal = _not_given(actor, server, grants, tool)
    if refusal:
        return refusal
    if allow_globs and not any(approvals.matches(glob, tool) for glob in allow_globs):
        return "The agent does not offer this tool."
    rules = approvals.rule_lists(server.slug, tool, server=server.rules, groups=actor.group_rules)
    decided = approvals.verdict(tool, lists=rules, read_only=server.read_only)
    return decided.reason if decided.do is approvals.Do.DENY else ""
