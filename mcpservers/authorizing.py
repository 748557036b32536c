"""Whether a tool may be called just now, with which rows, and as whom: read anew before every call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from django.db.models import Q

from accounts.actors import Actor, refreshed, why_gone
from accounts.grants import gathered, grants_of
from accounts.policy import Action, allows
from chatui.prepared import PreparedQuery
from mcpservers import approvals, pins
from mcpservers.acting import Identity, identity_of
from mcpservers.approvals import Rule
from mcpservers.giving import given_tool, is_visible
from mcpservers.models import FOR_PEOPLE, MCPServer, ServerGrant, UserVariables
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


class Through(Protocol):
    """What a call comes through, an agent say, which has to be the actor's to use still; row work."""

    def server(self, server_id: UUID, user_id: UUID) -> Any:
        """The server's row, if there is one, with its grants as `given` and what `refusal` looks at. One query."""

    def refusal(self, actor: Actor, server: Any, tool: str) -> str:
        """Why `tool` of such a row may not be called through it, in a sentence; "" if it may."""

    def rules(self, server: Any) -> Sequence[Rule]:
        """Its rules, over `server__tool`."""


class _Directly:
    """Through nothing: an admin tries a tool."""

    def server(self, server_id: UUID, user_id: UUID) -> Any:
        return _about.first(server_id, user_id)

    def refusal(self, actor: Actor, server: Any, tool: str) -> str:
        return ""

    def rules(self, server: Any) -> Sequence[Rule]:
        return ()


DIRECTLY = _Directly()


def authorize_call(
    actor: Actor,
    server_id: UUID,
    tool: str,
    *,
    allow_globs: Sequence[str] = (),
    account_id: UUID | None = None,
    through: Through = DIRECTLY,
) -> Authorization:
    """Whether `actor` may call `tool` now: membership, role, agent, server, grants and rules, from fresh rows.

    Three queries, and one more for a server with variables, and for one with accounts. Which version of the tool may be
    called depends on whose view of the server it is: `Authorization.pins` says it. `allow_globs`, if any, are the only
    tools that were offered of this server.
    """
    now = refreshed(actor)
    if now is None:
        return Authorization(False, why_gone(actor))
    verdict = allows(now, Action.CALL_TOOL)
    if not verdict:
        return Authorization(False, verdict.reason)
    server = through.server(server_id, now.user_id)
    if server is None or not is_visible(now, server):
        return Authorization(False, "There is no such server.")
    reason = through.refusal(now, server, tool) or _refusal(now, server, tool, allow_globs, through.rules(server))
    if reason:
        return Authorization(False, reason, server)
    accepted = pins.of_call(server_id, tool, now.user_id, own=server.owner_id is not None)
    identity = identity_of(now, server, account_id)
    return Authorization(True, "", server, now, _own_values(now, server), accepted, identity)


def given_to(user: UUID) -> Q:
    """Which grants may say something to a person: of groups all, since one is in any number, and a server has few."""
    return Q(user=None) | Q(user_id=user)


_about = PreparedQuery(
    lambda server, user: (
        MCPServer.objects.as_system()
        .filter(pk=server)
        .defer(*FOR_PEOPLE)
        .annotate(given=gathered(ServerGrant.objects.filter(given_to(user), server_id=server)))
    ),
    UUID,
    UUID,
)


def _own_values(actor: Actor, server: MCPServer) -> Mapping[str, str]:
    if not server.variables:
        return {}
    own = UserVariables.objects.filter(server=server, user_id=actor.user_id).first()
    return own.values if own is not None else {}


def _refusal(actor: Actor, server: Any, tool: str, allow_globs: Sequence[str], agent_rules: Sequence[Rule]) -> str:
    if not server.enabled:
        return f"“{server.title}” is switched off."
    given = given_tool(actor, server, grants_of(server.given), tool)
    if not given:
        return given.reason
    if allow_globs and not any(approvals.matches(glob, tool) for glob in allow_globs):
        return "The agent does not offer this tool."
    rules = approvals.rule_lists(server.slug, tool, server=server.rules, groups=actor.group_rules, agent=agent_rules)
    decided = approvals.verdict(tool, lists=rules, read_only=server.read_only)
    return decided.reason if decided.do is approvals.Do.DENY else ""
