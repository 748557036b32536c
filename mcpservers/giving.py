"""Whether a server is given to somebody: by its grants, or, if it is a server of one person, by being that person."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from accounts.actors import Actor
from accounts.policy import GrantRow, Verdict, granted, may_have_servers
from mcpservers.approvals import matches
from mcpservers.models import MCPServer


class ServerGrantRow(GrantRow, Protocol):
    """A stored grant of a server; with `tool`, a glob, of some of its tools."""

    @property
    def tool(self) -> str: ...


def given(actor: Actor, server: MCPServer, grants: Iterable[GrantRow]) -> Verdict:
    """Whether `grants` (all, or those of one tool) give `server` to the actor.

    A person's own server needs none, nor heeds any.
    """
    if server.owner_id is None:
        return granted(actor, grants)
    if server.owner_id != actor.user_id:
        return Verdict(False, "It is a server of another person, for that person alone.")
    may = may_have_servers(actor)
    return Verdict(True, "It is a server of your own.") if may else may


def reaches(actor: Actor, server: MCPServer, grants: Iterable[ServerGrantRow]) -> Verdict:
    """Whether the actor is given the server, or at least some tool of it. A denied tool does not deny the server."""
    rows = list(grants)
    general = [grant for grant in rows if not grant.tool]
    whole = given(actor, server, general)
    if whole or server.owner_id is not None:
        return whole
    denials = [grant for grant in general if grant.deny]
    some = (granted(actor, [*denials, grant]) for grant in rows if grant.tool and not grant.deny)
    return next((each for each in some if each), whole)


def given_tool(actor: Actor, server: MCPServer, grants: Iterable[ServerGrantRow], tool: str) -> Verdict:
    """Whether the actor is given `tool` of the server, whose `grants` these are."""
    return given(actor, server, [grant for grant in grants if not grant.tool or matches(grant.tool, tool)])


def is_visible(actor: Actor, server: MCPServer) -> bool:
    """Whether the server is there for the actor at all, as `MCPServer.objects.visible_to` would say."""
    return server.organization_id == actor.organization_id and server.owner_id in (None, actor.user_id)
